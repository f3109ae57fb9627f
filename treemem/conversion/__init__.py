"""Conversion of weights of the published code to checkpoints: see ``docs/authors_weights.md``."""

from treemem.conversion.published_code import convert

__all__ = ["convert"]
