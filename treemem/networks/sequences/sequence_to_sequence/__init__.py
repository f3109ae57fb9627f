"""Sequence to sequence."""

NETWORKS = {"SequenceToSequence": "layer:SequenceToSequence"}
