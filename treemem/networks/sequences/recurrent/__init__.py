"""Recurrent."""

NETWORKS = {"RNN": "layer:RNN", "LSTM": "layer:LSTM"}
ROWS = {"RNN": "RNN", "LSTM": "LSTM"}
LAUNCHES = {"LSTM": 798, "RNN": 226}
