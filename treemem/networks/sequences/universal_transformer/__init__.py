"""Universal transformer."""
