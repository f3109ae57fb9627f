"""Sequence to sequence."""
