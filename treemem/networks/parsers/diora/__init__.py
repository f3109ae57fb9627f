"""DIORA: an inside and an outside pass over all binary trees of a sequence."""

NETWORKS = {"DIORA": "layer:DIORA"}
ROWS = {"DIORA": "DIORA"}
LAUNCHES = {"DIORA": 5958}
