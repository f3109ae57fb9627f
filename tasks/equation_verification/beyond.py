"""What is tried to lift the accuracy on deep equations: single changes, some together, as many for either network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from treemem.networks import NetworkConfig
from treemem.runs import StudyRun, TrainingOptions
from treemem.tasks.equation_verification.studies import COMPARED, PUBLISHED_TRAINING, SEEDS
from treemem.tasks.equation_verification.task import EquationVerification

SEARCH_TRAINING = dataclasses.replace(PUBLISHED_TRAINING, epochs=10)


@dataclass(frozen=True)
class Change:
    """What a trial changes.

    Attributes:
        network: options of the network.
        training: options of training.
        task: options of the task.
        data: which equations to train on.
    """

    network: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)
    data: str = "data"


_FALLING = {"schedule": "cosine", "warmup": 0.05}
_SMOOTH = {**_FALLING, "averaging": 0.999}

CHANGES: dict[str, Change] = {
    "nothing": Change(),
    "rate 0.003": Change(training={"learning_rate": 0.003}),
    "rate 0.006": Change(training={"learning_rate": 0.006}),
    "batches of 256": Change(training={"batch_size": 256}),
    "hidden size 100": Change(network={"hidden_size": 100}),
    "dropout 0.1": Change(network={"dropout": 0.1}),
    "no weight decay": Change(training={"weight_decay": 0.0}),
    "weight decay 1e-4": Change(training={"weight_decay": 1e-4}),
    "decoupled weight decay 0.01": Change(training={"optimizer": "adamw", "weight_decay": 0.01}),
    "gradients clipped at 1": Change(training={"clip": 1.0}),
    "rate falling as a cosine": Change(training=_FALLING),
    "averaged weights": Change(training={"averaging": 0.999}),
    "curriculum of 4 epochs": Change(training={"curriculum": 4}),
    "cosine of the sides": Change(task={"read_out": "cosine"}),
    "distance of the sides": Change(task={"read_out": "distance"}),
    "a layer that compares the sides": Change(task={"read_out": "comparison"}),
    "equal sub-expressions besides, 4 epochs": Change(training={"epochs": 4}, data="with sub-expressions"),
    "false equations three steps farther": Change(data="harder"),
    "ten times the equations, 1 epoch": Change(training={"epochs": 1}, data="tenfold"),
    "ten times, derived as published, 1 epoch": Change(training={"epochs": 1}, data="tenfold, derived"),
}
"""Trials of one change each."""

TOGETHER: dict[str, Change] = {
    "ten times, by branches too, 1 epoch": Change(training={"epochs": 1}, data="tenfold, branches"),
    "falling rate, averaged": Change(training=_SMOOTH),
    "falling rate, averaged, dropout 0.1": Change(training=_SMOOTH, network={"dropout": 0.1}),
    "falling rate, averaged, hidden size 100": Change(training=_SMOOTH, network={"hidden_size": 100}),
    "falling rate, averaged, ten times, 2 epochs": Change(training={**_SMOOTH, "epochs": 2}, data="tenfold"),
    "the same, cosine of the sides": Change(
        training={**_SMOOTH, "epochs": 2}, task={"read_out": "cosine"}, data="tenfold"
    ),
    "the same, distance of the sides": Change(
        training={**_SMOOTH, "epochs": 2}, task={"read_out": "distance"}, data="tenfold"
    ),
    "falling rate, averaged, ten times by branches too, 2 epochs": Change(
        training={**_SMOOTH, "epochs": 2}, data="tenfold, branches"
    ),
    "the last, hidden size 100": Change(
        training={**_SMOOTH, "epochs": 2}, network={"hidden_size": 100}, data="tenfold, branches"
    ),
}
"""Trials of the changes that promised most, together."""


def changed_run(name: str, row: str, network: str, change: Change, training: TrainingOptions, seed: int) -> StudyRun:
    """A run of one of the task's networks with a change."""
    config: NetworkConfig = EquationVerification.networks[network]
    return StudyRun(
        name,
        row,
        config.replace(**change.network),
        dataclasses.replace(training, **{"seed": seed, **change.training}),
        change.data,
        EquationVerification(**change.task),
    )


def search_runs() -> list[StudyRun]:
    """Every single change for either network, one seed, to be compared on validation equations alone."""
    return _trials("search", CHANGES)


def together_runs() -> list[StudyRun]:
    """Some changes together, likewise."""
    return _trials("together", TOGETHER)


def _trials(study: str, changes: Mapping[str, Change]) -> list[StudyRun]:
    return [
        changed_run(f"{study}/{network}/{name}", f"{network}: {name}", network, change, SEARCH_TRAINING, SEEDS[0])
        for name, change in changes.items()
        for network in COMPARED
    ]


_BEST_TRAINING = {**_SMOOTH, "epochs": 6}
BEST: dict[str, Change] = {
    "best recipe": Change(training=_BEST_TRAINING, task={"read_out": "cosine"}, data="tenfold"),
    "best recipe, branches": Change(training=_BEST_TRAINING, task={"read_out": "cosine"}, data="tenfold, branches"),
}
"""Chosen by the trials, for longer; and the same on equations that are derived by identities of one branch of a root
too, as many of the published ones are, which validation equations cannot tell to be better or worse."""


def best_runs() -> list[StudyRun]:
    """The best recipes for either network, three seeds."""
    return [
        changed_run(
            f"best/{network}, {recipe}/seed-{seed}", f"{network}, {recipe}", network, change, PUBLISHED_TRAINING, seed
        )
        for seed in SEEDS
        for recipe, change in BEST.items()
        for network in COMPARED
    ]
