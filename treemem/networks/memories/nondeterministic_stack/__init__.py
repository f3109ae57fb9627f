"""Stacks of a nondeterministic pushdown automaton (DuSell & Chiang 2020, 2022, 2023), without a controller."""
