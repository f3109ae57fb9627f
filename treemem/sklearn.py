"""Estimators of scikit-learn that learn from trees."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from treemem import checkpoint
from treemem.errors import RecipeError, near_names, shown
from treemem.native.threads import torch_threads
from treemem.networks import NetworkTable, every_network
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.tasks.table import TableClasses, TableRegression
from treemem.tasks.table.data import Table, TableRecords, read_table
from treemem.tasks.table.weights import WEIGHT, balanced_weights, class_weights, of_classes, row_weights
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import is_missing, is_single_example
from treemem.trees.formats.text_forms import TextForm
from treemem.trees.vocabulary import KindsBy

__all__ = ["TreeClassifier", "TreeRegressor"]

_ENOUGH_TO_VALIDATE = 500
_TREE = "tree"


@dataclass(eq=False, repr=False)
class _TreeEstimator(BaseEstimator):
    """What the estimators share; the parameters are described at :class:`TreeClassifier`."""

    network: str = "Tree-LSTM"
    _: KW_ONLY
    hidden_size: int = 64
    network_options: Mapping[str, Any] | None = None
    text: TextForm = "brackets"
    number: str | None = None
    unknown: str | None = None
    kinds: KindsBy = "label"
    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 0.003
    training_options: Mapping[str, Any] | None = None
    early_stopping: bool | Literal["auto"] = "auto"
    validation_fraction: float = 0.1
    patience: int = 10
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array, tags.input_tags.string = True, False, True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, of a trained model, the files of a checkpoint: no paths, no training data."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "model_": checkpoint.files_of(self.model_)} if "model_" in state else state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        if "model_" in state:
            state["model_"] = checkpoint.model_of(state["model_"], Path("the pickled estimator")).eval()
        super().__setstate__(state)

    def _forest(self, X: Any, reader: TableRecords, *, fitting: bool) -> Forest:
        """Return the trees of ``X``.

        Args:
            X: a column of trees.
            reader: reads them.
            fitting: whether to check the column as a whole, and to remember its name.

        Raises:
            ValueError: it is no column of trees, or a tree cannot be read; the message names its row, from 1.
        """
        validate_data(self, X, reset=fitting, skip_check_array=True, ensure_2d=False)  # the name of its column
        if fitting:
            self.n_features_in_ = 1
        if isinstance(X, Forest):
            if X.vectors is not None:
                raise RecipeError(
                    "the nodes of X have vectors, which estimators do not read; give X.with_data(), in which labels "
                    "alone count"
                )
            return X
        return read_table([{_TREE: item} for item in _column(X)], reader, (), for_training=fitting).forest

    def _fit(
        self,
        task: type[TableClasses] | type[TableRegression],
        X: Any,
        label: NDArray[Any],
        weight: NDArray[np.float64] | None,
        **options: Any,
    ) -> None:
        """Train a model, and set what is known of it.

        Args:
            task: its class.
            X: the trees.
            label: their targets, as the loss reads them.
            weight: of each tree in the loss; None: all are 1.
            options: of the task.
        """
        forest = self._forest(X, TableRecords(_TREE, self.text, self.number), fitting=True)
        check_consistent_length(forest, label)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        split = self._split(label, seed)
        table = Table(forest, np.atleast_2d(label.T).tolist(), split, list(range(1, len(forest) + 1)), "row", {})
        made = task(
            tree=_TREE,
            text=self.text,
            number=self.number,
            unknown=self.unknown,
            kinds=self.kinds,
            table=table,
            **options,
        )
        tree_data = {"label": label, "split": split, WEIGHT: weight}
        data = forest.with_data(tree_data={name: array for name, array in tree_data.items() if array is not None})
        network = NetworkTable(every_network(self.hidden_size))[self.network].replace(**(self.network_options or {}))
        training = self._training_options(seed, self.patience if split is not None else None)
        with tempfile.TemporaryDirectory() as folder:
            result = fit(made, network, data, training, output=folder, progress=bool(self.verbose))
        self.model_, self.history_ = result.model, result.records

    def _split(self, label: NDArray[Any], seed: int) -> NDArray[Any] | None:
        """Return the split of each row, or None to train on all rows."""
        if self.early_stopping not in (True, False, "auto"):
            raise RecipeError(f'early_stopping must be True, False or "auto", not {shown(self.early_stopping)}')
        if not (len(label) >= _ENOUGH_TO_VALIDATE if self.early_stopping == "auto" else self.early_stopping):
            return None
        if not 0 < self.validation_fraction < 1:
            raise RecipeError(f"validation_fraction must be above 0 and below 1, not {shown(self.validation_fraction)}")
        strata = None
        if is_classifier(self):  # scikit-learn refuses strata of one row, and more strata than rows to hold out
            counts = np.bincount(label)
            is_possible = counts.min() > 1 and self.validation_fraction * len(label) >= len(counts)
            strata = label if is_possible else None
        split = np.full(len(label), "train", "<U10")
        held_out = train_test_split(
            np.arange(len(label)), test_size=self.validation_fraction, random_state=seed, stratify=strata
        )[1]
        split[held_out] = "validation"
        return split

    def _training_options(self, seed: int, patience: int | None) -> TrainingOptions:
        named: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size, "patience": patience}
        named |= {"learning_rate": self.learning_rate, "seed": seed}
        known = {field.name for field in fields(TrainingOptions)} - {*named}
        for name, value in (self.training_options or {}).items():
            if name not in known:
                problem = "is a parameter of the estimator itself" if name in named else "is no option of training"
                raise RecipeError(f"training_options: {name!r} {problem}{near_names(name, known)}")
            if name == "tensorboard" and value:
                problem = "writes into the folder of the run, which an estimator deletes"
                remedy = "give the records in history_ to a treemem.runs.TensorBoardLogger"
                raise RecipeError(f"training_options: 'tensorboard' {problem}; {remedy}")
            if patience is None and name in ("monitor", "threshold") and isinstance(value, str):
                problem = "needs rows to validate on; give early_stopping=True, which holds some out"
                raise RecipeError(f"training_options: {name}={value!r} {problem}")
        return TrainingOptions(**named, **(self.training_options or {}))

    def _predicted(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        reader: Any = self.model_.task.reader
        forest = self._forest(X, reader, fitting=False)
        with torch_threads(1):
            predicted: NDArray[np.float64] = self.model_.predict(forest)
        return predicted


@dataclass(eq=False, repr=False)
class TreeClassifier(ClassifierMixin, _TreeEstimator):
    """A classifier of trees, for scikit-learn's pipelines, searches and cross-validation.

    ``X`` is a column of trees: a list, a numpy array of objects or texts, a pandas Series, a frame of one column, or a
    :class:`~treemem.Forest`, which is not parsed again. A tree has any form of the table task: a
    :class:`~treemem.Tree`, a text, nested lists or a dictionary (:func:`~treemem.trees.as_tree`).

    Args:
        network: name of the network, as in ``treemem.tasks.table.TableClasses.networks``.
        hidden_size: width of its encodings.
        network_options: further options of the network.
        text, number, unknown, kinds: how trees are read; as of :class:`treemem.tasks.table.TableClasses`.
        epochs, batch_size, learning_rate: of the training.
        training_options: further fields of :class:`treemem.runs.TrainingOptions`, such as ``{"clip": 1.0}``.
        early_stopping: hold out rows, keep the epoch that is best on them, and stop if ``patience`` epochs bring no
            better one. ``"auto"``: if there are at least 500 rows. Without it, the last epoch counts.
        validation_fraction: share of the rows that early stopping holds out.
        patience: epochs without a better one after which early stopping stops.
        random_state: of the weights, the order of the rows, dropout and the rows held out.
        verbose: 1 shows a progress bar.
        class_weight: ``"balanced"``, or a dictionary of classes and weights; it multiplies ``sample_weight``.

    Attributes:
        classes_: the classes, sorted, in the type of ``y``.
        n_features_in_: 1, the column of trees.
        feature_names_in_: its name, if ``X`` was a frame.
        model_: the trained :class:`treemem.model.Model`. ``treemem.checkpoint.save(folder, estimator.model_)`` writes
            it.
        history_: the log of the training, a record for each epoch.

    Example:
        >>> from treemem.sklearn import TreeClassifier
        >>> classifier = TreeClassifier(hidden_size=8, epochs=20, learning_rate=0.05, random_state=0)
        >>> classifier = classifier.fit(["(f x y)", "(g x y)", ["f", "y", "x"], "(g y y)"], ["F", "G", "F", "G"])
        >>> classifier.predict(["(g x x)"])
        array(['G'], dtype='<U1')
    """

    _: KW_ONLY
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TreeClassifier:
        """Train on trees and their classes.

        Args:
            X: the trees, ``[rows]``.
            y: their classes, ``[rows]``: texts, whole numbers or truth values.
            sample_weight: weights of the rows in the loss, ``[rows]``, each 0 or more.

        Raises:
            ValueError: a tree, class, weight or parameter is wrong. All errors of treemem are ValueErrors here.
        """
        missing = [row for row, value in enumerate(np.ravel(np.asarray(y, object)), start=1) if is_missing(value)]
        if y is not None and missing:
            raise RecipeError(f"row {missing[0]}: the class is missing (NaN or None); leave the row out")
        y = column_or_1d(validate_data(self, X="no_validation", y=y), warn=True)
        check_classification_targets(y)
        classes, label = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            there = f"one class, {shown(classes.tolist()[0])}" if len(classes) else "no row"
            raise RecipeError(f"y has {there}; a classifier needs rows of at least two classes")
        weight = _weights(sample_weight, len(y))
        if self.class_weight is not None:
            balanced = balanced_weights(label, len(classes))
            of_class = of_classes(class_weights(self.class_weight, classes.tolist(), balanced), label)
            weight = of_class if weight is None else weight * of_class
        self._fit(TableClasses, X, label.astype(np.int64), weight, classes=tuple(classes.tolist()))
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, ``[rows, classes]``, in the order of ``classes_``."""
        return self._predicted(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each tree, ``[rows]``, or by the threshold of ``training_options``."""
        predicted = self._predicted(X)
        threshold = self.model_.threshold
        return self.classes_[predicted.argmax(1) if threshold is None else (predicted[:, 1] > threshold).astype(int)]


@dataclass(eq=False, repr=False)
class TreeRegressor(RegressorMixin, _TreeEstimator):
    """A regressor of trees, for scikit-learn's pipelines, searches and cross-validation.

    Its parameters and attributes are those of :class:`TreeClassifier`, without ``class_weight`` and ``classes_``.

    Example:
        >>> from treemem.sklearn import TreeRegressor
        >>> regressor = TreeRegressor("Tree-RNN", hidden_size=8, epochs=2, random_state=0)
        >>> regressor.fit(["(f x y)", "x", ["f", "y", "x"]], [3.0, 1.0, 3.0]).predict(["(f x x)", "y"]).shape
        (2,)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TreeRegressor:
        """Train on trees and their numbers.

        Args:
            X: the trees, ``[rows]``.
            y: their numbers, ``[rows]`` or, of several targets, ``[rows, targets]``.
            sample_weight: weights of the rows in the loss, ``[rows]``, each 0 or more.

        Raises:
            ValueError: a tree, number, weight or parameter is wrong. All errors of treemem are ValueErrors here.
        """
        y = validate_data(self, X="no_validation", y=y, multi_output=True, y_numeric=True)
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        names = ["target"] if y.ndim == 1 else [f"target {column}" for column in range(1, y.shape[1] + 1)]
        y, weight = y.astype(np.float64), _weights(sample_weight, len(y))
        scaling = {}
        if weight is not None:  # rows without weight must not change the scale of the targets
            mean = np.average(y, 0, weight)
            scale = np.atleast_1d(np.sqrt(np.average(np.square(y - mean), 0, weight)))
            scaling = {"mean": np.atleast_1d(mean).tolist(), "scale": np.where(scale > 0, scale, 1.0).tolist()}
        self._fit(TableRegression, X, y, weight, target=tuple(names), **scaling)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the number of each tree, ``[rows]`` or ``[rows, targets]``."""
        return self._predicted(X)


def _column(X: Any) -> Sequence[Any]:
    """Return the trees of a column.

    Raises:
        RecipeError: it is no column of trees.
    """
    if is_single_example(X) or not hasattr(X, "__len__"):
        raise RecipeError(f"X must be a list of trees or a column of them, not {shown(X)}; put a single tree in a list")
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    if not isinstance(values, np.ndarray):
        items = list(values)
        if items and all(isinstance(item, (list, tuple)) and len(item) == 1 for item in items):
            raise RecipeError("X has lists of one item, so these may be rows of a table; give [row[0] for row in X]")
        return items
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise RecipeError(
            f"X has the shape {values.shape}, and trees are one column; choose it, such as frame['tree'], or give "
            "nested lists as a list"
        )
    if values.dtype.kind in "biufc":
        raise RecipeError(f"X holds numbers ({values.dtype}), not trees; give texts, nested lists or trees")
    return values.tolist()


def _weights(sample_weight: Any, count: int) -> NDArray[np.float64] | None:
    """Return the weights of rows as an array.

    Raises:
        ValueError: they are not numbers of 0 or more, not one for each row, or all 0.
    """
    if sample_weight is None:
        return None
    weight = row_weights(np.asarray(sample_weight, np.float64), count)
    if not weight.any():
        raise RecipeError("all sample weights are zero, so there is nothing to learn; give some row a weight above 0")
    return weight
