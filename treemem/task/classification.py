"""Tasks whose answer is a class."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, label_numbers, split_numbers
from treemem.data.sum_count import SumCount
from treemem.heads import ClassifierHead
from treemem.metrics.accuracy import class_scores
from treemem.metrics.calibration import least_loss_temperature
from treemem.metrics.class_report import ClassReport, report_of_classes
from treemem.metrics.score import Score
from treemem.metrics.threshold import best_threshold, log_odds
from treemem.model_output import Answer
from treemem.records import Record, records_of_columns
from treemem.task.interface import Task, TreeData
from treemem.trees.forest import Forest
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import YES_OR_NO, class_number
from treemem.trees.tree import Node


class ClassificationTask(Task):
    """A task whose answer is yes or no, or one of several classes.

    The targets have ``"label"``: the number of the class, 1 and 0 for yes and no, -1 if it is not known. The defaults
    here are those of several classes: the head's outputs are logits ``[examples, classes]``.

    A subclass has at least a vocabulary, :attr:`class_names` and :meth:`make_data`. Then an example is a tree, and
    files have the fields ``tree`` and ``label``.

    Attributes:
        trees_per_example: 1, or 2 for pairs (:class:`~treemem.task.pairs.PairClassification`).
        label_fields: the fields that may name the class of a record; the first one is written.
        dropout: of the head.
    """

    reads_roots_only: ClassVar[bool] = True
    trees_per_example: ClassVar[int] = 1
    label_fields: ClassVar[tuple[str, ...]] = ("label",)
    dropout: float = 0.0

    @property
    def num_classes(self) -> int:
        """The number of classes, 2 for yes and no."""
        return 2 if self.class_names is None else len(self.class_names)

    @cached_property
    def class_numbers(self) -> Mapping[str, int]:
        """The number of the class that a text in a file names; of an empty one too."""
        if self.class_names is None:
            return YES_OR_NO
        return {"": -1, **{str(name): number for number, name in enumerate(self.class_names)}}

    def label_of(self, fields: Mapping[str, Any]) -> int | None:
        """Return the number of the class that a record names, -1 if it names none. None leaves the record out.

        Raises:
            ParseError: it names another class.
        """
        return class_number(fields, self.label_fields, self.class_numbers)

    def separated(self, data: Forest) -> tuple[Forest, TreeData]:
        """Return the trees of the examples, those of one adjacent, and what is known of each example."""
        return data, data.tree_data

    def examples(self, data: Forest) -> Examples:
        """Return the examples of a forest.

        Raises:
            RecipeError: an unknown label or split.
            GraphError: a tree is no example.
        """
        forest, known = self.separated(data)
        classes = "1 (yes), 0 (no)" if self.class_names is None else f"the number of a class below {self.num_classes}"
        meaning = f"{classes} or -1 (unknown) for each example"
        count = len(forest) // self.trees_per_example
        label = label_numbers(known.get("label"), count, self.num_classes, meaning)
        group, difficulty = self.groups(forest, known)
        split = split_numbers(known.get("split"))
        return Examples(
            forest, self.trees_per_example, {"label": label}, group, label >= 0, split, difficulty=difficulty
        )

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        return records_of_columns(self.columns_of(self.examples(data)))

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        """Return the columns of a file of examples, by their names."""
        trees = map(self.format, examples.forest)
        return {**self.label_column(examples), "tree": trees, **self.split_and_group(examples)}

    def label_column(self, examples: Examples) -> dict[str, Iterable[Any]]:
        """Return the column with the class of each example, None if it is not known."""
        names = (*(range(2) if self.class_names is None else self.class_names), None)
        return {self.label_fields[0]: [names[number] for number in examples.targets["label"].tolist()]}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the labelled examples of a file, as :meth:`Task.read_examples` does; their classes may be missing."""
        reader = self.reader

        def read(record: Record) -> tuple[list[Node], int] | None:
            label = self.label_of(record.fields)
            return None if label is None else (reader.read(record.fields), label)

        examples, known = read_labelled(source, reader, read, self.unit, format=format)
        nodes, labels = zip(*examples, strict=True)
        return Forest.from_nodes(nodes).with_data(tree_data={"label": np.array(labels, np.int64), **known})

    def head(self, hidden_size: int) -> nn.Module:
        """Return a classifier of encodings."""
        return ClassifierHead(hidden_size, self.num_classes, dropout=self.dropout)

    @property
    def has_threshold(self) -> bool:
        """Whether the answer is yes or no, or one of two classes, of which the second one has the threshold."""
        return self.class_names is None or len(self.class_names) == 2

    @property
    def scores_follow_threshold(self) -> bool:
        """Whether the answer is one of two and follows from the logits in the usual way."""
        return self.has_threshold and type(self).probabilities is ClassificationTask.probabilities

    def at_threshold(self, kept: Tensor, threshold: float, *, temperature: float = 1.0) -> Tensor:
        if not self.scores_follow_threshold:
            return super().at_threshold(kept, threshold, temperature=temperature)
        return kept.double() - torch.tensor([0.0, temperature * log_odds(threshold)], dtype=torch.float64)

    def best_threshold(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], metric: str, *, temperature: float = 1.0
    ) -> float:
        predicted = self.predicted(kept, targets, temperature=temperature)
        return best_threshold(predicted[:, 1:], targets["label"][:, None] == 1, metric)

    def report(self, kept: Any, targets: Mapping[str, NDArray[Any]], *, threshold: float = 0.5) -> ClassReport | None:
        """Return the metrics of each class; None for yes or no, and for outputs that are not logits of classes."""
        is_logits = isinstance(kept, Tensor) and kept.shape[1:] == (self.num_classes,)
        if self.class_names is None or not is_logits:
            return None
        ranks, given = kept.double().log_softmax(-1).numpy(), threshold if self.has_threshold else None
        return report_of_classes(self.class_names, kept.argmax(-1).numpy(), targets["label"], ranks, given)

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy."""
        return SumCount(functional.cross_entropy(outputs, targets["label"], reduction="sum"), float(len(outputs)))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the probability of each class ``[examples, classes]``, or of yes ``[examples]``."""
        return outputs.double().softmax(-1).numpy()

    def answer_scores(self, kept: Tensor) -> Tensor:
        """Return the log odds of each class, at temperature 1."""
        if kept.dim() == 1:
            return torch.stack([-kept, kept], 1)
        is_own = torch.eye(kept.shape[1], dtype=torch.bool, device=kept.device)
        others = kept[:, None, :].expand(-1, kept.shape[1], -1).masked_fill(is_own, -math.inf)
        return kept - others.logsumexp(2)

    def temperature_scaled(self, outputs: Tensor, temperature: float) -> Tensor:
        """Return outputs of less confidence (above 1) or more (below 1), and of the same answers.

        By default all outputs are divided. An output that is no logit must stay as it is.
        """
        return outputs / temperature

    def correct(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return which examples are classified correctly, ``[examples]``."""
        return outputs.argmax(-1).numpy() == targets["label"]

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return accuracy and majority by group and overall."""
        return class_scores(kept.argmax(-1).numpy(), targets["label"], group)

    def predicted(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the probabilities at a temperature."""
        scaled = kept if temperature == 1.0 else self.temperature_scaled(kept.double(), temperature)
        return self.probabilities(scaled, targets)

    def no_predictions(self) -> NDArray[np.float64]:
        is_of_yes = self.class_names is None and type(self).probabilities is not ClassificationTask.probabilities
        return np.empty(0 if is_of_yes else (0, self.num_classes))

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return 1 or 0 and the probability of yes; or the name of the likeliest class and its probability.

        Of two classes the answer is the second one if its probability is above the threshold, else the first one.
        """
        if not len(kept):
            return []
        predicted = self.predicted(kept, targets, temperature=temperature)
        names = self.class_names
        if predicted.ndim == 1:
            answers: list[Any] = (predicted > threshold).astype(np.int64).tolist()
            chances = predicted.tolist()
        else:
            is_bad = np.isnan(predicted).any(1)
            places = predicted[:, 1] > threshold if predicted.shape[1] == 2 else predicted.argmax(1)
            chosen = places.astype(np.int64)
            answers = [int(place) if names is None else names[place] for place in chosen.tolist()]
            chances = np.where(is_bad, np.nan, predicted[np.arange(len(predicted)), chosen]).tolist()
        pairs = zip(answers, chances, strict=True)
        return [Answer(None, None) if math.isnan(chance) else Answer(word, chance) for word, chance in pairs]

    def validation_record(self, kept: Tensor, targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the mean loss."""
        return {"validation_loss": float(self.loss(kept, _as_tensors(targets)).mean)}

    def fitted_temperature(self, kept: Tensor, targets: Mapping[str, NDArray[Any]]) -> float | None:
        """Return the temperature with the least loss; see :mod:`treemem.metrics.calibration`."""
        if not len(kept):
            return None
        tensors, outputs = _as_tensors(targets), kept.double()
        return least_loss_temperature(
            lambda temperature: float(self.loss(self.temperature_scaled(outputs, temperature), tensors).mean)
        )


def _as_tensors(targets: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in targets.items()}
