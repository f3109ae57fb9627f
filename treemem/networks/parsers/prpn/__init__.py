"""Prpn."""
