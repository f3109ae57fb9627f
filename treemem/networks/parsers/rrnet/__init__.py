"""Rrnet."""
