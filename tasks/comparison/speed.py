"""Training and inference speed of networks, one after the other on the same machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.networks import NetworkConfig
from treemem.runs.evaluate import evaluate
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.task import Task
from treemem.trees.forest import Forest

_EXAMPLES = 1024
_ROUNDS = 3
_EPOCHS = 2  # in a round


def speed_records(
    task: Task, networks: Mapping[str, NetworkConfig], data: Forest, training: TrainingOptions, folder: Path
) -> list[dict[str, Any]]:
    """Train and score each network in turn, three times over, and return the best speeds.

    A record has the fields ``row``, ``device``, ``threads``, ``training`` and ``inference`` (examples a second, batches
    included), ``examples`` (number of training examples) and ``epoch`` (seconds of an epoch over all of them).

    Args:
        task: gives the head.
        networks: by row.
        data: with splits; up to 1,024 training examples and as many test examples are used.
        training: batches and options of the training.
        folder: of the trainings.
    """
    examples = task.examples(data)
    train, test = examples.part("train"), examples.part("test")
    trained, scored = (_sample(data, len(examples), part) for part in (train, test))
    options = dataclasses.replace(training, epochs=_EPOCHS, schedule="constant", curriculum=0)
    found: dict[str, dict[str, Any]] = {}
    for _ in range(_ROUNDS):
        for row, network in networks.items():
            fitted = fit(task, network, trained, options, output=folder / row, overwrite=True, progress=False)
            evaluation = evaluate(
                fitted.model,
                scored,
                batch_size=options.evaluation_batch_size,
                threads=options.threads,
                progress=False,
            )
            before = found.get(row, {"training": 0.0, "inference": 0.0})
            speed = max(before["training"], *(record["examples_per_second"] for record in fitted.records))
            found[row] = {
                "row": row,
                "device": fitted.model.device.type,
                "threads": options.threads,
                "training": speed,
                "inference": max(before["inference"], len(evaluation.chosen) / evaluation.seconds),
                "examples": len(train),
                "epoch": len(train) / speed,
            }
    return list(found.values())


def _sample(data: Forest, num_examples: int, chosen: NDArray[np.int64]) -> Forest:
    """Return some of the chosen examples without their split."""
    per_example = len(data) // num_examples
    places = np.random.default_rng(0).permutation(chosen)[:_EXAMPLES]
    part = data[(places[:, None] * per_example + np.arange(per_example)).ravel()]
    return part.with_data(tree_data={name: array for name, array in part.tree_data.items() if name != "split"})
