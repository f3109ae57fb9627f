"""Tree cell."""

NETWORKS = {"TreeCell": "layer:TreeCell"}
ROWS = {"TreeCell": "TreeCell"}
