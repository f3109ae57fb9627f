"""Which runs the published table of logical inference takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

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

TRIED = ("Tree-RNN", "TreeCell")
TRIALS = ((64, 1e-3), (TRAINING.batch_size, TRAINING.learning_rate), (256, 3e-3))
"""Batch sizes and learning rates among which that of ``TRAINING`` was chosen, and the networks they were tried with."""
TRIAL_SEED = 4444
LONGER_PAIRS = "test hidden"


def gold_tree_networks() -> dict[str, NetworkConfig]:
    """The networks of the task over given trees, at one hidden size and without dropout."""
    return {name: _without_dropout(LogicalInference.networks[name]) for name in GOLD_TREES}


def _without_dropout(network: NetworkConfig) -> NetworkConfig:
    none = {option: 0.0 for option in network.options if option.endswith("dropout")}
    return network.replace(hidden_size=HIDDEN_SIZE, **none)


def gold_tree_runs() -> list[StudyRun]:
    """Four networks on all pairs, three seeds."""
    return _runs("gold-trees", [ALL_PAIRS])


def held_out_runs() -> list[StudyRun]:
    """The same networks on the pairs that each systematic split leaves."""
    return _runs("gold-trees-held-out", HELD_OUT)


def _runs(study: str, data: Sequence[str]) -> list[StudyRun]:
    return [
        StudyRun(
            f"{study}/{name}, {part}/seed-{seed}",
            f"{name}, {part}",
            network,
            dataclasses.replace(TRAINING, seed=seed),
            part,
        )
        for seed in SEEDS
        for part in data
        for name, network in gold_tree_networks().items()
    ]


def trial_runs() -> list[StudyRun]:
    """A run of one seed for each network and recipe that was tried."""
    networks = gold_tree_networks()
    return [
        StudyRun(
            f"gold-trees-trials/{name}, batches of {batch_size}, rate {rate:g}",
            name,
            networks[name],
            dataclasses.replace(TRAINING, batch_size=batch_size, learning_rate=rate, seed=TRIAL_SEED),
            LONGER_PAIRS,
        )
        for name in TRIED
        for batch_size, rate in TRIALS
    ]


def published_pairs(folder: str) -> Mapping[str, Forest]:
    """The published pairs in ``folder``, by the name of ``data``."""
    return {ALL_PAIRS: _pairs(LogicDataOptions(path=folder))}


def held_out_pairs(folder: str) -> Mapping[str, Forest]:
    """The published pairs in ``folder`` with each systematic split held out, by the names of ``data``."""
    return {letter: _pairs(LogicDataOptions(path=folder, hold_out=letter)) for letter in HELD_OUT}


def trial_pairs(folder: str) -> Mapping[str, Forest]:
    """The pairs of the published training files in ``folder``, the longer ones in the place of the test pairs."""
    return {LONGER_PAIRS: _pairs(LogicDataOptions(path=folder, hide_test=True))}


def _pairs(options: LogicDataOptions) -> Forest:
    return LogicalInference().make_data(options).forest
