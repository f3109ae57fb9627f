"""How to train: every choice that changes the numbers or the hours, in one dataclass."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from treemem.errors import RecipeError

Curriculum = int | tuple[tuple[int, int], ...]
"""Epochs until all groups have come in, or stages of a difficulty and a number of epochs each."""


_INFINITY = float("inf")
_LIMITS: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys(
        ("epochs", "batch_size", "nodes_per_batch", "patience", "evaluate_every", "evaluation_batch_size",
         "checkpoint_steps", "threads"),
        (1, _INFINITY, "at least 1"),
    ),
    **dict.fromkeys(("prefetch", "plateau_patience", "weight_decay"), (0, _INFINITY, "0 or more")),
    **dict.fromkeys(("learning_rate", "epsilon", "clip", "checkpoint_seconds"), (5e-324, _INFINITY, "above 0")),
    **dict.fromkeys(("beta1", "beta2", "warmup"), (0, 1, "from 0 to below 1")),
    **dict.fromkeys(("averaging", "plateau_factor"), (5e-324, 1, "above 0 and below 1")),
    "seed": (0, 2**63, "from 0 to 2^63 - 1"),
}  # fmt: skip
"""The least value of a number, the bound that it must stay below, and how a message says so."""

_CHOICES = {
    "optimizer": ("adam", "adamw"),
    "schedule": ("constant", "cosine", "linear", "plateau"),
    "accelerator": ("auto", "cpu", "cuda"),
    "precision": ("32-true", "64-true", "bf16-mixed"),
}


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training run.

    Attributes:
        epochs: how often to go through the training examples.
        batch_size: examples for one step of the optimiser, in all processes together where there are several.
        nodes_per_batch: in place of ``batch_size``: most nodes for one step, equal subtrees counted each time.
        sort_by_height: make each batch of examples of similar height; see :class:`treemem.schedule.TreeLoader`.
        sort_by_length: make each batch of examples of similar length, for networks that read tokens; see there.
        optimizer: ``"adam"`` (Kingma & Ba 2015), or ``"adamw"``: the same with decoupled weight decay (Loshchilov &
            Hutter 2019).
        learning_rate: of the optimiser.
        beta1, beta2: decay of the optimiser's averages of gradients and of their squares.
        epsilon: what it adds to the root of the latter.
        schedule: ``"constant"``, or how the rate falls from ``learning_rate`` to near 0 over all steps of the run:
            ``"cosine"`` or ``"linear"``. The rate then depends on ``epochs``, so a run cannot be given more of them.
            ``"plateau"``: the rate is multiplied by ``plateau_factor`` each time that more than ``plateau_patience``
            evaluations in a row brought no better validation accuracy (torch's ``ReduceLROnPlateau``).
        warmup: the fraction of all steps, the first ones, over which the rate rises in a straight line from near 0.
            With any schedule but ``"plateau"``; ``epochs`` is then fixed likewise.
        auxiliary_losses: weights of the network's auxiliary losses by name, such as ``{"ponder": 0.01}``; 0 by default.
            All are logged.
        weight_decay: of every parameter. With ``"adam"`` an L2 penalty, whose gradient goes through Adam; with
            ``"adamw"`` each step takes the rate times ``weight_decay`` of each weight away from it.
        averaging: decay of an exponential moving average of the weights over the steps (Tarvainen & Valpola 2017), at
            most ``(1 + t) / (10 + t)`` after t steps. The averaged weights are what is evaluated and kept as the best.
            None: the weights themselves.
        curriculum: over the first so many epochs the training examples come in by group (for equations: depth), the
            lowest first. With m groups, epoch e (from 0) trains on the lowest ceil(m * (e + 1) / ``curriculum``); the
            epochs after these on all. 0: all from the first. Or stages, pairs of a difficulty and a number of epochs:
            ``[[5, 20], [10, 2]]`` trains for 20 epochs on examples of difficulty 5 at most, for 2 on those of 10, and
            then on all. The difficulty of an expression of ListOps is how many tokens it has; elsewhere the group is.
        seed: of the weights, the order of the examples and dropout.
        clip: largest norm of a step's gradient; longer ones are scaled down. None: no limit.
        patience: stop after so many evaluations without a better validation accuracy. None: never.
        share_subtrees: run equal subtrees of a batch once; sooner, and the same numbers but for rounding. With dropout
            equal subtrees then lose the same units, so the numbers are others.
        evaluate_every: evaluate on the validation examples after every so many epochs, and after the last.
        evaluation_batch_size: examples that run together in evaluation: of the validation examples, and when what was
            trained is scored on the test.
        prefetch: how many batches a thread makes ahead of their use; the same numbers. Seldom pays on a CPU.
        checkpoint_seconds: write a checkpoint within an epoch too when so many seconds went by. None: only at its end.
        checkpoint_steps: likewise after every so many steps.
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        threads: of torch on the CPU, in each process, in training and in scoring; also what makes the numbers
            independent of how many cores there are. None: as many as torch was told to use, which pays for batches of
            thousands or hidden sizes of hundreds.
        precision: as lightning-fabric names it: ``"32-true"``, ``"64-true"``, ``"bf16-mixed"``.
        tensorboard: write event files beside the log.

    Raises:
        RecipeError: a value of another type, or a number outside its range.
    """

    epochs: int = 30
    batch_size: int = 256
    nodes_per_batch: int | None = None
    sort_by_height: bool = False
    sort_by_length: bool = False
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule: str = "constant"
    plateau_factor: float = 0.5
    plateau_patience: int = 2
    warmup: float = 0.0
    auxiliary_losses: dict[str, float] = field(default_factory=dict)
    weight_decay: float = 1e-5
    averaging: float | None = None
    curriculum: Curriculum = 0
    seed: int = 12093
    clip: float | None = None
    patience: int | None = None
    share_subtrees: bool = True
    evaluate_every: int = 1
    evaluation_batch_size: int = 1024
    prefetch: int = 0
    checkpoint_seconds: float | None = 300.0
    checkpoint_steps: int | None = None
    accelerator: str = "auto"
    threads: int | None = 1
    precision: str = "32-true"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for part in fields(self):
            if part.name in _LIMITS:
                object.__setattr__(self, part.name, _within(part.name, str(part.type), getattr(self, part.name)))
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise RecipeError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r:.100}")
        object.__setattr__(self, "curriculum", _checked_curriculum(self.curriculum, self.epochs))
        for name, weight in self.auxiliary_losses.items():
            _within(f"auxiliary_losses.{name}", "float", weight)
        if self.sort_by_height and self.sort_by_length:
            raise RecipeError("sort_by_height and sort_by_length contradict each other; choose one")
        if self.schedule == "plateau" and self.warmup:
            raise RecipeError('warmup is for the other schedules; with "plateau" leave it at 0')

    @property
    def rate_varies(self) -> bool:
        """Whether the learning rate of a step depends on how many steps the whole run has."""
        return self.schedule in ("cosine", "linear") or self.warmup > 0


def _checked_curriculum(given: Any, epochs: int) -> Curriculum:
    """``given`` if it is a number of epochs, or stages that leave their order and the run's epochs as they are."""
    if isinstance(given, (list, tuple)) and given:
        pairs = [list(stage) if isinstance(stage, (list, tuple)) else [] for stage in given]
        if any(len(pair) != 2 or not all(map(_is_whole, pair)) or pair[1] < 1 for pair in pairs):
            raise RecipeError(
                "the stages of a curriculum must be pairs of a difficulty and a number of epochs, at least 1, such as "
                f"[[5, 20], [10, 2]], not {given!r:.100}"
            )
        stages = tuple((int(most), int(count)) for most, count in pairs)
        if any(after[0] <= before[0] for before, after in pairwise(stages)):
            raise RecipeError(f"the stages of a curriculum must become more difficult one by one, not {given!r:.100}")
        total = sum(count for _, count in stages)
        if total >= epochs:
            raise RecipeError(
                f"the stages of the curriculum take {total} epochs, which leaves none of epochs={epochs} for all "
                "examples; choose more epochs, shorter stages, or none (curriculum=0)"
            )
        return stages
    if not _is_whole(given):
        raise RecipeError(f"curriculum must be a whole number or pairs such as [[5, 20], [10, 2]], not {given!r:.100}")
    if given < 0:
        raise RecipeError(f"curriculum must be 0 or more, not {given}")
    if given > epochs:
        raise RecipeError(f"curriculum must be at most epochs, which is {epochs}, not {given}")
    return int(given)


def _is_whole(given: Any) -> bool:
    return isinstance(given, numbers.Integral) and not isinstance(given, bool)


def _within(name: str, declared: str, value: Any) -> Any:
    """Return ``value`` as a plain number of the declared type (``"int | None"``) within its limits, or raise."""
    type_name, _, optional = declared.partition(" | ")
    if value is None and optional:
        return None
    least, below, wanted = _LIMITS.get(name, (0, _INFINITY, "0 or more"))
    kind = numbers.Integral if type_name == "int" else numbers.Real
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kind):
        number = "a whole number" if type_name == "int" else "a number"
        raise RecipeError(f"{name} must be {number}{' or None' if optional else ''}, not {value!r:.100}")
    plain: float = int(value) if isinstance(value, numbers.Integral) and type_name == "int" else float(value)
    if not least <= plain < below:
        raise RecipeError(f"{name} must be {wanted}, not {value}")
    return plain
