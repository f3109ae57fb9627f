"""Tasks of tables, and a class for each tree of a table."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treemem.checked_options import checked_choice
from treemem.data.examples import Examples, TaskData, label_numbers, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError, quoted, shown
from treemem.metrics.class_report import class_metrics
from treemem.metrics.score import LOSS, Monitor, Score, with_overall
from treemem.networks import NetworkConfig, every_network
from treemem.task import ClassificationTask, Task
from treemem.tasks.table.cells import ClassName, class_numbers
from treemem.tasks.table.data import (
    BadRows,
    Table,
    TableDataOptions,
    TableRecords,
    other_columns,
    read_table,
)
from treemem.tasks.table.splits import divided, rows_by_name, warn_of_rare_labels
from treemem.tasks.table.weights import WEIGHT, balanced_weights, class_weights, of_classes, row_weights
from treemem.trees.forest import Forest
from treemem.trees.formats.forms import TextForm
from treemem.trees.formats.record_reader import find_refused, in_one_line
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import KindsBy, Vocabulary

UNBALANCED = 0.8
"""The share of the most frequent class from which on the loss chooses the best epoch."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableTask(Task):
    """A task whose examples are the rows of a table.

    Pass ``path``, or make the task with :func:`task_from_table`. The labels, the classes and the scale of numbers come
    from the whole table. A checkpoint stores them.

    Args:
        path: the table, a file in CSV, JSONL, Parquet or text.
        tree: the column of the trees.
        target: the columns to predict.
        text: the form of the trees in texts, such as ``"brackets"`` for ``(f x y)``, ``"unlabelled"`` brackets such as
            ``( ( a b ) c )``, ``"json"``, ``"newick"`` or ``"conllu"``; the page "Your own trees" lists all.
            ``"labelled"``: as ``"brackets"``, for texts that look unlabelled and are not.
        number: label of leaves that keep numbers as values; by default numbers are labels.
        unknown: a leaf, such as ``"<unk>"``, that replaces unknown leaves; None: an unknown leaf is an error. The
            vector of this leaf is not trained, so do not trust predictions with it.
        kinds: ``"label"``: inner nodes of the same label and arity share parameters. ``"arity"``: all inner nodes of
            the same arity do, and read the embeddings of their labels; with ``unknown``, unknown functions are then
            accepted too.
        classes: names of the classes, in order; by default those of the table.
        mean, scale: mean and scale of each target of a regression; by default those of the rows that the table has for
            training, or of all rows if it has no column ``split``.
        weight: the column with the weight of each row in the loss, a number of 0 or more; None: all weigh the same.
        class_weight: the weight of each class in the loss: ``"balanced"`` (all classes weigh the same together, as in
            scikit-learn), a number for each class by its name (1 for the others), or a number for each in order. Of
            labels, the weight of the ones of each column. A row weighs its own weight times that of its class.
        on_error: ``"stop"``: raise the error of the first bad row. ``"skip"``: leave out bad rows; their errors are in
            ``make_data(...).bad_rows``, and beside a run in ``bad_rows.jsonl``.
        group_column: a column whose equal values stay in one split, such as that of the person who wrote the trees.
        table: the rows, if they are not in a file: a DataFrame or a list of dictionaries.
    """

    version: ClassVar[str] = "1"
    group: ClassVar[str] = "height"
    networks: ClassVar[Mapping[str, NetworkConfig]] = every_network(64)
    data_options: ClassVar[type] = TableDataOptions
    file_options: ClassVar[frozenset[str]] = frozenset({"path", "table", "on_error"})
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
    weight: str | None = None
    group_column: str | None = None
    on_error: Literal["stop", "skip"] = "stop"
    class_weight: str | Mapping[Any, float] | tuple[float, ...] | None = None
    table: Any = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        checked_choice("on_error", self.on_error, ("stop", "skip"))
        for name in ("target", "classes", "mean", "scale"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        source = self.path if self.table is None else self.table
        if source is not None and not isinstance(source, Table):
            skip, others = self.on_error == "skip", self._other_columns
            table = read_table(source, self.reader, self.target, others=others, for_training=True, skip=skip)
            object.__setattr__(self, "table", table)
        if self.table is not None:
            self._describe(self.table)
        if self.class_weight is not None:
            names = self._weighted_names
            balanced = None if self.table is None else self._balanced_weights(self.table)
            object.__setattr__(self, "class_weight", class_weights(self.class_weight, names, balanced))

    def _describe(self, table: Table) -> None:
        """Set the options that the table decides."""

    @property
    def _other_columns(self) -> tuple[str, ...]:
        return other_columns(weight=self.weight, group_column=self.group_column)

    @property
    def weights_of_classes(self) -> tuple[float, ...] | None:
        """The weight of each class, or of the ones of each label; None: all weigh the same."""
        weights = self.class_weight
        assert weights is None or isinstance(weights, tuple)
        return weights

    @property
    def _weighted_names(self) -> tuple[Any, ...]:
        """The names of what ``class_weight`` weighs.

        Raises:
            RecipeError: nothing.
        """
        raise RecipeError(f"class_weight is for classes and labels, and {self.name} has none; weight= weighs rows")

    def _balanced_weights(self, table: Table) -> NDArray[np.float64]:
        """Return the weights of ``"balanced"``: those of the training rows, as for ``mean`` and ``scale``."""
        raise NotImplementedError

    def _training_rows(self, table: Table, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the rows that the table has for training, or of all rows without a column ``split``."""
        return values if table.split is None else values[table.split == "train"]

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
        columns = ", ".join(self.target)
        group = None if self.group_column is None else table.others[self.group_column]
        split, about = divided(table, options, self._strata(table), group)
        warn_of_rare_labels(table.forest, split)
        data = self._with_targets(table, {"split": split})
        about += self._about_names(data)
        card = f"{len(table.forest)} rows of {self.path or 'a table'}: {self.tree} -> {columns}\n{about}"
        return self._good_rows(table, data, card)

    def _about_names(self, data: Forest) -> str:
        """Return how many rows each class or label has in each split, and warn of those that a split does not have."""
        return ""

    def _strata(self, table: Table) -> list[Any] | None:
        """Return what ``data.stratified`` divides alike, of each row; None for targets that are no classes."""
        return None

    def _good_rows(self, table: Table, data: Forest, card: str) -> TaskData:
        """Return the rows that have a target and are not bad.

        Args:
            table: the rows.
            data: their trees and targets.
            card: says what the data are; sentences on what is left out are added.

        Raises:
            RecipeError: there is no such row.
        """
        bad = table.bad_rows or BadRows()
        errors = [*bad.unread, *((table.rows[number], error) for number, error in bad.refused.items())]
        bad_rows = [  # the index of a frame may be dates
            {"id": row if isinstance(row, (int, str)) else str(row), "error": error} for row, error in errors
        ]
        if bad_rows:
            _logger.warning("rows left out: %d; the first: %s", len(bad_rows), bad_rows[0]["error"])
            card = f"{card}Bad rows left out: {len(bad_rows)}.\n"
        is_bad = np.isin(np.arange(len(table.rows)), list(bad.refused))
        known = self.examples(data).labelled
        if not (known & ~is_bad).any():
            first = f"; the first bad row: {bad_rows[0]['error']}" if bad_rows else ""
            raise RecipeError(f"no row has a value in {quoted(self.target)}{first}")
        if num_missing := int((~known & ~is_bad).sum()):
            card = f"{card}Rows without a target left out: {num_missing}.\n"
        chosen = np.flatnonzero(known & ~is_bad)
        return TaskData(data if len(chosen) == len(data) else data[chosen], card, bad_rows)

    def validation_record(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the mean loss."""
        tensors = {name: torch.from_numpy(array) for name, array in targets.items()}
        return {"validation_loss": float(self.loss(kept, tensors).mean)}

    def read_examples(self, source: Any, *, format: str | None = None) -> Forest:
        """Return the labelled examples of another table with the same columns; that of weights may be missing."""
        return self._read(source, format)[1]

    def read_good_examples(self, source: Any, vocabulary: Vocabulary, *, format: str | None = None) -> TaskData:
        table, data = self._read(source, format, skip=True)
        examples = self.examples(data)
        check = functools.partial(examples.check_vocabulary, vocabulary)
        for row, error in find_refused(len(examples), check).items():
            table.refuse(row, in_one_line(error).removeprefix("tree 1, "))
        return self._good_rows(table, data, "")

    def _read(self, source: Any, format: str | None, *, skip: bool = False) -> tuple[Table, Forest]:
        """Return the rows of another table, and their trees and targets."""
        table = read_table(source, self.reader, self.target, format, others=self._other_columns, skip=skip)
        return table, self._with_targets(table, {} if table.split is None else {"split": table.split})

    def _with_targets(self, table: Table, split: Mapping[str, NDArray[Any]]) -> Forest:
        """Return the trees of a table with their targets, splits and weights."""
        return table.forest.with_data(tree_data={"label": self._targets(table), **split, **self._row_weights(table)})

    def _targets(self, table: Table) -> NDArray[Any]:
        """Return the targets as the loss reads them, ``[rows]`` or ``[rows, targets]``; -1 or NaN if not known."""
        columns = zip(table.targets, self.target, strict=True)
        return np.stack([table.numbers(values, name) for values, name in columns], axis=1)

    def _row_weights(self, table: Table) -> dict[str, NDArray[np.float64]]:
        """Return the weights of the rows by their name, if the table has some.

        Raises:
            RecipeError: a weight that is no number of 0 or more.
        """
        if self.weight is None or self.weight not in table.others:
            return {}
        weights = table.numbers(table.others[self.weight], f"the weight {self.weight!r}")
        for row in np.flatnonzero(~(weights >= 0)).tolist():
            cell = table.others[self.weight][row]
            problem = "is missing" if cell is None else f"must be 0 or more, not {shown(cell)}"
            table.refuse(row, f"the weight {self.weight!r} {problem}")
            weights[row] = 0
        return {WEIGHT: weights}

    def examples(self, data: Forest) -> Examples:
        target = self._checked_targets(data)
        known = target >= 0 if target.ndim == 1 else ~np.isnan(target).any(1)
        group, split = self.groups(data, data.tree_data).group, split_numbers(data.tree_data.get("split"))
        return Examples(data, 1, {"label": target, **self._weights(data, target)}, group, known, split)

    def _weights(self, data: Forest, target: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return the weights of the targets in the loss by their name, if they have some.

        Raises:
            RecipeError: a weight that is no number of 0 or more.
        """
        of_rows = data.tree_data.get(WEIGHT)
        if of_rows is None and self.class_weight is None:
            return {}
        weights = np.ones(len(data)) if of_rows is None else row_weights(of_rows, len(data))
        return {WEIGHT: self._target_weights(data, target, weights)}

    def _target_weights(self, data: Forest, target: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights of the targets, which are those of the rows times those of the classes."""
        return weights

    def _loss_weight(self, targets: Mapping[str, Tensor]) -> Tensor | None:
        """Return the weights of a batch, None if all weigh the same.

        Raises:
            RecipeError: the task weighs rows, and the data have no weights.
        """
        if self.weight is not None and WEIGHT not in targets:
            raise RecipeError(
                f"the task weighs its rows by the column {self.weight!r}, and these data have no weights; take the "
                'data of task.make_data, or give tree_data["weight"]'
            )
        return targets.get(WEIGHT)

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

    @property
    def _weighted_names(self) -> tuple[ClassName, ...]:
        return self.classes

    def _balanced_weights(self, table: Table) -> NDArray[np.float64]:
        return balanced_weights(self._training_rows(table, self._targets(table)), len(self.classes))

    def _target_weights(self, data: Forest, target: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        weighted: NDArray[np.float64] = weights * of_classes(self.weights_of_classes, target)
        return weighted

    def _strata(self, table: Table) -> list[Any]:
        return self._targets(table).tolist()

    def _about_names(self, data: Forest) -> str:
        has = data.tree_data["label"][:, None] == np.arange(len(self.classes))
        return rows_by_name(self.classes, has, data.tree_data["split"], "class")

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy, weighted if rows or classes have weights."""
        weight = self._loss_weight(targets)
        if weight is None:
            return super().loss(outputs, targets)
        return SumCount.of_losses(functional.cross_entropy(outputs, targets["label"], reduction="none"), weight)

    def _targets(self, table: Table) -> NDArray[Any]:
        return np.array(class_numbers(self.classes, table.targets[0], table.refuse), np.int64)

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return accuracy and majority by group and overall; overall the metrics of :func:`class_metrics`, too."""
        scores = super().scores(kept, targets, group)
        if not len(kept):
            return scores
        ranks = kept.double().log_softmax(-1).numpy()
        return with_overall(scores, class_metrics(kept.argmax(-1).numpy(), targets["label"], ranks))

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
