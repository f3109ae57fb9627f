"""Which runs the published tables and figures take, and what else is asked of the networks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from treemem.runs import StudyRun, TrainingOptions, binary_scores, packed_answers, score_row
from treemem.runs.state import data_digest
from treemem.tasks.equation_verification.shallow_reader import TokenReader
from treemem.tasks.equation_verification.study_data import SHARES, part_name
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

SEEDS = (12093, 12345, 45678)
TABLE_2 = (
    "Tree-RNN",
    "Tree-RNN+stack",
    "Tree-RNN+stack+no-op",
    "Tree-LSTM",
    "Tree-LSTM+stack",
    "Tree-LSTM+stack+normalize",
    "Tree-LSTM+stack+normalize+no-op",
)
"""Rows of Table 2 of Arabshahi et al. 2020, but for the majority class."""

COMPARED = ("Tree-LSTM", "Tree-LSTM+stack+normalize+no-op")
"""The network without a stack and the best one with it: what is compared beyond Table 2."""

TOKEN_READER = "token-reader"
"""The study of one row that no network is in: boosted trees on token counts."""

RATES = (0.001, 0.003, 0.006, 0.012, 0.024)
PUBLISHED_TRAINING = TrainingOptions(epochs=40, batch_size=64, learning_rate=0.012, weight_decay=1e-5)
"""Adam with 1e-5 of L2, as published. The rate is that of ``RATES`` which is best on validation equations."""


def rate_runs() -> list[StudyRun]:
    """One seed of each network at each rate, to choose among them by validation accuracy."""
    return [
        run
        for rate in RATES
        for run in _runs(
            TABLE_2,
            dataclasses.replace(PUBLISHED_TRAINING, learning_rate=rate, epochs=20),
            SEEDS[:1],
            "rates",
            suffix=f", rate {rate}",
        )
    ]


def table_2_runs() -> list[StudyRun]:
    """Seven networks, three seeds: Table 2 and, by depth, figure 5."""
    return _runs(TABLE_2, PUBLISHED_TRAINING, SEEDS, "table-2")


def sample_efficiency_runs() -> list[StudyRun]:
    """Two networks on parts of the training equations: figure 6; the whole of them is in Table 2."""
    return [
        run
        for seed in SEEDS
        for share in SHARES[:-1]
        for run in _runs(
            COMPARED,
            PUBLISHED_TRAINING,
            (seed,),
            "sample-efficiency",
            suffix=f", {share} %",
            data=part_name(share),
        )
    ]


def ablation_runs() -> list[StudyRun]:
    """One choice at a time changed in the best network of Table 2, and what the stack of a Tree-RNN is read from."""
    networks, base = EquationVerification.networks, COMPARED[1]
    changed: dict[str, dict[str, Any]] = {f"p {size}": {"stack_size": size} for size in (1, 2, 10)}
    changed |= {f"k {count}": {"top_k": count} for count in (2, 3)}
    changed |= {"scalar actions": {"actions": "scalar", "normalize": False}}
    configs = {f"{base}, {name}": networks[base].replace(**options) for name, options in changed.items()}
    configs["Tree-RNN+stack+no-op, reading its own stack"] = networks["Tree-RNN+stack+no-op"].replace(read="own")
    return [
        StudyRun(f"ablation/{name}/seed-{seed}", name, config, dataclasses.replace(PUBLISHED_TRAINING, seed=seed))
        for seed in SEEDS
        for name, config in configs.items()
    ]


def token_reader_record(forest: Forest, files: Mapping[str, Forest]) -> dict[str, Any]:
    """What boosted trees on token counts reach, in the form of the record of a run.

    Args:
        forest: with ``tree_data["split"]``; the training part is learnt from.
        files: further labelled equations to judge, by name.
    """
    task, begin = EquationVerification(), time.perf_counter()
    split = forest.tree_data["split"]
    reader = TokenReader(forest[split == "train"])
    scores, right = {}, {}
    for name, part in {**{name: forest[split == name] for name in SPLITS}, **files}.items():
        examples = task.examples(part)
        predicted, actual = reader.predict(part), examples.targets["label"] == 1
        found = binary_scores(predicted, actual, examples.group)
        scores[name] = [score_row(TOKEN_READER, score, task.group) for score in found]
        right[name] = packed_answers(predicted == actual)
    return {
        "run": TOKEN_READER,
        "row": "boosted trees on token counts",
        "training": {"seed": 0},
        "data": {"name": "data", "hash": data_digest(task.examples(forest))},
        "files": {name: data_digest(task.examples(part)) for name, part in files.items()},
        "seconds": time.perf_counter() - begin,
        "scores": scores,
        "right": right,
    }


def _runs(
    networks: Sequence[str],
    training: TrainingOptions,
    seeds: Sequence[int],
    study: str,
    suffix: str = "",
    data: str = "data",
) -> list[StudyRun]:
    """Runs seed by seed, so that those done first are a whole table of one seed."""
    return [
        StudyRun(
            f"{study}/{name}{suffix}/seed-{seed}",
            name + suffix,
            EquationVerification.networks[name],
            dataclasses.replace(training, seed=seed),
            data,
        )
        for seed in seeds
        for name in networks
    ]
