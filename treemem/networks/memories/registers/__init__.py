"""Rows of registers that are read and written by weights over rows (Graves et al. 2014)."""
