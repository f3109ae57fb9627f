"""Which runs the published table of logical inference takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from treemem.networks import NetworkConfig
from treemem.runs import StudyRun, TrainingOptions
from treemem.tasks.logical_inference.task import LogicalInference, LogicDataOptions
from treemem.trees.forest import Forest

SEEDS = (1111, 2222, 3333)
GOLD_TREES = ("Tree-RNN", "Tree-LSTM", "Tree-LSTM+stack+normalize", "TreeCell")
"""Networks over the given trees."""

ALL_PAIRS = "all"
HELD_OUT = ("A", "B", "C")

HIDDEN_SIZE = 100
TRAINING = TrainingOptions(epochs=20, batch_size=128, learning_rate=3e-3, schedule="cosine", weight_decay=1e-5)

LONGEST_TRAINED = "Tree-RNN"
"""The network that was also trained longer: of all, it takes the least time."""
LONGER_TRAINING = dataclasses.replace(TRAINING, epochs=60)

TRIED = ("Tree-RNN", "TreeCell")
TRIALS = tuple(
    dataclasses.replace(TRAINING, batch_size=batch_size, learning_rate=rate, seed=4444)
    for batch_size, rate in ((64, 1e-3), (TRAINING.batch_size, TRAINING.learning_rate), (256, 3e-3))
)
"""The recipes among which ``TRAINING`` was chosen, for the networks ``TRIED``."""
LONGER_TRIALS = tuple(
    dataclasses.replace(LONGER_TRAINING, learning_rate=rate, seed=seed)
    for rate in (1e-3, LONGER_TRAINING.learning_rate)
    for seed in (5555, 6666)
)
"""Those among which ``LONGER_TRAINING`` was chosen, for the network ``LONGEST_TRAINED``."""
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


def longer_runs() -> list[StudyRun]:
    """One network on all pairs, trained longer."""
    return [run for run in _runs("gold-trees-longer", [ALL_PAIRS], LONGER_TRAINING) if run.row == _row(LONGEST_TRAINED)]


def _runs(study: str, data: Sequence[str], training: TrainingOptions = TRAINING) -> list[StudyRun]:
    return [
        StudyRun(
            f"{study}/{_row(name, part)}/seed-{seed}",
            _row(name, part),
            network,
            dataclasses.replace(training, seed=seed),
            part,
        )
        for seed in SEEDS
        for part in data
        for name, network in gold_tree_networks().items()
    ]


def _row(network: str, data: str = ALL_PAIRS) -> str:
    return f"{network}, {data}"


def trial_runs() -> list[StudyRun]:
    """A run for each network and recipe that was tried."""
    networks = gold_tree_networks()
    tried = [(name, training) for name in TRIED for training in TRIALS]
    tried += [(LONGEST_TRAINED, training) for training in LONGER_TRIALS]
    return [
        StudyRun(
            f"gold-trees-trials/{name}, {training.epochs} epochs, batches of {training.batch_size}, "
            f"rate {training.learning_rate:g}/seed-{training.seed}",
            name,
            networks[name],
            training,
            LONGER_PAIRS,
        )
        for name, training in tried
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
