"""Sequence networks that find a tree."""
