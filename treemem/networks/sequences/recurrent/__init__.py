"""Recurrent."""

NETWORKS = {"RNN": "layer:RNN", "LSTM": "layer:LSTM"}
ROWS = {"RNN": "RNN", "LSTM": "LSTM"}
