"""Minimal pairs from templates."""
