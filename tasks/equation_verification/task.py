"""Equation verification: does the left side equal the right side?"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.checked_options import checked_count
from treemem.data.examples import Examples, TaskData, label_numbers, split_and_group, split_numbers, without_empty
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError, RecipeError, near_names
from treemem.metrics.accuracy import binary_scores
from treemem.metrics.score import PublishedFigure, Score
from treemem.networks import NetworkConfig
from treemem.nn.encodings import Encodings
from treemem.nn.heads import ComparisonHead, EqualityHead, NumberDecoder, ReadOut
from treemem.ops.activation import ActivationName
from treemem.task import ClassificationTask
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, DerivationOptions
from treemem.tasks.equation_verification.generation.generator import EquationData, generate_equations
from treemem.tasks.equation_verification.generation.more_data import with_more_training
from treemem.tasks.equation_verification.generation.numeric import generate_numeric
from treemem.tasks.equation_verification.generation.splits import TRAINING_DEPTH, split_by_depth
from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES
from treemem.tasks.equation_verification.readers import EquationRecords, read_equations
from treemem.tasks.equation_verification.vocabulary import equation_vocabulary
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_labels import EQUALITY, NUMBER
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

READ_OUTS: tuple[str, ...] = get_args(ReadOut)

_LABEL = "1 (correct), 0 (incorrect) or -1 (not said) for each equation"
_NO_SIDE, _LEFT, _RIGHT = -1, 0, 1


def _networks() -> dict[str, NetworkConfig]:
    stack = {"hidden_size": 50, "stack_size": 5}
    rnn_stack = {**stack, "number_activation": "relu"}  # as in the published code; it tells for numbers only
    return {
        "Tree-RNN": NetworkConfig("TreeRNN", {"hidden_size": 50}),
        "Tree-RNN+stack": NetworkConfig("StackTreeRNN", {**rnn_stack, "no_op": False}),
        "Tree-RNN+stack+no-op": NetworkConfig("StackTreeRNN", {**rnn_stack, "no_op": True}),
        "Tree-LSTM": NetworkConfig("TreeLSTM", {"hidden_size": 50}),
        "Tree-LSTM+stack": NetworkConfig("StackTreeLSTM", {**stack, "normalize": False, "no_op": False}),
        "Tree-LSTM+stack+normalize": NetworkConfig("StackTreeLSTM", {**stack, "normalize": True, "no_op": False}),
        "Tree-LSTM+stack+normalize+no-op": NetworkConfig("StackTreeLSTM", {**stack, "normalize": True, "no_op": True}),
        "RNN": NetworkConfig("RNN", {"hidden_size": 50}),
        "LSTM": NetworkConfig("LSTM", {"hidden_size": 50}),
    }


@dataclass(frozen=True)
class EquationDataOptions:
    """Which equations to train on and to test with.

    Attributes:
        size: how many to generate.
        seed: of the generator.
        max_depth: the greatest depth generated.
        training_size: generate further equations of depth 1-7, with the next seed, until so many are for training;
            validation and test stay as they are. None: no more than ``size`` gives.
        derived_share, branches: how those further equations are derived; see
            :class:`~treemem.tasks.equation_verification.generation.derivation.DerivationOptions`.
        numeric: how many numeric equations to generate besides, for training and validation; the task must be numeric.
        path: take them from here instead: a folder that ``EquationData.save`` wrote, or a file of labelled equations,
            which a field ``split`` (train, validation, test) may divide; else depth and ``seed`` do.

    Raises:
        RecipeError: an option out of its range, or two that contradict each other.
    """

    size: int = 20_000
    seed: int = 12093
    max_depth: int = 13
    training_size: int | None = None
    derived_share: float = 0.0
    branches: bool = False
    numeric: int = 0
    path: str | None = None

    def __post_init__(self) -> None:
        checked_count("data.numeric", self.numeric, least=0)
        adds = self.training_size is not None
        if adds:
            checked_count("data.training_size", self.training_size)
        if adds and self.path is not None:
            raise RecipeError("data.training_size adds to generated equations; data.path names others: choose one")
        if self.numeric and self.path is not None:
            raise RecipeError("data.numeric adds to generated equations; data.path names others: choose one")
        if adds and self.max_depth < TRAINING_DEPTH:
            raise RecipeError(
                f"data.training_size adds equations of depth 1 to {TRAINING_DEPTH}, and data.max_depth is "
                f"{self.max_depth}; make it at least {TRAINING_DEPTH}"
            )
        if self.derivation != BY_IDENTITIES and not adds:
            raise RecipeError(
                "data.derived_share and data.branches are about equations that data.training_size adds; set that too"
            )

    @property
    def derivation(self) -> DerivationOptions:
        """How the further equations are derived."""
        return DerivationOptions(self.derived_share, self.branches)


@dataclass(frozen=True)
class EquationVerification(ClassificationTask):
    """Equations to verify, grouped by depth.

    Data are forests of ``Equality`` trees. ``tree_data["label"]`` is 1 for correct equations, 0 for incorrect ones, -1
    where nobody said; ``tree_data["split"]``, where the data are divided, is ``"train"``, ``"validation"`` or
    ``"test"``.

    Args:
        numeric: whether equations may hold decimal numbers. An equation with a number alone on one side (``sin(2.5) =
            0.6``) is then learnt by decoding the value of the other side, with the squared error as its loss.
        decoder_activation: of the number decoder; the published Tree-RNN with a stack has ``"relu"``.
        read_out: what compares the sides: ``"dot"``, ``"cosine"`` and ``"distance"`` are those of
            :class:`treemem.nn.EqualityHead`, ``"comparison"`` is :class:`treemem.nn.ComparisonHead`.

    Raises:
        RecipeError: another read-out.
    """

    name: ClassVar[str] = "equation_verification"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "depth"
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = EquationDataOptions
    text_columns: ClassVar[tuple[str, ...]] = ("infix", "label")
    record_fields: ClassVar[Mapping[str, str]] = {
        "equation": "the equation as people write it; variables are numbered in order of appearance",
        "lhs, rhs": "or its two sides",
        "preorder": "or its labels in preorder, as published",
        "tree": "or the tree in brackets",
        "label": "1 or true for correct, 0 or false for incorrect",
        "split": "train, validation or test; may be left out",
    }

    numeric: bool = False
    decoder_activation: ActivationName = "sigmoid"
    read_out: ReadOut = "dot"

    def __post_init__(self) -> None:
        if self.read_out not in READ_OUTS:
            raise RecipeError(
                f"read_out is {self.read_out!r}{near_names(self.read_out, READ_OUTS)}; there are {', '.join(READ_OUTS)}"
            )

    @property
    def vocabulary(self) -> Vocabulary:
        return equation_vocabulary(numeric=self.numeric)

    def make_data(self, options: EquationDataOptions, *, progress: bool | None = None) -> TaskData:
        """The equations that ``options`` ask for.

        Raises:
            RecipeError: numeric equations for a task that is not numeric, a size so small that training, validation or
                test have no equations, or a file without equations.
            ParseError, VocabularyError, GraphError: a record of the file that is no equation.
        """
        if options.numeric and not self.numeric:
            raise RecipeError("data.numeric asks for numeric equations, and the task is not; set task_options.numeric")
        if options.path is None:
            data = generate_equations(options.size, seed=options.seed, max_depth=options.max_depth, progress=progress)
            wanted = SPLITS if options.max_depth > TRAINING_DEPTH else SPLITS[:2]
            empty = [split for split in wanted if split not in data.forest.tree_data["split"]]
            if empty:
                raise RecipeError(
                    f"data.size is {options.size}, which leaves no equation for {' and '.join(empty)}; "
                    "it must be larger, 1,000 or more to learn from"
                )
            forest, card = data.forest, data.card()
            if options.training_size is not None:
                forest = with_more_training(
                    forest,
                    options.training_size,
                    seed=options.seed + 1,
                    derivation=options.derivation,
                    progress=progress,
                )
                card += f"\nBeside them, {len(forest) - len(data)} equations of depth 1-7, all for training.\n"
            if not options.numeric:
                return TaskData(forest, card)
            parts = [forest, generate_numeric(options.numeric, seed=options.seed)]
            forest = Forest.concatenate(
                part.with_data(tree_data={name: part.tree_data[name] for name in ("label", "split")}) for part in parts
            )
            return TaskData(forest, f"{card}\nBeside them, {len(parts[1])} numeric equations of the same seed.\n")
        if Path(options.path).is_dir():
            data = EquationData.load(options.path)
            return TaskData(data.forest, data.card())
        return self._data_of_file(options.path, options.seed)

    def _data_of_file(self, path: str, seed: int) -> TaskData:
        """The equations of a file; those without a field ``split`` are divided by depth."""
        forest = self.read_examples(path)
        card = f"# Equations\n\n{len(forest)} equations of {path}"
        if "split" in forest.tree_data:
            return TaskData(forest, f"{card}, with the splits given there.\n")
        depth, label = forest.height()[forest.begin[1:] - 1], forest.tree_data["label"]
        split = split_by_depth(depth, label, random.Random(f"split {seed}"))
        forest = forest.with_data(tree_data={"label": label, "split": split})
        return TaskData(forest, f"{card}, divided by depth with seed {seed}.\n")

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Equations as records: ``infix`` for people, ``tree``, which is what is read back, ``label``, split and depth.

        Infix text would be read with its variables numbered in order of appearance.
        """
        examples = self.examples(data)
        labels = examples.targets["label"].tolist()
        for tree, label, rest in zip(data, labels, split_and_group(examples, self.group), strict=True):
            said = None if label < 0 else label
            yield {"infix": format_equation(tree), "tree": str(tree), "label": said, **rest}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """The equations of a file; see :func:`~treemem.tasks.equation_verification.readers.read_equations`."""
        file = read_equations(source, format=format, numeric=self.numeric, keep=["split"], strict=True)
        if not len(file.forest):
            raise RecipeError(f"there are no equations in {os.fspath(source)}")
        return without_empty(file.forest, "split")

    def parse(self, text: str) -> Tree:
        return parse_equation(text, numeric=self.numeric)

    @property
    def reader(self) -> EquationRecords:
        return EquationRecords(self.numeric)

    def examples(self, data: Forest) -> Examples:
        """The two sides of each equation, adjacent.

        Raises:
            GraphError: a tree that is no equation.
            RecipeError: labels or splits that mean nothing.
        """
        root = data.begin[1:] - 1
        is_equation = np.array([label == EQUALITY for label in data.labels], bool)[data.label[root]]
        is_equation &= data.arity[root] == 2
        if not is_equation.all():
            tree = int(np.argmin(is_equation))
            label, arity = data.labels[data.label[root[tree]]], int(data.arity[root[tree]])
            raise GraphError(f"tree {tree} is no equation: its root is {label!r} with {arity} children")
        sides = data.split_roots()
        label = label_numbers(data.tree_data.get("label"), len(data), 2, _LABEL)
        targets: dict[str, NDArray[Any]] = {"label": label}
        if self.numeric:
            targets.update(_numeric_targets(sides))
        depth = data.height()[root].astype(np.int64)
        return Examples(sides, 2, targets, depth, label >= 0, split_numbers(data.tree_data.get("split")))

    def head(self, hidden_size: int) -> nn.Module:
        equality = ComparisonHead(hidden_size) if self.read_out == "comparison" else EqualityHead(self.read_out)
        return NumericEqualityHead(equality, hidden_size, self.decoder_activation) if self.numeric else equality

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Cross-entropy of the score; of equations with a number alone on one side, the squared error.

        An incorrect equation of the latter sort says no value to learn, so it counts nothing.
        """
        label = targets["label"]
        if not self.numeric:
            return SumCount(EqualityHead.loss(outputs, label) * len(outputs), float(len(outputs)))
        verified = targets["side"] == _NO_SIDE
        decoded = ~verified & (label == 1)
        value = _decoded(outputs, targets["side"])[decoded]
        verify = EqualityHead.loss(outputs[verified, 0], label[verified]) * verified.sum()
        decode = NumberDecoder.loss(value, targets["value"][decoded]) * decoded.sum()
        return SumCount(verify + decode, float(len(outputs)))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Of being correct; for an equation whose value was decoded, 1 where the value is close and 0 elsewhere."""
        outputs = outputs.double()
        if not self.numeric:
            return EqualityHead.probability(outputs).numpy()
        side = torch.from_numpy(targets["side"])
        close = NumberDecoder.correct(_decoded(outputs, side), torch.from_numpy(targets["value"])).double()
        return torch.where(side == _NO_SIDE, EqualityHead.probability(outputs[:, 0]), close).numpy()

    def temperature_scaled(self, outputs: Tensor, temperature: float) -> Tensor:
        """The scores divided; the values that sides decode to stay as they are."""
        if not self.numeric:
            return outputs / temperature
        return torch.cat([outputs[:, :1] / temperature, outputs[:, 1:]], dim=1)

    def correct(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Which equations are judged rightly.

        One whose probability is exactly one half counts as wrongly judged, whatever its label, as in the published
        evaluation.
        """
        probability = self.probabilities(outputs, targets)
        return np.where(targets["label"] == 1, probability > 0.5, probability < 0.5)

    def scores(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Accuracy, precision, recall and F1 by depth and overall; correct equations are the positive class."""
        actual = targets["label"] == 1
        return binary_scores(actual == self.correct(outputs, targets), actual, group)


class NumericEqualityHead(nn.Module):
    """The score of an equation beside the values that its two sides decode to.

    Args:
        equality: gives the score.
        hidden_size: size of an encoding.
        activation: of the decoder.
    """

    def __init__(self, equality: nn.Module, hidden_size: int, activation: ActivationName = "sigmoid") -> None:
        super().__init__()
        self.equality = equality
        self.decoder = NumberDecoder(hidden_size, activation)

    def forward(self, encodings: Tensor | Encodings) -> Tensor:
        """``[examples, 2, hidden_size]`` to ``[examples, 3]``: the score and the values of both sides."""
        return torch.cat([self.equality(encodings).unsqueeze(1), self.decoder(encodings)], dim=1)


def _decoded(outputs: Tensor, side: Tensor) -> Tensor:
    """The value that the decoded side has; ``[examples]``."""
    return torch.where(side == _RIGHT, outputs[:, 2], outputs[:, 1])


def _numeric_targets(sides: Forest) -> dict[str, NDArray[Any]]:
    """Which side of each equation is decoded (-1: none), and the number on the other side.

    Where both sides are numbers, the left one is decoded. A number is a leaf or its product with -1.
    """
    number = _bare_numbers(sides).reshape(-1, 2)
    is_number = ~np.isnan(number)
    side = np.where(is_number[:, _RIGHT], _LEFT, np.where(is_number[:, _LEFT], _RIGHT, _NO_SIDE))
    value = np.where(side == _LEFT, number[:, _RIGHT], np.where(side == _RIGHT, number[:, _LEFT], 0.0))
    return {"side": side.astype(np.int64), "value": value}


def _bare_numbers(sides: Forest) -> NDArray[np.float64]:
    """The number that each tree is; NaN for those that are more than a number."""
    found = np.full(len(sides), np.nan)
    if sides.value is None:
        return found
    labels = np.array(sides.labels, dtype=object)
    begin, size = sides.begin[:-1], np.diff(sides.begin)
    single = np.flatnonzero(size == 1)
    found[single] = sides.value[begin[single]]
    triple = np.flatnonzero(size == 3)
    names = labels[sides.label[begin[triple, None] + np.arange(3)]]
    values = sides.value[begin[triple, None] + np.arange(2)]
    for first, second in ((0, 1), (1, 0)):
        negated = (names[:, first] == "NegativeOne:-1") & (names[:, second] == NUMBER) & (names[:, 2] == "Mul")
        found[triple[negated]] = -values[negated, second]
    return found
