"""Attention over the rows of a memory that is only read."""
