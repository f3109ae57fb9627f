"""Equation verification: does the left side equal the right side?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.data.examples import Examples, TaskData, without_empty
from treemem.data.sum_count import SumCount
from treemem.engines.activation import ActivationName
from treemem.errors import GraphError, RecipeError
from treemem.heads import ComparisonHead, EqualityHead, NumberDecoder, ReadOut
from treemem.metrics.accuracy import binary_scores
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.networks import NetworkConfig, every_network
from treemem.networks.encoder_output import EncoderOutput
from treemem.records import records_of_columns
from treemem.task import ClassificationTask, Groups, TreeData, Verdict
from treemem.tasks.equation_verification.data import EquationDataOptions, make_equation_data
from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES
from treemem.tasks.equation_verification.readers import EquationRecords, equation_vocabulary, read_equations
from treemem.tasks.equation_verification.value_head import NUM_POINTS, ValueHead
from treemem.tasks.equation_verification.values import EquationExamples
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.labels import EQUALITY, NUMBER
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

EquationReadOut = Literal[ReadOut, "values"]

_NO_SIDE, _LEFT, _RIGHT = -1, 0, 1


def _networks() -> dict[str, NetworkConfig]:
    networks = every_network(50)
    for name in ("Tree-RNN+stack", "Tree-RNN+stack+no-op"):  # as in the published code; matters for numbers only
        networks[name] = networks[name].replace(number_activation="relu")
    return networks


@dataclass(frozen=True)
class EquationVerification(ClassificationTask):
    """Equation verification, with scores by depth.

    Data are forests of ``Equality`` trees. ``tree_data["label"]`` is 1 for correct equations, 0 for incorrect ones, -1
    for unknown; ``tree_data["split"]``, if present, is ``"train"``, ``"validation"`` or ``"test"``.

    Args:
        numeric: whether equations may have decimal numbers. If one side is a number (``sin(2.5) = 0.6``), the network
            decodes the value of the other side, and the loss is the squared error.
        decoder_activation: of the number decoder; the published Tree-RNN with a stack has ``"relu"``.
        read_out: how the sides are compared: ``"dot"``, ``"cosine"`` and ``"distance"`` are those of
            :class:`treemem.nn.EqualityHead`, ``"comparison"`` is :class:`treemem.nn.ComparisonHead`, and ``"values"``
            is :class:`~treemem.tasks.equation_verification.value_head.ValueHead`: the network learns the value of each
            subexpression too.

    Raises:
        RecipeError: the read-out is unknown, or numeric equations with the read-out ``"values"``.
    """

    name: ClassVar[str] = "equation_verification"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "depth"
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")  # as the recorded results were chosen
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = EquationDataOptions
    trees_per_example: ClassVar[int] = 2
    learner: ClassVar[Any] = "treemem.tasks.equation_verification.value_learner:ValueLearner"
    text_columns: ClassVar[tuple[str, ...]] = ("infix", "label")
    record_fields: ClassVar[Mapping[str, str]] = {
        "equation": "the equation as people write it; variables are numbered in order of appearance",
        "lhs, rhs": "or its two sides",
        "preorder": "or its labels in preorder, as published",
        "tree": "or the tree in brackets",
        "label": "1 or true for correct, 0 or false for incorrect",
    }

    numeric: bool = False
    decoder_activation: ActivationName = "sigmoid"
    read_out: EquationReadOut = "dot"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.numeric and self.read_out == "values":
            raise RecipeError("read_out: values does not go with numeric equations; choose another read_out")

    @property
    def vocabulary(self) -> Vocabulary:
        return equation_vocabulary(numeric=self.numeric)

    def make_data(self, options: EquationDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the equations that ``options`` describe; see :func:`.make_equation_data` and its errors.

        Raises:
            RecipeError: numeric equations for a task that is not numeric.
        """
        if options.numeric and not self.numeric:
            raise RecipeError("data.numeric needs a numeric task; set task_options.numeric")
        return make_equation_data(options, self.read_examples, progress=progress)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Return equations as records: ``infix`` for people, ``tree`` to read back, ``label``, split and depth.

        Reading ``infix`` would number the variables in order of appearance.
        """
        examples = self.examples(data)
        trees = {"infix": map(format_equation, data), "tree": map(str, data)}
        return records_of_columns({**trees, **self.label_column(examples), **self.split_and_group(examples)})

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the equations of a file; see :func:`~treemem.tasks.equation_verification.readers.read_equations`."""
        file = read_equations(source, format=format, numeric=self.numeric, keep=["split"], strict=True)
        if not len(file.forest):
            raise RecipeError(f"there are no equations in {os.fspath(source)}")
        return without_empty(file.forest, "split")

    def verdicts(self, data: Forest) -> list[Verdict] | None:
        """Return the verdict of the numerical test on each equation. None for numeric equations."""
        if self.numeric:
            return None
        from treemem.tasks.equation_verification.labelling import verdicts

        return verdicts(data)

    def parse(self, text: str) -> Tree:
        return parse_equation(text, numeric=self.numeric)

    @property
    def reader(self) -> EquationRecords:
        return EquationRecords(self.numeric)

    def separated(self, data: Forest) -> tuple[Forest, TreeData]:
        root = data.begin[1:] - 1
        is_equation = np.array([label == EQUALITY for label in data.labels], bool)[data.label[root]]
        is_equation &= data.arity[root] == 2
        if not is_equation.all():
            tree = int(np.argmin(is_equation))
            label, arity = data.labels[data.label[root[tree]]], int(data.arity[root[tree]])
            raise GraphError(f"tree {tree + 1} is no equation: its root is {label!r} with {arity} children")
        return data.split_roots(), data.tree_data

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the depths of the equations, given their sides."""
        height = forest.height()[forest.begin[1:] - 1].astype(np.int64)
        depth = height.reshape(-1, 2).max(1) + 1
        return Groups(depth, depth)

    def examples(self, data: Forest) -> Examples:
        """Return the two sides of each equation, adjacent.

        Raises:
            GraphError: a tree is not an equation.
            RecipeError: a label or split is unknown.
        """
        fields = vars(super().examples(data))
        if self.numeric:
            fields["targets"].update(_numeric_targets(fields["forest"]))
        return EquationExamples(**fields, num_points=NUM_POINTS if self.read_out == "values" else 0)

    def head(self, hidden_size: int) -> nn.Module:
        if self.read_out == "values":
            return ValueHead(hidden_size)
        equality = ComparisonHead(hidden_size) if self.read_out == "comparison" else EqualityHead(self.read_out)
        return NumericEqualityHead(equality, hidden_size, self.decoder_activation) if self.numeric else equality

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy of the score; for correct equations with a number as one side, the squared error.

        Incorrect equations with a number as one side do not count, as the value of the other side is unknown.
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
        """Return P(correct); for an equation with a decoded value, 1 if the value is close, else 0."""
        outputs = outputs.double()
        if not self.numeric:
            return EqualityHead.probability(outputs).numpy()
        side = torch.from_numpy(targets["side"])
        close = NumberDecoder.correct(_decoded(outputs, side), torch.from_numpy(targets["value"])).double()
        return torch.where(side == _NO_SIDE, EqualityHead.probability(outputs[:, 0]), close).numpy()

    def answer_scores(self, kept: Tensor) -> Tensor:
        """Return the log odds of incorrect and correct.

        Raises:
            RecipeError: numeric equations, of which some are answered by a decoded value.
        """
        if self.numeric:
            raise RecipeError("numeric equations cannot be explained: the answer to some is whether a value is close")
        return super().answer_scores(kept)

    def temperature_scaled(self, outputs: Tensor, temperature: float) -> Tensor:
        """Return the outputs with scores divided by ``temperature`` and the same decoded values."""
        if not self.numeric:
            return outputs / temperature
        return torch.cat([outputs[:, :1] / temperature, outputs[:, 1:]], dim=1)

    def correct(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return which equations are judged correctly.

        A probability of exactly one half is wrong for either label, as in the published evaluation.
        """
        probability = self.probabilities(outputs, targets)
        return np.where(targets["label"] == 1, probability > 0.5, probability < 0.5)

    def scores(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return accuracy, precision, recall and F1 by depth and overall; correct equations are the positive class."""
        actual = targets["label"] == 1
        return binary_scores(actual == self.correct(outputs, targets), actual, group)


class NumericEqualityHead(nn.Module):
    """The score of an equation by ``equality``, and the decoded values of its two sides."""

    def __init__(self, equality: nn.Module, hidden_size: int, activation: ActivationName = "sigmoid") -> None:
        super().__init__()
        self.equality = equality
        self.decoder = NumberDecoder(hidden_size, activation)

    def forward(self, encodings: Tensor | EncoderOutput) -> Tensor:
        """Map ``[examples, 2, hidden_size]`` to ``[examples, 3]``: the score and the values of both sides."""
        return torch.cat([self.equality(encodings).unsqueeze(1), self.decoder(encodings)], dim=1)


def decoded_values(outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the value of the side that is not a number for each numeric equation, ``[examples]``."""
    return _decoded(outputs.double(), torch.from_numpy(targets["side"])).numpy()


def _decoded(outputs: Tensor, side: Tensor) -> Tensor:
    """Return the value of the decoded side, ``[examples]``."""
    return torch.where(side == _RIGHT, outputs[:, 2], outputs[:, 1])


def _numeric_targets(sides: Forest) -> dict[str, NDArray[Any]]:
    """Return which side of each equation is decoded (-1: none), and the number that is the other side.

    If both sides are numbers, the left one is decoded. A number is a leaf or its product with -1.
    """
    number = _bare_numbers(sides).reshape(-1, 2)
    is_number = ~np.isnan(number)
    side = np.where(is_number[:, _RIGHT], _LEFT, np.where(is_number[:, _LEFT], _RIGHT, _NO_SIDE))
    value = np.where(side == _LEFT, number[:, _RIGHT], np.where(side == _RIGHT, number[:, _LEFT], 0.0))
    return {"side": side.astype(np.int64), "value": value}


def _bare_numbers(sides: Forest) -> NDArray[np.float64]:
    """Return the number that each tree consists of, or NaN."""
    numbers = np.full(len(sides), np.nan)
    if sides.value is None:
        return numbers
    labels = np.array(sides.labels, dtype=object)
    begin, size = sides.begin[:-1], np.diff(sides.begin)
    single = np.flatnonzero(size == 1)
    numbers[single] = sides.value[begin[single]]
    triple = np.flatnonzero(size == 3)
    names = labels[sides.label[begin[triple, None] + np.arange(3)]]
    values = sides.value[begin[triple, None] + np.arange(2)]
    for first, second in ((0, 1), (1, 0)):
        negated = (names[:, first] == "NegativeOne:-1") & (names[:, second] == NUMBER) & (names[:, 2] == "Mul")
        numbers[triple[negated]] = -values[negated, second]
    return numbers
