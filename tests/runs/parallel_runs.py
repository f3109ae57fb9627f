"""What each process of a data-parallel training sees: torchrun parallel_runs.py FOLDER writes FOLDER/process-RANK.json.

Each process is given an output folder of its own, as on machines that share no disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from test_data_parallel import DROPOUT, NETWORK, OPTIONS, PONDERING, PRECISE, TOKENS, TOYS, task_and_data
from torch import nn

from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.data_parallel import joined_processes
from treemem.errors import CellError, CheckpointError, TreememError
from treemem.model import Model
from treemem.model_digest import weights_digest
from treemem.runs import fit
from treemem.runs.training_loop import Trainer

PROCESSES = joined_processes()
LEFT = TOKENS.replace(padding="left")


class Stopped(Exception):
    pass


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Any:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def run(
    folder: Path, name: str, *, count: int = TOYS, resume: bool = False, weighted: bool = False, **changed: Any
) -> dict[str, Any]:
    options = dataclasses.replace(OPTIONS, **{key: value for key, value in changed.items() if key != "network"})
    network = changed.get("network", NETWORK)
    task, data = task_and_data(count, weighted=weighted)
    result = fit(task, network, data, options, output=folder / name, resume=resume)
    return {
        "loss": [record["loss"] for record in result.records],
        "validation_loss": [record["validation_loss"] for record in result.records],
        "auxiliary": {
            name: [record[name] for record in result.records] for name in result.records[0] if name == "ponder_loss"
        },
        "best_epoch": result.best_epoch,
        "weights": weights_digest(result.model),
        "temperature": result.model.temperature,
        "is_training": result.model.training,
    }


def error_of(action: Any) -> str:
    try:
        action()
    except TreememError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def leave(folder: Path, name: str, **changed: Any) -> None:
    """Begin a run that every process leaves in its 18th step."""
    step, left = Trainer.step, 18

    def stopping(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stopped
        return step(*arguments)

    with replaced(Trainer, "step", stopping), contextlib.suppress(Stopped):
        run(folder, name, checkpoint_steps=4, **changed)


def errors(folder: Path) -> dict[str, str]:
    def full(*_: Any, **__: Any) -> None:
        raise CheckpointError("the disk is full")

    def not_a_number(*_: Any, **__: Any) -> None:
        raise CellError("no number in the last process")

    found = {"a run is there": error_of(lambda: run(folder, "float32"))}
    with replaced(RunFolder, "save", full):
        found["the first cannot write"] = error_of(lambda: run(folder, "full"))
    with replaced(Model, "outputs_of", Model.outputs_of if PROCESSES.is_first else not_a_number):
        found["the last cannot evaluate"] = error_of(lambda: run(folder, "unlike"))
    found["other data"] = error_of(lambda: run(folder, "others", count=TOYS + PROCESSES.rank))
    found["padding"] = error_of(lambda: run(folder, "divided", network=LEFT))
    found["no such loss"] = error_of(lambda: run(folder, "unknown loss", auxiliary_losses={"ponder": 0.1}))
    found["diverged"] = error_of(lambda: run(folder, "diverged", learning_rate=1e30, evaluate_every=9, epochs=2))
    return found


def summed_gradients() -> list[Any]:
    """Of parameters that all processes use, that the last one uses, and that none uses."""
    parameters = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(1))]
    used = parameters[:1] if PROCESSES.is_first else parameters[:2]
    torch.stack([each.sum() for each in used]).sum().mul(PROCESSES.rank + 1).backward()
    PROCESSES.sum_gradients(parameters)
    return [None if each.grad is None else each.grad.tolist() for each in parameters]


def command(*words: str) -> dict[str, Any]:
    said, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        code = main(words)
    return {"code": code, "out": said.getvalue(), "err": told.getvalue()}


if __name__ == "__main__":
    shared = Path(sys.argv[1])
    own = shared / f"of-{PROCESSES.rank}"
    log = io.StringIO()
    logging.getLogger("treemem").addHandler(logging.StreamHandler(log))
    logging.getLogger("treemem").setLevel(logging.INFO)
    leave(own, "for one process")
    leave(own, "broken", network=DROPOUT)
    seen: dict[str, Any] = {
        "float32": run(own, "float32"),
        "float64": run(own, "float64", **PRECISE),
        "by nodes": run(own, "by nodes", batch_size=8, nodes_per_batch=20, sort_by_height=True, **PRECISE),
        "tokens": run(own, "tokens", network=TOKENS, sort_by_length=True, **PRECISE),
        "auxiliary loss": run(own, "auxiliary loss", network=PONDERING, auxiliary_losses={"ponder": 0.3}, **PRECISE),
        "weights": run(own, "weights", weighted=True, **PRECISE),
        "taken over": run(own, "of_one_process", resume=True),
        "unbroken": run(own, "unbroken", network=DROPOUT),
        "broken": run(own, "broken", network=DROPOUT, resume=True),
        "gradients": summed_gradients(),
        "log": log.getvalue(),
    }
    seen["errors"] = errors(own)
    recipe = str(shared / "toy.yaml")
    seen["train"] = command("train", recipe, "-o", str(own / "trained"))
    seen["no recipe"] = command("train", "equation_verification/smal")
    seen["evaluate"] = command("evaluate", str(own / "trained"))
    (shared / f"process-{PROCESSES.rank}.json").write_text(json.dumps(seen))
