"""Child sum tree lstm."""
