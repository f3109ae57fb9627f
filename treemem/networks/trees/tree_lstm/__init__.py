"""Tree lstm."""

NETWORKS = {"TreeLSTM": "layer:TreeLSTM"}
ROWS = {"Tree-LSTM": "TreeLSTM"}
LAUNCHES = {"Tree-LSTM": 47}
