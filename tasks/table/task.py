"""Classes, numbers or several labels for the trees of a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, TaskData, label_numbers, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError, quoted
from treemem.metrics.score import LOSS, Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig, every_network
from treemem.nn import ClassifierHead, RegressionHead
from treemem.task import Answer, ClassificationTask, Task
from treemem.tasks.table.cells import ClassName, class_numbers
from treemem.tasks.table.data import Table, TableDataOptions, TableRecords, TextForm, divided, read_table
from treemem.trees.forest import Forest
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import KindsBy, Vocabulary

UNBALANCED = 0.8
"""The share of the most frequent class from which on the loss chooses the best epoch."""

_logger = logging.getLogger(__name__)

_MOST_RELATIVE_OFFSET = 1e5
"""How many times as large as its deviation the mean of a target may be: float32 has seven digits."""


@dataclass(frozen=True)
class TableTask(Task):
    """A task whose examples are the rows of a table.

    Pass ``path``, or make the task with :func:`task_from_table`. The labels, the classes and the scale of numbers come
    from the whole table. A checkpoint stores them.

    Args:
        path: the table, a file in CSV, JSONL, Parquet or text.
        tree: the column of the trees.
        target: the columns to predict.
        text: the form of the trees in texts: ``"brackets"`` such as ``(f x y)``, ``"unlabelled"`` brackets such as
            ``( ( a b ) c )``, ``"json"``, ``"expression"``, ``"equation"``, ``"preorder"``, ``"listops"`` or
            ``"logic"``. ``"labelled"``: as ``"brackets"``, for texts that look unlabelled and are not.
        number: label of leaves that keep numbers as values; by default numbers are labels.
        unknown: a leaf, such as ``"<unk>"``, that replaces unknown leaves; None: an unknown leaf is an error. The
            vector of this leaf is not trained, so do not trust predictions with it.
        kinds: ``"label"``: inner nodes of the same label and arity share parameters. ``"arity"``: all inner nodes of
            the same arity do, and read the embeddings of their labels; with ``unknown``, unknown functions are then
            accepted too.
        classes: names of the classes, in order; by default those of the table.
        mean, scale: mean and scale of each target of a regression; by default those of the rows that the table has for
            training, or of all rows if it has no column ``split``.
        table: the rows, if they are not in a file: a DataFrame or a list of dictionaries.
    """

    version: ClassVar[str] = "1"
    group: ClassVar[str] = "height"
    networks: ClassVar[Mapping[str, NetworkConfig]] = every_network(64)
    data_options: ClassVar[type] = TableDataOptions
    file_options: ClassVar[frozenset[str]] = frozenset({"path", "table"})
    reads_roots_only: ClassVar[bool] = True
    token_form: ClassVar[TokenForm] = "brackets"

    path: str | None = None
    tree: str = "tree"
    target: tuple[str, ...] = ("target",)
    text: TextForm = "brackets"
    number: str | None = None
    unknown: str | None = None
    kinds: KindsBy = "label"
    classes: tuple[ClassName, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    table: Any = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("target", "classes", "mean", "scale"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        source = self.path if self.table is None else self.table
        if source is not None and not isinstance(source, Table):
            object.__setattr__(self, "table", read_table(source, self.reader, self.target, for_training=True))
        if self.table is not None:
            self._describe(self.table)

    def _describe(self, table: Table) -> None:
        """Set the options that the table decides."""

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain data, without the table and its place."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in super().options.items()}

    @property
    def vocabulary(self) -> Vocabulary:
        """The labels of the table.

        Raises:
            RecipeError: the task has no table.
        """
        forest = self._rows().forest
        return Vocabulary.from_forest(forest, kinds=self.kinds, number=self.number, unknown=self.unknown)

    def _rows(self) -> Table:
        if self.table is None:
            raise RecipeError(f"{self.name} has no table; give its file with task_options.path=FILE")
        table: Table = self.table
        return table

    @property
    def reader(self) -> TableRecords:
        return TableRecords(self.tree, self.text, self.number, self.target)

    def parse(self, text: str) -> Tree:
        return self.reader.parse(text)

    def make_data(self, options: TableDataOptions, *, progress: bool | None = None) -> TaskData:
        table = self._rows()
        tree_data = {"label": self._targets(table), "split": divided(table, options)}
        columns = ", ".join(self.target)
        card = f"{len(table.forest)} rows of {self.path or 'a table'}: {self.tree} -> {columns}\n"
        return self._labelled(table.forest.with_data(tree_data=tree_data), card)

    def _labelled(self, data: Forest, card: str) -> TaskData:
        """Return the rows with a target.

        Raises:
            RecipeError: no row has one.
        """
        known = self.examples(data).labelled
        if known.all():
            return TaskData(data, card)
        if not known.any():
            raise RecipeError(f"no row has a value in {quoted(self.target)}")
        return TaskData(data[np.flatnonzero(known)], f"{card}{(~known).sum()} rows without a target are left out.\n")

    def validation_record(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the mean loss."""
        return {"validation_loss": float(self.loss(kept, {"label": torch.from_numpy(targets["label"])}).mean)}

    def read_examples(self, source: Any, *, format: str | None = None) -> Forest:
        """Return the labelled examples of another table with the same columns."""
        table = read_table(source, self.reader, self.target, format)
        split = {} if table.split is None else {"split": table.split}
        return table.forest.with_data(tree_data={"label": self._targets(table), **split})

    def _targets(self, table: Table) -> NDArray[Any]:
        """Return the targets as the loss reads them, ``[rows]`` or ``[rows, targets]``; -1 or NaN if not known."""
        return np.stack([table.numbers(column, name) for column, name in enumerate(self.target)], axis=1)

    def examples(self, data: Forest) -> Examples:
        target = self._checked_targets(data)
        known = target >= 0 if target.ndim == 1 else ~np.isnan(target).any(1)
        group = self.groups(data, data.tree_data).group
        return Examples(data, 1, {"label": target}, group, known, split_numbers(data.tree_data.get("split")))

    def _checked_targets(self, data: Forest) -> NDArray[Any]:
        """Return the targets of a forest; -1 or NaN if it has none.

        Raises:
            RecipeError: they are not numbers, or not as many as the task predicts.
        """
        shape = (len(data), len(self.target))
        label = data.tree_data.get("label", np.full(shape, np.nan))
        label = label[:, None] if label.ndim == 1 else label
        if label.shape != shape or label.dtype.kind not in "iufb":
            wanted = "a number" if shape[1] == 1 else f"{shape[1]} numbers"
            raise RecipeError(f'labels (tree_data["label"]) must be {wanted} for each tree')
        return label.astype(np.float64)


class TableClasses(TableTask, ClassificationTask):
    """A class for each tree of a table."""

    name: ClassVar[str] = "table_classes"

    def _describe(self, table: Table) -> None:
        if len(self.target) != 1:
            raise RecipeError(f"a class is one column, not {len(self.target)}")
        if self.classes:
            return
        classes = table.classes(table.targets[0], self.target[0])
        if len(classes) == 1:
            raise RecipeError(
                f"{self.target[0]} has one class, {classes[0]!r}, so there is nothing to learn; give rows of another "
                "class, or name all classes with classes=[...]"
            )
        object.__setattr__(self, "classes", classes)

    @property
    def class_names(self) -> tuple[ClassName, ...]:
        return self.classes

    def _targets(self, table: Table) -> NDArray[Any]:
        return np.array(class_numbers(self.classes, table.targets[0], table.place), np.int64)

    def training_monitor(self, examples: Any, chosen: NDArray[np.int64]) -> Monitor:
        """Return the validation loss if most of the training examples have one class, else the accuracy."""
        counts = np.bincount(examples.targets["label"][chosen], minlength=len(self.classes))
        share = counts.max() / counts.sum()
        if share < UNBALANCED:
            return self.monitor
        _logger.info(
            "%.0f %% of the training examples have the class %s, so the validation loss chooses the best epoch "
            "(training.monitor names another metric)",
            100 * share,
            self.classes[int(counts.argmax())],
        )
        return LOSS

    def _checked_targets(self, data: Forest) -> NDArray[Any]:
        meaning = f"numbers of the classes {quoted(self.classes)}, from 0, or -1 (unknown)"
        return label_numbers(data.tree_data.get("label"), len(data), len(self.classes), meaning)


class TableRegression(TableTask):
    """One or more numbers for each tree of a table; the loss is the mean squared error of standardised targets."""

    name: ClassVar[str] = "table_regression"
    monitor: ClassVar[Monitor] = Monitor("rmse", "min", percent=False)

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.target

    def _describe(self, table: Table) -> None:
        numbers = self._targets(table)
        numbers = numbers if table.split is None else numbers[table.split == "train"]
        numbers = numbers[~np.isnan(numbers).any(1)]
        if not len(numbers):
            return
        scale = numbers.std(0)
        for name, middle, spread in zip(self.target, np.abs(numbers.mean(0)).tolist(), scale.tolist(), strict=True):
            if middle > _MOST_RELATIVE_OFFSET * spread > 0:
                raise RecipeError(
                    f"the numbers of {name!r} are about {middle:g} and vary by {spread:g}, which float32 cannot tell "
                    "apart; subtract a constant from the column"
                )
        for name, computed in (("mean", numbers.mean(0)), ("scale", np.where(scale > 0, scale, 1.0))):
            if not getattr(self, name):
                object.__setattr__(self, name, tuple(computed.tolist()))

    def head(self, hidden_size: int) -> nn.Module:
        return RegressionHead(hidden_size, len(self.target), mean=self.mean, scale=self.scale)

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        scale = torch.tensor(self.scale, dtype=outputs.dtype, device=outputs.device)
        error = (outputs - targets["label"].to(outputs)) / scale
        return SumCount(error.square().mean(1).sum(), float(len(outputs)))

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return RMSE, MAE and R^2 by group; means over the targets, and of several targets RMSE of each."""
        predicted, right = kept.double().numpy(), targets["label"]

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            error = predicted[chosen] - right[chosen]
            rmse = np.sqrt(np.square(error).mean(0))
            spread = right[chosen].var(0)
            explained = 1 - np.square(error).mean(0) / np.where(spread > 0, spread, np.nan)
            r2 = None if np.isnan(explained).any() else float(explained.mean())
            by_target = {f"rmse {name}": float(value) for name, value in zip(self.target, rmse, strict=True)}
            return {
                "rmse": float(rmse.mean()),
                "mae": float(np.abs(error).mean()),
                "r2": r2,
                **(by_target if len(by_target) > 1 else {}),
            }

        return scores_by_group(group, metrics)

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the number, or the list of numbers, of each example."""
        rows = kept.double().tolist()
        is_number = kept.isfinite().all(1).tolist()
        values = [row[0] if len(row) == 1 else row for row in rows]
        return [Answer(value if good else None, None) for value, good in zip(values, is_number, strict=True)]

    def known_answers(self, examples: Examples) -> list[Any]:
        rows = examples.targets["label"].tolist()
        values = [row[0] if len(row) == 1 else row for row in rows]
        return [value if known else None for value, known in zip(values, examples.labelled.tolist(), strict=True)]

    def predicted(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0) -> Any:
        """Return the numbers, ``[examples]``, or ``[examples, targets]`` of several."""
        numbers = kept.double().numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers


class TableLabels(TableTask):
    """Any number of labels for each tree of a table: a yes or no in each of several columns."""

    name: ClassVar[str] = "table_labels"
    monitor: ClassVar[Monitor] = Monitor("f1")
    has_threshold: ClassVar[bool] = True

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.target

    def _describe(self, table: Table) -> None:
        numbers = self._targets(table)
        if not np.isin(numbers[~np.isnan(numbers)], (0, 1)).all():
            raise RecipeError(f"labels are 1 or 0 in each of the columns {quoted(self.target)}")

    def head(self, hidden_size: int) -> nn.Module:
        return ClassifierHead(hidden_size, len(self.target))

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        loss = functional.binary_cross_entropy_with_logits(outputs, targets["label"].to(outputs), reduction="none")
        return SumCount(loss.mean(1).sum(), float(len(outputs)))

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return the mean F1 of the labels, the share of examples with all labels correct, and F1 of each label."""
        predicted, right = (kept > 0).numpy(), targets["label"] > 0

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            both = (predicted & right)[chosen].sum(0)
            either = predicted[chosen].sum(0) + right[chosen].sum(0)
            f1 = np.where(either > 0, 2 * both / np.maximum(either, 1), 1.0)
            by_label = {f"f1 {name}": float(value) for name, value in zip(self.target, f1, strict=True)}
            return {"f1": float(f1.mean()), "accuracy": float((predicted == right)[chosen].all(1).mean()), **by_label}

        return scores_by_group(group, metrics)

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the names of the labels whose probability is above the threshold."""
        rows = self.predicted(kept, targets).tolist()
        return [
            Answer([name for name, chance in zip(self.target, row, strict=True) if chance > threshold], None)
            for row in rows
        ]

    def known_answers(self, examples: Examples) -> list[Any]:
        rows = zip(examples.targets["label"].tolist(), examples.labelled.tolist(), strict=True)
        return [
            [name for name, is_so in zip(self.target, row, strict=True) if is_so] if known else None
            for row, known in rows
        ]

    def predicted(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0) -> Any:
        """Return the probability of each label, ``[examples, labels]``."""
        return kept.double().sigmoid().numpy()
