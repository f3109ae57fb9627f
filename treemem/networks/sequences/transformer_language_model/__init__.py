"""A language model of Transformer layers, some of which may attend to a differentiable stack."""

NETWORKS = {"TransformerLanguageModel": "layer:TransformerLanguageModel"}
LAUNCHES = {"language model, Transformer": 617}
