"""Trees found with a beam, composed by the gated recursive cell."""

NETWORKS = {"EfficientBeamTreeGRC": "layer:EfficientBeamTreeGRC", "BeamTreeGRC": "layer:BeamTreeGRC"}
ROWS = {
    "EBT-GRC": "EfficientBeamTreeGRC",
    "BT-GRC": "BeamTreeGRC",
    "BT-GRC, OneSoft": ("BeamTreeGRC", {"top_k": "onesoft"}),
}
LAUNCHES = {"EBT-GRC": 360, "BT-GRC": 272, "BT-GRC, OneSoft": 4575}
