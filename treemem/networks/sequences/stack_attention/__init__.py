"""A Transformer some of whose layers attend to a differentiable stack."""

NETWORKS = {"StackAttentionTransformer": "layer:StackAttentionTransformer"}
ROWS = {
    "Stack-attention Transformer": (
        "StackAttentionTransformer",
        {"num_heads": (8, 5, 4, 2, 1), "layers": "2.superposition-32.1"},
    )
}
LAUNCHES = {"Stack-attention Transformer": 282}
