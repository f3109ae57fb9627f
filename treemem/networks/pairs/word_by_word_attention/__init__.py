"""Word by word attention."""

NETWORKS = {"WordByWordAttention": "layer:WordByWordAttention"}
