"""What chooses the best epoch of a training, and the threshold of its model."""

from __future__ import annotations

import logging
from typing import Any

import torch
from numpy.typing import NDArray

from treemem.errors import RecipeError
from treemem.metrics.score import Monitor, monitor_of
from treemem.model import Model
from treemem.runs.options import TrainingOptions
from treemem.task import Task

_logger = logging.getLogger(__name__)
_FEW_EXAMPLES = 8
_FEW_ANSWERS = 3
"""A threshold is chosen on at least so many examples of each answer, or there is a warning."""


def chosen_monitor(
    model: Model, examples: Any, train_ids: NDArray[Any], validation_ids: NDArray[Any], options: TrainingOptions
) -> Monitor:
    """Return the metric that chooses the best epoch.

    Args:
        model: before its training.
        examples: the data set.
        train_ids, validation_ids: numbers of its examples.
        options: of the training.

    Raises:
        RecipeError: ``training.monitor`` is unknown or not defined for the validation examples, or there are none.
    """
    task, metric = model.task, options.monitor
    if metric is None:
        return task.training_monitor(examples, train_ids)
    if metric == task.monitor.metric:
        return task.monitor
    if not len(validation_ids):
        raise RecipeError("training.monitor needs validation examples, and these data have none")
    few = validation_ids[:_FEW_EXAMPLES]
    with torch.random.fork_rng(devices=[]):
        loader = model.loader(examples, few)
        kept = model.outputs_of(examples, loader, allow_nan=True)
    targets = examples.targets_of(few)
    reported = [name.removeprefix("validation_") for name in task.validation_record(kept, targets)]
    monitor = monitor_of(metric, dict.fromkeys([*task.scores(kept, targets, loader.group)[-1].metrics, *reported]))
    if isinstance(kept, torch.Tensor) and metric not in reported:  # the targets of all decide what is defined
        repeated = kept[torch.arange(len(validation_ids)) % len(kept)]
        scores = task.scores(repeated, examples.targets_of(validation_ids), examples.group[validation_ids])
        check_defined(monitor, scores[-1].metrics[metric])
    return monitor


def check_defined(monitor: Monitor, value: float | None) -> float:
    """Return the value of the monitored metric.

    Raises:
        RecipeError: it is None, since the validation examples do not define it.
    """
    if value is None:
        raise RecipeError(
            f"the validation examples have no {monitor.metric}, which chooses the best epoch, since their targets are "
            "all alike; choose another training.monitor, or other validation examples"
        )
    return value


def warn_of_few_answers(task: Task, label: NDArray[Any]) -> None:
    """Warn if the threshold is chosen on too few validation examples with one of the answers.

    Args:
        task: of two classes, yes or no, or labels.
        label: 0 or 1, ``[validation examples]`` or, of labels, ``[validation examples, labels]``.
    """
    num_examples = len(label)
    if label.ndim == 1:
        names = task.class_names or (0, 1)
        counts = [(f"the answer {name!r}", int((label == number).sum())) for number, name in enumerate(names)]
    else:
        ones = (label == 1).sum(0).tolist()
        named = list(zip(task.output_names or (), ones, strict=True))
        counts = [(f"the label {name!r}", count) for name, count in named]
        counts += [(f"no label {name!r}", num_examples - count) for name, count in named]
    few = [f"{count} with {name}" for name, count in counts if count < _FEW_ANSWERS]
    if few:
        _logger.warning(
            "the threshold is chosen on %d validation examples, %s: it may be far off for new examples; give more "
            "validation examples, data.stratified=true, or a threshold of your own",
            num_examples, ", ".join(few),
        )  # fmt: skip


def check_training_threshold(task: Task, options: TrainingOptions, num_validation: int) -> None:
    """Check that ``training.threshold`` has an effect, if the options have one.

    Raises:
        RecipeError: the task has no threshold that its scores follow, or there are no examples to choose one with.
    """
    if options.threshold is None:
        return
    task.check_threshold()
    if not task.scores_follow_threshold:
        raise RecipeError(f"training.threshold: the scores of {task.name} are those at 0.5; leave it out")
    if isinstance(options.threshold, str) and not num_validation:
        raise RecipeError("training.threshold needs validation examples, and these data have none; give a number")
