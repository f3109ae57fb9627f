"""Weights of the published code, made into checkpoints: see ``docs/authors_weights.md``."""

from treemem.conversion.published_code import PublishedCode, convert

__all__ = ["PublishedCode", "convert"]
