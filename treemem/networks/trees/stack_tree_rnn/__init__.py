"""Stack tree rnn."""
