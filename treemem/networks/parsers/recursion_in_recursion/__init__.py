"""Recursion in Recursion: a balanced tree of chunks, each parsed by a beam search or read from left to right."""

NETWORKS = {
    "RecursionInRecursion": "layer:RecursionInRecursion",
    "RecursionInRecursionGRC": "layer:RecursionInRecursionGRC",
}
ROWS = {
    "Recursion in Recursion": "RecursionInRecursion",
    "RIR-GRC": "RecursionInRecursionGRC",
    "BBT-GRC": ("RecursionInRecursionGRC", {"chunk_size": 2, "from_zero": False, "state_space": False}),
}
LAUNCHES = {"Recursion in Recursion": 505, "RIR-GRC": 228, "BBT-GRC": 68}
