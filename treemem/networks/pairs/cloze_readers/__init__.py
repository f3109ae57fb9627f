"""Cloze readers."""

NETWORKS = {
    "AttentiveReader": "layer:AttentiveReader",
    "ImpatientReader": "layer:ImpatientReader",
    "DeepLSTMReader": "layer:DeepLSTMReader",
}
