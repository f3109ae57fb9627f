"""Stacks, queues, deques, registers and attention, and the controllers that use them."""

NETWORKS = {"MemoryRNN": "memory_rnn:MemoryRNN"}
