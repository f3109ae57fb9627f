"""ON-LSTM: an LSTM whose cell is ordered, so that some of its units are kept for longer than others."""

NETWORKS = {"ONLSTM": "layer:ONLSTM"}
ROWS = {"ON-LSTM": ("ONLSTM", {"chunk_size": (10, 8, 5, 4, 2, 1), "num_layers": 1})}
LAUNCHES = {"ON-LSTM": 135}
