"""Language model."""

NETWORKS = {"LanguageModel": "layer:LanguageModel"}
LAUNCHES = {"language model, ON-LSTM": 292}
