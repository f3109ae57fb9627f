"""Trees found with a beam, composed by the gated recursive cell."""
