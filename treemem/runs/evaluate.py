"""Scoring a trained model on examples."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.data.examples import DataSet, forest_of
from treemem.data.loader import BatchOptions
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.nn.row_cache import RowCache
from treemem.ops import announced_run
from treemem.ops.threads import torch_threads
from treemem.runs.progress import progress_bar
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a model said about some examples, and how well it did.

    Attributes:
        scores: one for each group, the last one for all examples.
        chosen: int64, numbers of the examples in the data.
        predicted: in the order of ``chosen``: probabilities of a classification task, else a list of predictions.
        correct: bool, which examples are answered correctly, in the same order; None if the task does not say.
        labels: bool, whether the answer is yes, in the same order; None unless answers are yes or no.
        seconds: what scoring took: finding equal subtrees, making the batches, running the network.
        loader_seconds: of these, the wait for batches.
        num_trees: trees that were run; two for each equation.
        cache: rows that were shared across batches, with their hits; None without a cache.
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

    @property
    def overall(self) -> Score:
        """The score for all examples."""
        return self.scores[-1]

    @property
    def trees_per_second(self) -> float:
        """Trees scored in a second."""
        return self.num_trees / self.seconds

    @property
    def examples_per_second(self) -> float:
        """Examples scored in a second."""
        return len(self.chosen) / self.seconds

    @property
    def network_trees_per_second(self) -> float:
        """Trees scored in a second by the network alone, its batches being there."""
        return self.num_trees / (self.seconds - self.loader_seconds)

    @property
    def loader_share(self) -> float:
        """The part of the time that the network waited for batches; a fraction."""
        return self.loader_seconds / self.seconds


def evaluate(
    model: Model,
    data: Forest | DataSet,
    *,
    split: str | None = None,
    batch_size: int = 1024,
    sort_by_height: bool = False,
    prefetch: int = 0,
    cache_bytes: int | None = None,
    threads: int | None = 1,
    progress: bool | None = None,
    title: str = "",
) -> Evaluation:
    """Score a model on labelled data, by group (the depth of an equation) and overall.

    Where the network makes an example depend on the others of its batch, examples of similar length run together, as in
    the published tests of the Ordered Memory on list operations.

    Args:
        model: the model.
        data: trees of the model's task with their labels.
        split: ``"train"``, ``"validation"`` or ``"test"``; all of the data by default.
        batch_size: examples that run together.
        sort_by_height: whether examples of similar height run together; not where those of similar length do.
        prefetch: how many batches a thread makes ahead of their use.
        cache_bytes: share equal subtrees across batches too, through a :class:`treemem.nn.RowCache` of so many bytes,
            which makes its batches when they are needed; None: within batches only.
        threads: of torch on the CPU; None: as many as torch was told to use.
        progress: show a progress bar; by default on a terminal only.
        title: what is scored, for the log: a network and a file, say.

    Raises:
        RecipeError: no such split, no example in it, or examples without labels.
        VocabularyError: a label that the model does not know.
        CellError: the network's outputs are not numbers, as after a training that diverged.
    """
    examples = model.task.examples(forest_of(data))
    chosen = examples.scorable_part(split)
    targets = examples.targets_of(chosen)
    nodes = examples.forest.num_nodes * len(chosen) // len(examples)
    shown = progress_bar(len(chosen), "scoring", progress)
    with shown as bar, torch_threads(threads), announced_run(nodes):
        begin = time.perf_counter()
        options = BatchOptions(batch_size, sort_by_height=sort_by_height, prefetch=prefetch)
        loader = model.loader(examples, chosen, options)
        cache = None
        if cache_bytes is not None:
            cache = RowCache(model.encoder, examples.index(model.vocabulary), max_bytes=cache_bytes)
        loader.seconds = time.perf_counter() - begin
        kept = model.outputs_of(examples, loader, cache=cache, advance=bar.update)
        seconds = time.perf_counter() - begin
    task = model.task
    predicted = task.predicted(kept, targets, temperature=model.temperature)
    is_binary = isinstance(predicted, np.ndarray) and predicted.ndim == 1
    scores = task.scores(kept, targets, loader.group)
    evaluation = Evaluation(
        scores,
        chosen,
        predicted,
        task.correct(kept, targets),
        targets["label"] == 1 if is_binary else None,
        seconds,
        loader.seconds,
        len(chosen) * examples.trees_per_example,
        cache,
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
