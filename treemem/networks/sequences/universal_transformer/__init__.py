"""Universal transformer."""

NETWORKS = {"UniversalTransformer": "layer:UniversalTransformer"}
ROWS = {
    "Universal Transformer": (
        "UniversalTransformer",
        {"num_heads": (8, 5, 4, 2, 1), "num_steps": 6, "norm_first": True},
    )
}
LAUNCHES = {"Universal Transformer": 499}
