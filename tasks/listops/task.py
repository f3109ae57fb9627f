"""The ListOps task: the value of a nested expression over digits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count, Probability
from treemem.data.examples import Examples, TaskData, split_column
from treemem.errors import RecipeError, VocabularyError
from treemem.metrics.score import Monitor, PublishedFigure
from treemem.networks import NetworkConfig, every_network
from treemem.task import ClassificationTask, Groups, TreeData
from treemem.tasks.listops.data import ListOpsDataOptions, make_listops_data
from treemem.tasks.listops.published import PUBLISHED_FIGURES
from treemem.tasks.listops.readers import ListOpsRecords, read_listops
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.listops import DIGITS, OPERATORS, RARE_OPERATORS, ListOpsForm, format_listops, parse_listops
from treemem.trees.formats.listops_arrays import TOKENS, Expressions, expressions_of_forest
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

GroupBy = Literal["length", "arguments", "depth"]
_BIN_ENDS = np.array([10, 20, 30, 50, *range(100, 1001, 100)], np.int64)


def _networks() -> dict[str, NetworkConfig]:
    size = {"hidden_size": 128}
    attention = {**size, "num_heads": 8, "feedforward_size": 512, "dropout": 0.1}
    memory = {
        **size,
        "embedding_size": 128,
        "slots": 21,
        "dropout": 0.1,
        "memory_dropout": 0.3,
        "input_dropout": 0.1,
        "padding": "left",
    }
    return {
        **every_network(128),
        "Ordered Memory": NetworkConfig("OrderedMemory", memory),
        "Ordered Memory, Tree-RNN cell": NetworkConfig("OrderedMemory", {**memory, "cell": "rnn"}),
        "ON-LSTM": NetworkConfig("ONLSTM", {**size, "chunk_size": 8, "num_layers": 1, "input_dropout": 0.1}),
        "LSTM": NetworkConfig("LSTM", {**size, "input_dropout": 0.1}),
        "Transformer": NetworkConfig("Transformer", {**attention, "num_layers": 21}),
        "Universal Transformer": NetworkConfig("UniversalTransformer", {**attention, "num_steps": 21}),
    }


@dataclass(frozen=True)
class ListOps(ClassificationTask):
    """Expressions such as ``[MAX 2 9 [MIN 4 7 ] 0 ]`` and their value, a digit.

    Tree networks run over the gold trees. Sequence networks read the leaves, which in the binary form are the tokens of
    the expression. Data are forests of expressions in the task's form, with ``tree_data["label"]`` (-1 if it is not
    known) and, if the data are divided, ``tree_data["split"]``.

    Args:
        form: of the trees. ``"binary"``, as published: operators, digits and ``]`` are leaves, and every list branches
            to the left. ``"nary"``: operators are inner nodes, their arguments the children.
        max_arguments: the most arguments that n-ary operators have parameters for.
        dropout: of the head, before its one layer.
        group_by: the groups of scores. ``"length"``: the number of tokens, in bins up to 10, 20, 30, 50, 100, 200, ...,
            1000, 2000, ...; ``"arguments"``: the most arguments of a list, in bins up to 5, 10, ...; ``"depth"``: the
            number of nested lists. A ``curriculum`` of one number goes by these groups, one in stages by the number of
            tokens.
        rare_operators: whether the networks know ``[PM`` and ``[FLSUM`` too, which some published files have.

    Raises:
        RecipeError: an unknown form or group, or a number out of its range.
    """

    name: ClassVar[str] = "listops"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"  # of the default
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")  # as the recorded results were chosen
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = ListOpsDataOptions
    text_columns: ClassVar[tuple[str, ...]] = ("label", "tree")
    scoring_options: ClassVar[frozenset[str]] = frozenset({"group_by"})
    record_fields: ClassVar[Mapping[str, str]] = {
        "tree": "the expression, plain or in binary brackets (or expression, or Source)",
        "label": "the digit that it comes to (or Target)",
    }
    class_names: ClassVar[tuple[str, ...]] = DIGITS

    form: ListOpsForm = "binary"
    max_arguments: Count = 5
    dropout: Probability = 0.2
    group_by: GroupBy = "length"
    rare_operators: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "group", self.group_by)  # what results of this task call its groups

    @property
    def options(self) -> dict[str, Any]:
        """The options; without ``rare_operators`` unless they are used, as in checkpoints that are older."""
        return {name: value for name, value in super().options.items() if name != "rare_operators" or value}

    @property
    def token_form(self) -> TokenForm:
        """The leaves of binary trees, which are the tokens; for n-ary trees, whose operators are nodes, functions."""
        return "leaves" if self.form == "binary" else "function"

    @property
    def vocabulary(self) -> Vocabulary:
        """Binary: every token is a leaf, with one composition; n-ary: one composition for each operator and arity."""
        rare = RARE_OPERATORS if self.rare_operators else ()
        if self.form == "binary":
            return Vocabulary((*TOKENS, *rare), [(CONSTITUENT, 2)])
        arities = range(1, self.max_arguments + 1)
        return Vocabulary(DIGITS, [(operator, arity) for operator in (*OPERATORS, *rare) for arity in arities])

    def make_data(self, options: ListOpsDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the expressions that ``options`` ask for.

        Raises:
            RecipeError: too few expressions, a file without any or with some of another split, or a list of more than
                ``max_arguments`` for the n-ary form.
            ParseError: a line of a file is not a labelled expression.
        """
        data = make_listops_data(options, self.form)
        most = int(data.forest.arity.max(initial=0))
        if self.form == "nary" and most > self.max_arguments:
            raise RecipeError(
                f"some lists have {most} arguments, and the task's operators at most {self.max_arguments}; "
                f"set task_options.max_arguments to {most}"
            )
        return data

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        """Return ``label``, ``tree`` as plain text, ``set``, ``split``, and what scores are grouped by."""
        data, labels = examples.forest, examples.targets["label"].tolist()
        return {
            "label": [None if label < 0 else label for label in labels],
            "tree": map(format_listops, data),
            **({"set": map(str, data.tree_data["set"])} if "set" in data.tree_data else {}),
            **split_column(examples),
            self.group: self._counted(data).tolist(),
        }

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the expressions of a file; see :func:`~treemem.tasks.listops.readers.read_listops`.

        Raises:
            RecipeError, ParseError: as there, and for a file without expressions.
            VocabularyError: a list of more than ``max_arguments`` for the n-ary form.
        """
        forest = read_listops(source, self.form, format=format, labelled=False)
        if not len(forest):
            raise RecipeError(f"there are no expressions in {os.fspath(source)}")
        if self.form == "nary":
            self._check_arguments(forest, os.fspath(source))
        return forest

    def _check_arguments(self, forest: Forest, source: str) -> None:
        too_many = np.flatnonzero(forest.arity > self.max_arguments)
        if len(too_many):
            tree = int(np.searchsorted(forest.begin, too_many[0], side="right")) - 1
            name, arity = forest.labels[forest.label[too_many[0]]], int(forest.arity[too_many[0]])
            problem = f"a list {name} of {arity} arguments, and the task's operators have at most {self.max_arguments}"
            raise VocabularyError(problem, line=int(forest.tree_data["line"][tree]), source=source)

    def parse(self, text: str) -> Tree:
        return parse_listops(text, self.form)

    @property
    def reader(self) -> ListOpsRecords:
        return ListOpsRecords(self.form)

    def examples(self, data: Forest) -> Examples:
        """Return an example for each expression.

        Raises:
            RecipeError: unknown labels or splits.
            GraphError: a tree is not an expression, if scores are not grouped by length.
            VocabularyError: a rare operator, without ``rare_operators``.
        """
        rare = (
            [] if self.rare_operators else [data.labels.index(name) for name in RARE_OPERATORS if name in data.labels]
        )
        unknown = np.flatnonzero(np.isin(data.label, rare)) if rare else np.empty(0, np.int64)
        if len(unknown):
            problem = f"the networks do not know {data.labels[data.label[unknown[0]]]}"
            raise VocabularyError(f"{problem}; train one with task_options.rare_operators=true")
        return super().examples(data)

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        return Groups(_BIN[self.group_by](self._counted(forest)), num_tokens(forest))

    def group_name(self, group: int) -> str:
        """Return the range of a bin of lengths or arguments, such as ``"11-20"``."""
        if self.group_by == "depth":
            return str(group)
        ends = range(0, group, 5) if self.group_by == "arguments" else [0, *_BIN_ENDS, *range(1000, group, 1000)]
        return f"{max(int(end) for end in ends if end < group) + 1}-{group}"

    def _counted(self, data: Forest) -> NDArray[np.int64]:
        """Return what scores are grouped by, before binning; int64 ``[trees]``."""
        if self.group_by == "length":
            return num_tokens(data)
        expressions = expressions_of_forest(data)
        return most_arguments(expressions) if self.group_by == "arguments" else expressions.depth()


def num_tokens(forest: Forest) -> NDArray[np.int64]:
    """Return the number of tokens of each expression, in either form; int64 ``[trees]``."""
    is_constituent = np.array([label == CONSTITUENT for label in forest.labels], bool)[forest.label]
    tokens = np.where(forest.arity == 0, 1, np.where(is_constituent, 0, 2))  # a list is an operator and its "]"
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(tokens, dtype=np.int64)])
    return total[forest.begin[1:]] - total[forest.begin[:-1]]


def most_arguments(expressions: Expressions) -> NDArray[np.int64]:
    """Return the most arguments of a list in each expression, 0 for a lone digit; int64 ``[expressions]``."""
    nary = expressions.forest("nary")
    return np.maximum.reduceat(nary.arity.astype(np.int64), nary.begin[:-1]) if len(nary) else np.empty(0, np.int64)


def arguments_bin(arguments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper end of the bin of each number of arguments: 5, 10, 15, ..."""
    return -(-np.maximum(arguments, 1) // 5) * 5


def length_bin(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper end of the bin of each length."""
    place = np.searchsorted(_BIN_ENDS, length)
    return np.where(place < len(_BIN_ENDS), _BIN_ENDS[np.minimum(place, len(_BIN_ENDS) - 1)], -(-length // 1000) * 1000)


_BIN: dict[GroupBy, Callable[[NDArray[np.int64]], NDArray[np.int64]]] = {
    "length": length_bin,
    "arguments": arguments_bin,
    "depth": lambda depth: depth,
}
"""The bins of what scores are grouped by."""
