"""Rrnet."""

NETWORKS = {"RRNet": "layer:RRNet"}
ROWS = {"RRNet": "RRNet"}
