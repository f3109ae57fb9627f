"""Trains in a process of its own, so that a test can kill it: killed_run.py OUTPUT resume|anew."""

from __future__ import annotations

import sys
from pathlib import Path

from toy_task import MoreX, toy_data

from treemem.task import NetworkConfig
from treemem.training.fit import fit
from treemem.training.options import TrainingOptions

if __name__ == "__main__":
    network = NetworkConfig("StackTreeLSTM", {"hidden_size": 6, "stack_size": 3, "dropout": 0.2})
    options = TrainingOptions(
        epochs=6, batch_size=16, learning_rate=0.01, checkpoint_steps=3, accelerator="cpu", prefetch=2
    )
    fit(MoreX(), network, toy_data(300), options, output=Path(sys.argv[1]), resume=sys.argv[2] == "resume")
