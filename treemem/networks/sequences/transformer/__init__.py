"""Transformer."""

NETWORKS = {"Transformer": "layer:Transformer"}
ROWS = {"Transformer": ("Transformer", {"num_heads": (8, 5, 4, 2, 1), "num_layers": 4})}
LAUNCHES = {"Transformer": 182}
