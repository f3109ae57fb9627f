"""Word by word attention."""
