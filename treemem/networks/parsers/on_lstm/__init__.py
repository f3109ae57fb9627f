"""ON-LSTM: an LSTM whose cell is ordered, so that some of its units are kept for longer than others."""
