"""Recursion in Recursion: a balanced tree of chunks, each of them parsed by a beam search."""

NETWORKS = {"RecursionInRecursion": "layer:RecursionInRecursion"}
ROWS = {"Recursion in Recursion": "RecursionInRecursion"}
