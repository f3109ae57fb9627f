"""Rrnet."""

NETWORKS = {"RRNet": "layer:RRNet"}
ROWS = {"RRNet": "RRNet"}
LAUNCHES = {"RRNet": 3130}
