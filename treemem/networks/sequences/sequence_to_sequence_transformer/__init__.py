"""A Transformer from sequence to sequence."""

NETWORKS = {"SequenceToSequenceTransformer": "layer:SequenceToSequenceTransformer"}
