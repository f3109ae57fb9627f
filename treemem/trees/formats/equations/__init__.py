"""Equations and expressions as text: tokens, names and numbers, the parser and the printer."""
