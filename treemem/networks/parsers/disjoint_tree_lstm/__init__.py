"""A parser that chooses a tree pair by pair, and a Tree-LSTM of its own that composes it."""

NETWORKS = {"DisjointTreeLSTM": "layer:DisjointTreeLSTM"}
ROWS = {"Disjoint Tree-LSTM": "DisjointTreeLSTM"}
LAUNCHES = {"Disjoint Tree-LSTM": 1940}
