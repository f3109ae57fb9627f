from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.runs.options import TrainingOptions
from treemem.runs.training_examples import examples_of_epoch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "refused", "problem"),
    [
        ("epochs", (0, -1), "must be at least 1, not "),
        ("epochs", ("3", None, 2.5), "must be a whole number, not "),
        ("patience", ("2", 2.5), "must be a whole number or None, not "),
        ("prefetch", (-1,), "must be at least 0, not -1"),
        ("weight_decay", (-1.0, NAN), "must be 0 or more"),
        ("learning_rate", (0.0, -1.0, NAN, INFINITY), "must be above 0, not "),
        ("learning_rate", ("1e-3", None), "must be a number, not "),
        ("clip", (0.0, NAN), "must be above 0"),
        ("beta1", (1.0, -0.1, NAN), "must be from 0 to below 1, not "),
        ("warmup", (1.0, -0.1, NAN), "must be from 0 to below 1, not "),
        ("averaging", (0.0, 1, NAN), "must be above 0 and below 1, not "),
        ("plateau_factor", (0.0, 1.0, NAN), "must be above 0 and below 1, not "),
        ("seed", (-1, 2**63), r"must be from 0 to 2\^63 - 1"),
        ("accelerator", ("gpu", 1), "=.* is none of auto, cpu, cuda"),
        ("precision", ("16",), "='16' is none of 32-true, 64-true, bf16-mixed"),
        ("optimizer", ("lbfgs",), "='lbfgs' is none of adam, adamw, muon, rmsprop, sgd"),
        ("curriculum", (-1,), "must be 0 or more, not -1"),
        ("curriculum", (31,), "must be at most epochs, which is 30, not 31"),
        ("curriculum", ("5", 2.5, []), r"must be a whole number or pairs such as \[\[5, 20\], \[10, 2\]\], not "),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, refused: tuple[object, ...], problem: str) -> None:
    for value in refused:
        with pytest.raises(RecipeError, match=f"^{name} ?{problem}"):
            TrainingOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schedule": "plateau", "warmup": 0.1}, 'warmup is for the other schedules; with "plateau" leave it at 0'),
        ({"sort_by_height": True, "sort_by_length": True}, "contradict each other; choose one"),
        ({"curriculum": [[2, 1, 1]]}, r"must be pairs of a difficulty and a number of epochs.*not \[\[2, 1, 1\]\]"),
        ({"curriculum": [[2, 0]]}, r"a number of epochs, at least 1, such as .*, not \[\[2, 0\]\]"),
        ({"curriculum": [[3, 1], [2, 1]]}, r"become more difficult one by one, not \[\[3, 1\], \[2, 1\]\]"),
        ({"epochs": 3, "curriculum": [[2, 2], [3, 1]]}, r"leaves none of epochs=3 for all .*\(curriculum=0\)"),
        ({"auxiliary_losses": {"ponder": -0.1}}, "auxiliary_losses.ponder must be 0 or more, not -0.1"),
        ({"auxiliary_losses": {"ponder": "0.1"}}, "auxiliary_losses.ponder must be a number, not '0.1'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        TrainingOptions(**options)  # type: ignore[arg-type]


def test_options_may_be_numbers_of_numpy() -> None:
    options = TrainingOptions(epochs=np.int64(3), learning_rate=np.float32(0.5), seed=np.uint8(7), clip=1)  # type: ignore[arg-type]
    assert [type(value) for value in (options.epochs, options.learning_rate, options.seed)] == [int, float, int]
    assert options == TrainingOptions(epochs=3, learning_rate=0.5, seed=7, clip=1.0)


GROUP = np.array([4, 1, 9, 2, 1, 7, 4, 2, 0, 11])  # of all examples; 0 and 11 are of examples not trained on
TRAIN = np.array([6, 0, 1, 2, 3, 4, 5, 7])
EXAMPLES = Examples(Forest.from_trees([Tree("x")] * len(GROUP)), 1, {}, GROUP, np.ones(len(GROUP), bool))
STAGES = ((2, 1), (4, 2))


@pytest.mark.parametrize("curriculum", [1, 2, 3, 4, 5, 7, 11])
def test_groups_come_in_from_the_lowest_up(curriculum: int) -> None:
    groups = [1, 2, 4, 7, 9]
    for epoch in range(curriculum + 2):
        lowest = groups[: math.ceil(len(groups) * min(1, (epoch + 1) / curriculum) - 1e-9)]
        found = examples_of_epoch(TRAIN, EXAMPLES, epoch, curriculum)
        assert found.tolist() == [example for example in TRAIN if GROUP[example] in lowest]
        assert len(found) > 0


def test_each_stage_lasts_its_epochs_and_all_examples_come_after_the_last() -> None:
    by_epoch = [examples_of_epoch(TRAIN, EXAMPLES, epoch, STAGES).tolist() for epoch in range(5)]
    assert by_epoch == [[1, 3, 4, 7], [6, 0, 1, 3, 4, 7], [6, 0, 1, 3, 4, 7], TRAIN.tolist(), TRAIN.tolist()]


def test_stages_go_by_the_difficulty_of_a_task_that_has_one() -> None:
    harder = dataclasses.replace(EXAMPLES, difficulty=10 - GROUP)
    assert examples_of_epoch(TRAIN, harder, 0, STAGES).tolist() == [2]
