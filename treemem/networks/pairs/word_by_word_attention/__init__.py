"""Word by word attention."""

NETWORKS = {"WordByWordAttention": "layer:WordByWordAttention"}
LAUNCHES = {"WordByWordAttention": 1340}
