"""Tree lstm."""
