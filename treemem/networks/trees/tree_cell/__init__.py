"""Tree cell."""

NETWORKS = {"TreeCell": "layer:TreeCell"}
ROWS = {"TreeCell": "TreeCell"}
LAUNCHES = {"TreeCell": 63}
