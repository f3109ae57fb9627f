"""Tree rnn."""

NETWORKS = {"TreeRNN": "layer:TreeRNN"}
ROWS = {"Tree-RNN": "TreeRNN"}
LAUNCHES = {"Tree-RNN": 45}
