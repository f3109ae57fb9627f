"""Tree cell."""
