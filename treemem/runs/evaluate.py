"""Score a trained model on examples."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.batch_graphs import GraphedModel, check_graphs
from treemem.data.examples import DataSet, forest_of
from treemem.data.loader import BatchOptions
from treemem.errors import RecipeError
from treemem.metrics.class_report import ClassReport
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.native.threads import torch_threads
from treemem.networks.trees.row_cache import RowCache
from treemem.progress_bar import progress_bar
from treemem.task import ClassificationTask
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions and scores of a model on some examples.

    Attributes:
        scores: one for each group, last for all examples.
        chosen: int64, numbers of the examples in the data.
        predicted: in the order of ``chosen``: probabilities for classification, else a list of predictions.
        correct: bool, which examples are correct, in this order; None if the task does not say.
        labels: bool, the labels of a binary task, in this order; else None.
        seconds: time of scoring, batches included.
        loader_seconds: the part of it spent waiting for batches.
        num_trees: number of trees; two for each equation.
        cache: the cache of rows shared across batches, if any.
        make_report: makes :attr:`report`.
    """

    scores: list[Score]
    chosen: NDArray[np.int64]
    predicted: Any
    correct: NDArray[np.bool_] | None
    labels: NDArray[np.bool_] | None
    seconds: float
    loader_seconds: float
    num_trees: int
    cache: RowCache | None = None
    make_report: Callable[[], ClassReport | None] = lambda: None

    @cached_property
    def report(self) -> ClassReport | None:
        """The metrics of each class or label; None for a task without names of classes."""
        return self.make_report()

    @property
    def overall(self) -> Score:
        """The score for all examples."""
        return self.scores[-1]

    @property
    def trees_per_second(self) -> float:
        """Trees scored per second."""
        return self.num_trees / self.seconds

    @property
    def network_trees_per_second(self) -> float:
        """Trees scored per second without the time for making batches."""
        return self.num_trees / (self.seconds - self.loader_seconds)


def evaluate(
    model: Model,
    data: Forest | DataSet,
    *,
    split: str | None = None,
    batch_size: int = 1024,
    prefetch: int = 0,
    cache_bytes: int | None = None,
    cuda_graphs: bool = False,
    threshold: float | None = None,
    threads: int | None = 1,
    progress: bool | None = None,
    title: str = "",
) -> Evaluation:
    """Score a model on labelled data, by group (the depth of an equation) and overall.

    Examples of similar height or length, which the network's ``sort_key`` names, run together. A few networks depend on
    the other examples of the batch; Ordered Memory on ListOps is published so.

    Args:
        model: the model.
        data: labelled trees of the model's task.
        split: ``"train"``, ``"validation"`` or ``"test"``; None for all of the data.
        batch_size: examples in a batch.
        prefetch: batches that a thread makes ahead.
        cache_bytes: share equal subtrees across batches through a :class:`treemem.nn.RowCache` of this size; None: only
            within batches.
        cuda_graphs: run the batches as CUDA graphs, as ``training.cuda_graphs`` does.
        threshold: the probability above which the answer is the second one of two classes, or a label, in scores and
            report; None: that of the model (:attr:`treemem.runs.TrainingOptions.threshold`).
        threads: torch threads on the CPU; None: as torch is set.
        progress: show a progress bar; None: only on a terminal.
        title: for the log.

    Raises:
        RecipeError: no such split, no example in it, or examples without labels; a model that cannot run as CUDA
            graphs, or a cache beside them; a threshold that has no effect on the task.
        VocabularyError: a label that the model does not know.
        CellError: the network's outputs are not finite.
    """
    examples = model.task.examples(forest_of(data))
    chosen = examples.scorable_part(split)
    targets = examples.targets_of(chosen)
    run = None
    if cuda_graphs:
        if cache_bytes is not None:
            raise RecipeError("cuda_graphs and cache_bytes are two ways to run a model; choose one")
        check_graphs(model, examples, model.device, "cuda_graphs")
        run = GraphedModel(model)
    shown = progress_bar(len(chosen), "scoring", progress)
    with shown as bar, torch_threads(threads):
        begin = time.perf_counter()
        options = BatchOptions(batch_size, prefetch=prefetch)
        loader = model.loader(examples, chosen, options)
        cache = None
        if cache_bytes is not None:
            cache = RowCache(model.encoder, examples.index(model.vocabulary), max_bytes=cache_bytes)
        loader.seconds = time.perf_counter() - begin
        kept = model.outputs_of(examples, loader, cache=cache, advance=bar.update, run=run)
        seconds = time.perf_counter() - begin
    task = model.task
    predicted = task.predicted(kept, targets, temperature=model.temperature)
    is_binary = isinstance(task, ClassificationTask) and predicted.ndim == 1
    threshold = model.threshold if threshold is None else threshold
    scored = kept if threshold is None else task.at_threshold(kept, threshold, temperature=model.temperature)
    scores = task.scores(scored, targets, loader.group)
    evaluation = Evaluation(
        scores,
        chosen,
        predicted,
        task.correct(scored, targets),
        targets["label"] == 1 if is_binary else None,
        seconds,
        loader.seconds,
        len(chosen) * examples.trees_per_example,
        cache,
        partial(task.report, scored, targets, threshold=0.5 if threshold is None else threshold),
    )
    _logger.info(
        "%sscored %d examples: %s %.4f; %.0f trees/s, %.0f trees/s without making the batches",
        f"{title}: " if title else "",
        len(chosen),
        task.monitor.metric,
        scores[-1].metrics[task.monitor.metric],
        evaluation.trees_per_second,
        evaluation.network_trees_per_second,
    )
    if cache is not None:
        _logger.info("%s", cache)
    return evaluation
