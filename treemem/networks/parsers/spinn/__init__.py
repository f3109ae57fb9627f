"""A stack and a buffer: transitions shift tokens and compose the two topmost nodes."""

NETWORKS = {"SPINN": "layer:SPINN"}
ROWS = {
    "SPINN": "SPINN",
    "SPINN, gold transitions": ("SPINN", {"transitions": "gold", "tracker_size": 0}),
    "RL-SPINN": ("SPINN", {"transitions": "reinforced"}),
}
LAUNCHES = {"SPINN": 138, "SPINN, gold transitions": 79, "RL-SPINN": 118}
