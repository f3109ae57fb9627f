"""Cloze readers."""

NETWORKS = {
    "AttentiveReader": "layer:AttentiveReader",
    "ImpatientReader": "layer:ImpatientReader",
    "DeepLSTMReader": "layer:DeepLSTMReader",
}
LAUNCHES = {"AttentiveReader": 2125, "ImpatientReader": 2361, "DeepLSTMReader": 2211}
