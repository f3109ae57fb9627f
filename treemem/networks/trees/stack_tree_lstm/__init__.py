"""Stack tree lstm."""
