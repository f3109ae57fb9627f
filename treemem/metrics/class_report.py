"""How well classes and labels are told apart: confusion, precision, recall and F1, areas under curves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_SHOWN = 20
"""The largest number of classes whose confusion matrix is shown as a table."""


@dataclass(frozen=True, eq=False)
class ClassReport:
    """Metrics of each class of a classification, or of each of several labels.

    Without a prediction of a class its precision is 0; without an example its recall is 0; without either it has no
    F1.

    Attributes:
        names: of the classes or labels, in order.
        examples: how many there are of each, ``[classes]``.
        precision, recall, f1: of each, ``[classes]``; NaN for no F1.
        auc: area under the ROC curve of its probability against all other examples, ``[classes]``; NaN if all examples
            or none are of the class.
        average_precision: of its probability, ``[classes]``; NaN as ``auc``.
        confusion: the number of examples of class i that are predicted as class j, ``[classes, classes]``; None for
            labels.
        threshold: the probability above which the second of two classes, or a label, is predicted; None for more
            classes.
    """

    names: Sequence[Any]
    examples: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    auc: NDArray[np.float64]
    average_precision: NDArray[np.float64]
    confusion: NDArray[np.int64] | None
    threshold: float | None = None

    def as_record(self) -> dict[str, Any]:
        """Return the report as plain data, None for NaN."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()},
            **{name: [_known(value) for value in fields[name].tolist()] for name in ("f1", "auc", "average_precision")},
            "names": list(self.names),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ClassReport:
        """Return the report of :meth:`as_record`."""
        fields = dict(record)
        for name in ("precision", "recall", "f1", "auc", "average_precision"):
            fields[name] = np.array(fields[name], np.float64)  # None becomes NaN
        for name in ("examples", "confusion"):
            fields[name] = None if fields[name] is None else np.array(fields[name], np.int64)
        return cls(**fields)

    def rows(self) -> list[list[str]]:
        """Return the metrics of each class as the cells of a table; the first row is the head."""
        head = ["class" if self.confusion is not None else "label", "examples", "precision", "recall", "F1", "AUC"]
        columns = (self.precision, self.recall, self.f1, self.auc, self.average_precision)
        cells = [
            [str(name), str(count), *("" if math.isnan(value) else f"{100 * value:.2f}" for value in values)]
            for name, count, *values in zip(
                self.names, self.examples.tolist(), *map(np.ndarray.tolist, columns), strict=True
            )
        ]
        return [[*head, "average precision"], *cells]

    def confusion_rows(self) -> list[list[str]]:
        """Return the confusion matrix as the cells of a table; nothing for labels and for many classes."""
        if self.confusion is None or len(self.names) > _MOST_SHOWN:
            return []
        names = list(map(str, self.names))
        cells = [[name, *map(str, row)] for name, row in zip(names, self.confusion.tolist(), strict=True)]
        return [["true class", *(f"predicted {name}" for name in names)], *cells]


def mean_report(reports: Sequence[ClassReport]) -> ClassReport:
    """Return the mean of the metrics of runs on the same examples; the confusion matrix is the sum of theirs."""
    metrics = ("precision", "recall", "f1", "auc", "average_precision")
    confusions = [report.confusion for report in reports if report.confusion is not None]
    return dataclasses.replace(
        reports[0],
        **{name: np.mean([getattr(report, name) for report in reports], 0) for name in metrics},
        confusion=np.sum(confusions, 0) if confusions else None,
    )


def report_of_classes(
    names: Sequence[Any],
    predicted: NDArray[np.int64],
    actual: NDArray[np.int64],
    scores: NDArray[np.float64],
    threshold: float | None = None,
) -> ClassReport:
    """Return the report of a classification.

    Args:
        names: of the classes.
        predicted, actual: numbers of classes, ``[examples]``.
        scores: what ranks the examples for each class, such as its probability, ``[examples, classes]``.
        threshold: for the report.
    """
    is_class = np.eye(len(names), dtype=bool)
    report = report_of_labels(names, is_class[predicted], is_class[actual], scores, threshold)
    return dataclasses.replace(report, confusion=confusion_matrix(predicted, actual, len(names)))


def report_of_labels(
    names: Sequence[Any],
    predicted: NDArray[np.bool_],
    actual: NDArray[np.bool_],
    scores: NDArray[np.float64],
    threshold: float | None = None,
) -> ClassReport:
    """Return the report of several labels, of which an example has any number.

    Args:
        names: of the labels.
        predicted, actual: whether an example has a label, ``[examples, labels]``.
        scores: what ranks the examples for each label, ``[examples, labels]``.
        threshold: for the report.
    """
    examples, answered, correct = actual.sum(0), predicted.sum(0), (predicted & actual).sum(0)
    precision, recall = correct / np.maximum(answered, 1), correct / np.maximum(examples, 1)
    f1 = f1_scores(correct, answered, examples)
    return ClassReport(names, examples, precision, recall, f1, *_areas(actual, scores), None, threshold)


def f1_scores(
    correct: NDArray[np.int64], answered: NDArray[np.int64], examples: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the F1 of each class or label; NaN for one without a prediction and without an example.

    Args:
        correct: number of correct predictions of each, ``[classes]``.
        answered: number of its predictions, ``[classes]``.
        examples: number of its examples, ``[classes]``.
    """
    either = answered + examples
    return np.where(either > 0, 2 * correct / np.maximum(either, 1), np.nan)


def confusion_matrix(predicted: NDArray[np.int64], actual: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the number of examples of class i that are predicted as class j, ``[count, count]``."""
    return np.bincount(actual * count + predicted, minlength=count * count).reshape(count, count)


def class_metrics(
    predicted: NDArray[np.int64], actual: NDArray[np.int64], scores: NDArray[np.float64]
) -> dict[str, float | None]:
    """Return macro F1, balanced accuracy, AUC and average precision over all classes.

    Macro F1 is the mean F1 of all classes with an example or a prediction, balanced accuracy the mean recall of all
    classes with an example. AUC (area under the ROC curve) and average precision are those of the second of two
    classes, and of more classes the mean over each class against the others; None if no class has both.

    Args:
        predicted, actual: numbers of classes, ``[examples]``.
        scores: what ranks the examples for each class, ``[examples, classes]``.
    """
    count = scores.shape[1]
    confusion = confusion_matrix(predicted, actual, count)
    examples, answered, correct = confusion.sum(1), confusion.sum(0), confusion.diagonal()
    ranked = slice(1, 2) if count == 2 else slice(None)
    auc, average_precision = _areas(np.eye(count, dtype=bool)[actual][:, ranked], scores[:, ranked])
    return {
        "macro f1": mean_known(f1_scores(correct, answered, examples)),
        "balanced accuracy": float((correct / np.maximum(examples, 1))[examples > 0].mean()),
        "auc": mean_known(auc),
        "average precision": mean_known(average_precision),
    }


def label_metrics(actual: NDArray[np.bool_], scores: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the means of AUC and average precision over labels; None if no label has both values.

    Args:
        actual: whether an example has a label, ``[examples, labels]``.
        scores: what ranks the examples for each label, ``[examples, labels]``.
    """
    auc, average_precision = _areas(actual, scores)
    return {"auc": mean_known(auc), "average precision": mean_known(average_precision)}


def _areas(actual: NDArray[np.bool_], scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the areas under the ROC curves and the average precisions; NaN where all examples are alike.

    Args:
        actual: which examples are positive, ``[examples, classes]``.
        scores: larger for examples that are more probably positive, ``[examples, classes]``.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # imported here: it takes a second

    areas = np.full((2, actual.shape[1]), np.nan)
    for number in np.flatnonzero(actual.any(0) & ~actual.all(0)).tolist():
        of_class = actual[:, number], scores[:, number]
        areas[:, number] = roc_auc_score(*of_class), average_precision_score(*of_class)
    return areas[0], areas[1]


def mean_known(values: NDArray[np.float64]) -> float | None:
    """Return the mean of the values that are not NaN; None if all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
