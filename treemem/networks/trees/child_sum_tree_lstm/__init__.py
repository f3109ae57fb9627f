"""Child sum tree lstm."""

NETWORKS = {"ChildSumTreeLSTM": "layer:ChildSumTreeLSTM"}
ROWS = {"Child-Sum Tree-LSTM": "ChildSumTreeLSTM"}
LAUNCHES = {"Child-Sum Tree-LSTM": 54}
