"""Options of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from treemem.checked_options import Count, Natural, NonNegative, Positive, Range, check_fields
from treemem.errors import RecipeError
from treemem.metrics.threshold import ThresholdMetric

Curriculum = int | tuple[tuple[int, int], ...]
"""A number of epochs until all groups are in, or stages: pairs of a difficulty and a number of epochs."""


_BELOW_1 = math.nextafter(1, 0)
Below1 = Annotated[float, Range(0, _BELOW_1, "from 0 to below 1")]
Within1 = Annotated[float, Range(5e-324, _BELOW_1, "above 0 and below 1")]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training run.

    Attributes:
        epochs: passes over the training examples, unless there is a ``budget``.
        batch_size: examples in a step, over all processes together.
        nodes_per_batch: the most nodes in a step, instead of ``batch_size``; equal subtrees count each time.
        sort_by_height, sort_by_length: make batches of examples of similar height or number of tokens; see
            :class:`treemem.schedule.TreeLoader`.
        optimizer: ``"adam"`` (Kingma & Ba 2015), ``"adamw"`` (decoupled weight decay, Loshchilov & Hutter 2019),
            ``"muon"`` (Jordan et al. 2024; for the matrices of the network's maps and cells, with a momentum of 0.95;
            AdamW for the other weights), ``"rmsprop"`` (torch's, whose ``alpha`` is ``beta2``; it has no ``beta1``) or
            ``"sgd"`` without momentum.
        learning_rate: the highest learning rate.
        beta1, beta2, epsilon: of Adam and AdamW; with ``"muon"`` they are for the weights that AdamW trains.
        schedule: ``"constant"``; ``"cosine"`` or ``"linear"``, which fall to 0 over the whole run, so that ``epochs``
            is fixed when a run is resumed; or ``"plateau"`` (torch's ``ReduceLROnPlateau`` on the monitored metric).
        plateau_factor, plateau_patience: after more than ``plateau_patience`` evaluations in a row without a better
            value, multiply the rate by ``plateau_factor``.
        warmup: fraction of all steps over which the rate rises linearly from 0. Not with ``"plateau"``. It fixes
            ``epochs`` too.
        auxiliary_losses: weights of auxiliary losses by name, such as ``{"ponder": 0.01}``; by default those of the
            network and of the head, most often 0.
        weight_decay: an L2 penalty on all parameters, decoupled with ``"adamw"`` and ``"muon"``. Decoupled, it is
            multiplied by the learning rate, so useful values are larger; torch's Muon has 0.1.
        averaging: decay of an EMA of the weights (Tarvainen & Valpola 2017), at most ``(1 + t) / (10 + t)`` after t
            steps. The averaged weights are evaluated and saved. None: no EMA.
        average_after: average the weights as NT-ASGD does (Merity et al. 2018): after an evaluation that is worse than
            the best of all but the ``average_after`` evaluations before it, the mean of the weights after each further
            step is evaluated and saved (torch's ``ASGD`` leaves out the first of them). None: never.
        average_again: the epoch after which that mean begins anew, if it has begun.
        curriculum: a number of epochs over which the groups (for equations: depths) come in, the lowest first: with m
            groups, epoch e (from 0) trains on the lowest ceil(m * (e + 1) / ``curriculum``). Or stages: ``[[5, 20],
            [10, 2]]`` trains 20 epochs on examples of difficulty 5 at most, 2 epochs on 10 at most, then on all.
            Difficulty is the number of tokens in ListOps, the group elsewhere. 0: all examples from the start.
        seed: of the weights, the order of the examples and dropout.
        clip: the largest norm of a gradient; longer ones are scaled down. None: no limit.
        patience: stop after this many evaluations without a better value. None: never.
        monitor: the validation metric that chooses the best epoch, such as ``"loss"`` or ``"f1"``. Of equally good
            epochs, the one with the lowest loss is the best. None: that of the task.
        threshold: the probability above which the best model says yes: of two classes the second one, of labels each
            one. ``"f1"`` or ``"balanced accuracy"``: the one with the highest such metric on the validation examples,
            at the temperature of the model; or a number. The model keeps it: evaluation and prediction use it.
            The scores of epochs are those at 0.5. None: 0.5.
        budget: seconds of computing for all training steps, so that networks of any speed get the same: CPU seconds of
            the process on a CPU, seconds of the clock on a GPU. They include the making of batches, not validation. An
            epoch is then one of ``epochs`` equal parts of the budget; pass follows pass over the examples, and a
            schedule falls with the spent part. The number of steps depends on the machine, so a second run with the
            same seed may give other numbers. None: no budget.
        share_subtrees: compute equal subtrees of a batch once. Results are the same except for rounding; with dropout,
            equal subtrees drop the same units.
        evaluate_every: epochs between two evaluations on the validation examples. The last epoch is always evaluated.
        evaluation_batch_size: examples in a batch of evaluation.
        prefetch: batches that a thread makes ahead. Rarely pays on a CPU.
        checkpoint_seconds, checkpoint_steps: write a checkpoint within an epoch after this many seconds or steps.
        keep_epochs: keep the model of each epoch too, ``RUN/epochs/000003`` of the third. ``treemem.load`` loads it.
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        threads: torch threads on the CPU, in each process. A fixed number makes results independent of the machine's
            number of cores. None: as many as torch is set to, which pays for batches of thousands.
        precision: as in lightning-fabric: ``"32-true"``, ``"64-true"``, ``"bf16-mixed"``.
        matmul_precision: of products of float32 matrices in training and validation, as for
            :func:`torch.set_float32_matmul_precision`. ``"highest"``: that of float32. ``"high"``: 16 bits on
            processors with AMX, TF32 (11 bits) on GPUs. ``"medium"``: 8 bits on processors with AMX. Weights, states
            and sums stay in float32. None: as torch is set.
        cuda_graphs: on CUDA, run forward and backward passes of training, and validation, as CUDA graphs
            (:class:`treemem.ops.CapturedStep`); for tree networks, some sequence networks, and language models.
            Sequences are padded by up to a quarter, so dropout draws other numbers. It has not run on a GPU yet.
        tensorboard: write TensorBoard event files beside the log, in the folder ``tensorboard``.
        wandb: name of a project of Weights & Biases to log to; a resumed run is another run there. None: do not log.

    Raises:
        RecipeError: a value has the wrong type or range.
    """

    epochs: Count = 30
    batch_size: Count = 256
    nodes_per_batch: Count | None = None
    sort_by_height: bool = False
    sort_by_length: bool = False
    optimizer: Literal["adam", "adamw", "muon", "rmsprop", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    beta1: Below1 = 0.9
    beta2: Below1 = 0.999
    epsilon: Positive = 1e-8
    schedule: Literal["constant", "cosine", "linear", "plateau"] = "constant"
    plateau_factor: Within1 = 0.5
    plateau_patience: Natural = 2
    warmup: Below1 = 0.0
    auxiliary_losses: dict[str, NonNegative] = field(default_factory=dict)
    weight_decay: NonNegative = 1e-5
    averaging: Within1 | None = None
    average_after: Count | None = None
    average_again: Count | None = None
    curriculum: Curriculum = 0
    seed: Annotated[int, Range(0, 2**63 - 1, "from 0 to 2^63 - 1")] = 12093
    clip: Positive | None = None
    patience: Count | None = None
    monitor: str | None = None
    threshold: ThresholdMetric | float | None = None
    budget: Positive | None = None
    share_subtrees: bool = True
    evaluate_every: Count = 1
    evaluation_batch_size: Count = 1024
    prefetch: Natural = 0
    checkpoint_seconds: Positive | None = 300.0
    checkpoint_steps: Count | None = None
    keep_epochs: bool = False
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = 1
    precision: Literal["32-true", "64-true", "bf16-mixed"] = "32-true"
    matmul_precision: Literal["highest", "high", "medium"] | None = None
    cuda_graphs: bool = False
    tensorboard: bool = False
    wandb: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "curriculum", _checked_curriculum(self.curriculum, self.epochs))
        if self.averaging is not None and self.average_after is not None:
            raise RecipeError("averaging and average_after are two ways to average weights; choose one")
        if self.average_again is not None and self.average_after is None:
            raise RecipeError("average_again is for average_after, which is None")
        is_number = isinstance(self.threshold, (int, float)) and 0 < self.threshold < 1
        if self.threshold is not None and not is_number and self.threshold not in get_args(ThresholdMetric):
            names = " or ".join(f'"{name}"' for name in get_args(ThresholdMetric))
            raise RecipeError(f"threshold must be {names} or a number above 0 and below 1, not {self.threshold!r:.100}")
        if self.sort_by_height and self.sort_by_length:
            raise RecipeError("sort_by_height and sort_by_length contradict each other; choose one")
        if self.budget is not None and self.curriculum:
            raise RecipeError("a curriculum counts passes over the examples, and budget divides seconds; choose one")
        if self.cuda_graphs and self.nodes_per_batch is not None:
            raise RecipeError(
                "cuda_graphs needs batches of equally many examples, and nodes_per_batch makes others; set batch_size"
            )
        if self.schedule == "plateau" and self.warmup:
            raise RecipeError('warmup is for the other schedules; with "plateau" leave it at 0')

    @property
    def rate_varies(self) -> bool:
        """Whether the learning rate depends on how far the whole run is."""
        return self.schedule in ("cosine", "linear") or self.warmup > 0

    @property
    def epochs_are_fixed(self) -> bool:
        """Whether another number of epochs would have made other steps."""
        return self.rate_varies or self.budget is not None


def _checked_curriculum(given: Any, epochs: int) -> Curriculum:
    """Return a curriculum as an int or as stages in order of difficulty that leave at least one epoch for all."""
    if isinstance(given, (list, tuple)) and given:
        pairs = [list(stage) if isinstance(stage, (list, tuple)) else [] for stage in given]
        if any(len(pair) != 2 or not all(isinstance(part, int) for part in pair) or pair[1] < 1 for pair in pairs):
            raise RecipeError(
                "the stages of a curriculum must be pairs of a difficulty and a number of epochs, at least 1, such as "
                f"[[5, 20], [10, 2]], not {given!r:.100}"
            )
        stages = tuple((most, count) for most, count in pairs)
        if any(after[0] <= before[0] for before, after in pairwise(stages)):
            raise RecipeError(f"the stages of a curriculum must become more difficult one by one, not {given!r:.100}")
        total = sum(count for _, count in stages)
        if total >= epochs:
            raise RecipeError(
                f"the stages of the curriculum take {total} epochs, which leaves none of epochs={epochs} for all "
                "examples; choose more epochs, shorter stages, or none (curriculum=0)"
            )
        return stages
    if not isinstance(given, int):
        raise RecipeError(f"curriculum must be a whole number or pairs such as [[5, 20], [10, 2]], not {given!r:.100}")
    if given < 0:
        raise RecipeError(f"curriculum must be 0 or more, not {given}")
    if given > epochs:
        raise RecipeError(f"curriculum must be at most epochs, which is {epochs}, not {given}")
    return given
