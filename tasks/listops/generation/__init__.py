"""Generation of ListOps expressions."""
