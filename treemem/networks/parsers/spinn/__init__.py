"""A stack and a buffer: transitions shift tokens and compose the two topmost nodes."""
