"""Networks that read a pair of texts."""
