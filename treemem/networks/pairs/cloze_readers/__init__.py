"""Cloze readers."""
