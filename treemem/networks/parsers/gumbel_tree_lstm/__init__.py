"""Trees chosen pair by pair with the straight-through Gumbel-softmax, composed by a Tree-LSTM."""

NETWORKS = {"GumbelTreeLSTM": "layer:GumbelTreeLSTM"}
ROWS = {"Gumbel Tree-LSTM": "GumbelTreeLSTM"}
LAUNCHES = {"Gumbel Tree-LSTM": 190}
