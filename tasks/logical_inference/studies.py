"""Which runs the published table of logical inference takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from treemem.task import NetworkConfig
from treemem.tasks.logical_inference.task import LogicalInference, LogicDataOptions
from treemem.training import StudyRun, TrainingOptions
from treemem.trees.forest import Forest

SEEDS = (1111, 2222, 3333)
GOLD_TREES = ("Tree-RNN", "Tree-LSTM", "Tree-LSTM+stack+normalize", "TreeCell")
"""Networks over the given trees."""

ALL_PAIRS = "all"
HELD_OUT = ("A", "B", "C")

HIDDEN_SIZE = 100
TRAINING = TrainingOptions(epochs=20, batch_size=128, learning_rate=3e-3, schedule="cosine", weight_decay=1e-5)


def gold_tree_networks() -> dict[str, NetworkConfig]:
    """The networks of the task over given trees, at one hidden size and without dropout."""
    return {name: _without_dropout(LogicalInference.networks[name]) for name in GOLD_TREES}


def _without_dropout(network: NetworkConfig) -> NetworkConfig:
    none = {option: 0.0 for option in network.options if option.endswith("dropout")}
    return network.replace(hidden_size=HIDDEN_SIZE, **none)


def gold_tree_runs() -> list[StudyRun]:
    """Four networks with three seeds, on all pairs, then on those that each systematic split leaves."""
    order = [(seed, ALL_PAIRS) for seed in SEEDS] + [(seed, letter) for seed in SEEDS for letter in HELD_OUT]
    return [
        StudyRun(
            f"gold-trees/{name}, {data}/seed-{seed}",
            f"{name}, {data}",
            network,
            dataclasses.replace(TRAINING, seed=seed),
            data,
        )
        for seed, data in order
        for name, network in gold_tree_networks().items()
    ]


def published_pairs(folder: str) -> Mapping[str, Forest]:
    """The published pairs in ``folder``, whole and with each systematic split held out, by the names of ``data``."""
    task = LogicalInference()
    held_out = {ALL_PAIRS: None, **{letter: letter for letter in HELD_OUT}}
    return {
        name: task.make_data(LogicDataOptions(path=folder, hold_out=pattern)).forest
        for name, pattern in held_out.items()
    }
