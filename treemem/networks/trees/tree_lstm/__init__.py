"""Tree lstm."""

NETWORKS = {"TreeLSTM": "layer:TreeLSTM"}
ROWS = {"Tree-LSTM": "TreeLSTM"}
