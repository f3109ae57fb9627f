"""Networks over sequences: recurrent ones, Transformers, language models, sequence to sequence."""
