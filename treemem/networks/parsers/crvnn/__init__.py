"""Continuous recursion: every token gives way to its right neighbour with a probability, which composes both."""

NETWORKS = {"CRvNN": "layer:CRvNN"}
ROWS = {"CRvNN": "CRvNN"}
LAUNCHES = {"CRvNN": 411}
