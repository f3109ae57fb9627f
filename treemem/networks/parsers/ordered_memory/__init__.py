"""The Ordered Memory: an attention over slots decides which of them a new element is composed with."""

NETWORKS = {"OrderedMemory": "layer:OrderedMemory"}
ROWS = {"Ordered Memory": "OrderedMemory", "Ordered Memory, Tree-RNN cell": ("OrderedMemory", {"cell": "rnn"})}
LAUNCHES = {"Ordered Memory": 761, "Ordered Memory, Tree-RNN cell": 475}
