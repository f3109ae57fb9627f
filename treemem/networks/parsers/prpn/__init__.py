"""Prpn."""

NETWORKS = {"PRPN": "layer:PRPN"}
