"""Tree rnn."""
