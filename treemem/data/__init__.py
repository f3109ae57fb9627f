"""Data sets: examples, their targets and their batches."""
