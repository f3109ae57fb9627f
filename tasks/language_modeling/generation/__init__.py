"""Sentences of a grammar of English, and minimal pairs."""
