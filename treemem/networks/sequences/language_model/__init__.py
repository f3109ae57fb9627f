"""Language model."""

NETWORKS = {"LanguageModel": "layer:LanguageModel"}
