"""Stacks, queues and deques whose items have strengths (Grefenstette et al. 2015)."""
