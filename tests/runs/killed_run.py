"""Trains in a process of its own that kills itself: killed_run.py OUTPUT [MOMENT COUNT].

It dies, as by ``kill -9``, in place of the COUNT-th step of the optimiser (MOMENT ``step``), of the COUNT-th file being
flushed to the disk (``fsync``) or of the COUNT-th renaming of a folder (``rename``). An earlier run is resumed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from toy_task import MoreX, toy_data

from treemem.networks import NetworkConfig
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.runs.trainer import Trainer


def die_at(owner: Any, name: str, count: int) -> None:
    done = getattr(owner, name)
    left = count

    def counting(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done(*arguments)

    setattr(owner, name, counting)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        owners = {"step": Trainer, "fsync": os, "rename": Path}
        die_at(owners[sys.argv[2]], sys.argv[2], int(sys.argv[3]))
    network = NetworkConfig("StackTreeLSTM", {"hidden_size": 6, "stack_size": 3, "dropout": 0.2})
    options = TrainingOptions(
        epochs=6, batch_size=16, optimizer="adamw", learning_rate=0.01, schedule="cosine", warmup=0.1, averaging=0.9,
        curriculum=3, clip=0.5, checkpoint_steps=3, accelerator="cpu", prefetch=2,
    )  # fmt: skip
    fit(MoreX(), network, toy_data(300), options, output=Path(sys.argv[1]), resume=True)
