"""Prpn."""

NETWORKS = {"PRPN": "layer:PRPN"}
LAUNCHES = {"PRPN": 3325}
