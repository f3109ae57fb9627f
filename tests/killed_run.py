"""Trains in a process of its own, which may kill itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from toy_task import MoreX, toy_data

from treemem.networks import NetworkConfig
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.runs.training_loop import Trainer


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


def train(output: Path, moment: str = "", count: int = 0) -> None:
    """Train, or resume an earlier run.

    The process dies, as by ``kill -9``, in place of the ``count``-th step of the optimiser (``moment="step"``), flush
    of a file to the disk (``"fsync"``) or renaming of a folder (``"rename"``).
    """
    if moment:
        owners = {"step": Trainer, "fsync": os, "rename": Path}
        die_at(owners[moment], moment, count)
    network = NetworkConfig("StackTreeLSTM", {"hidden_size": 6, "stack_size": 3, "dropout": 0.2})
    options = TrainingOptions(
        epochs=6, batch_size=16, optimizer="adamw", learning_rate=0.01, schedule="cosine", warmup=0.1, averaging=0.9,
        curriculum=3, clip=0.5, checkpoint_steps=3, accelerator="cpu", prefetch=2,
    )  # fmt: skip
    fit(MoreX(), network, toy_data(300), options, output=output, resume=True)
