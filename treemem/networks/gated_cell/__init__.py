"""Gated recursive cell: a two-layer network gates the children and a candidate, and a layer norm follows."""
