"""Language model."""
