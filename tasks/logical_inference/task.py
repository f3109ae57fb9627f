"""Logical inference: which of seven relations holds between two formulas?"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray
from torch import nn

from treemem.checked_options import checked_choice, checked_count, checked_flag, checked_path, checked_probability
from treemem.data.examples import Examples, TaskData, label_numbers, split_and_group, split_numbers
from treemem.errors import GraphError, ParseError, RecipeError
from treemem.metrics.score import PublishedFigure
from treemem.networks import NetworkConfig
from treemem.nn.heads import ClassifierHead, RelationHead
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.task import ClassificationTask
from treemem.tasks.logical_inference.generation.generator import generate_logic
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.tasks.logical_inference.generation.relations import RELATIONS
from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES
from treemem.tasks.logical_inference.readers import (
    MOST_OPERATIONS,
    PAIR,
    LogicRecords,
    pair_operations,
    read_logic,
    read_logic_folder,
)
from treemem.tasks.logical_inference.splits import divided, examples_with, held_out_pattern
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR, VARIABLES, WORDS, LogicForm, format_logic, parse_logic
from treemem.trees.record_reader import SPLITS
from treemem.trees.source_text import decode_source
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

_LABEL = "the place of a relation among the seven, or -1 (not said), for each formula"

_logger = logging.getLogger(__name__)


def _networks() -> dict[str, NetworkConfig]:
    words = {"embedding_bound": 0.1, "input_dropout": 0.1}
    dropouts = {"dropout": 0.2, "memory_dropout": 0.2}
    slots = {"slots": 12, "evaluation_slots": 24}
    memory = {"hidden_size": 200, "embedding_size": 200, **slots, **words, **dropouts}
    attention = {"hidden_size": 200, "num_heads": 8, "feedforward_size": 800, "dropout": 0.1, "joint": True}
    return {
        "Tree-RNN": NetworkConfig("TreeRNN", {"hidden_size": 200, "activation": "tanh"}),
        "Tree-LSTM": NetworkConfig("TreeLSTM", {"hidden_size": 200}),
        "Tree-LSTM+stack+normalize": NetworkConfig(
            "StackTreeLSTM", {"hidden_size": 200, "stack_size": 5, "normalize": True}
        ),
        "TreeCell": NetworkConfig("TreeCell", {"hidden_size": 200, "dropout": 0.2, "leaf_dropout": 0.1}),
        "Ordered Memory": NetworkConfig("OrderedMemory", memory),
        "Ordered Memory, Tree-RNN cell": NetworkConfig("OrderedMemory", {**memory, "cell": "rnn"}),
        "ON-LSTM": NetworkConfig("ONLSTM", {"hidden_size": 200, "chunk_size": 10, "num_layers": 1, **words}),
        "LSTM": NetworkConfig("LSTM", {"hidden_size": 200, **words}),
        "Transformer": NetworkConfig("Transformer", {**attention, "num_layers": 12}),
        "Universal Transformer": NetworkConfig("UniversalTransformer", {**attention, "num_steps": 12}),
    }


@dataclass(frozen=True)
class LogicDataOptions:
    """Which pairs to train on and to test with.

    Attributes:
        path: folder of the published files, see
            :func:`~treemem.tasks.logical_inference.readers.read_logic_folder`; None: pairs are generated.
        size: how many to generate; does not count where ``path`` is given.
        seed: of the generator, and of the order that ``training_size`` goes by.
        max_operations: of the formulas generated; does not count where ``path`` is given.
        max_training_operations: pairs with more are for the test alone.
        validation_every: of the pairs for training, one in so many is for validation; none where ``path`` has files of
            pairs for validation.
        training_size: keep the first so many of the pairs for training, in an order that ``seed`` shuffles; None: all.
            There must be so many.
        hold_out: ``"A"``, ``"B"`` or ``"C"`` for a systematic split, or any pattern in brackets such as
            ``"( or ( not _ ) )"``: pairs in which it occurs are kept from training, and the test has those of them
            alone that have more operations than the training pairs. None: nothing is held out.
        hide_test: leave the published test pairs out, and test with the longer pairs of the published training files
            in their place: for choosing a recipe before the test.
    """

    path: str | None = None
    size: int = 50_000
    seed: int = 1111
    max_operations: int = MOST_OPERATIONS
    max_training_operations: int = 6
    validation_every: int = 10
    training_size: int | None = None
    hold_out: str | None = None
    hide_test: bool = False

    def __post_init__(self) -> None:
        if self.path is not None:
            checked_path("path", self.path)
        checked_count("size", self.size)
        checked_count("seed", self.seed, least=0)
        checked_count("max_operations", self.max_operations)
        checked_count("max_training_operations", self.max_training_operations, least=0)
        checked_count("validation_every", self.validation_every, least=2)
        if self.training_size is not None:
            checked_count("training_size", self.training_size)
        if checked_flag("hide_test", self.hide_test) and self.path is None:
            raise RecipeError("hide_test goes with path: generated pairs come with a test of their own")
        if self.hold_out is not None:
            try:
                held_out_pattern(self.hold_out)
            except RecipeError as error:
                raise RecipeError(f"hold_out: {error}") from error
            except ParseError as error:
                raise RecipeError(f"hold_out is neither A, B, C nor a pattern in brackets: {error}") from error


@dataclass(frozen=True)
class LogicalInference(ClassificationTask):
    """Pairs of formulas of propositional logic and the relation between them (Bowman et al. 2015), by operations.

    Data are forests of two formulas a pair, adjacent. ``tree_data`` has one entry a formula, the same for both of a
    pair: ``label``, index into ``RELATIONS`` or -1 where nobody said; ``split``, where the data are divided.

    Args:
        form: what tree networks read: ``"binary"``: words are leaves and brackets nodes, as published; ``"operators"``:
            operators are inner nodes. Sequence networks read the words and brackets of the former and functions,
            ``and ( a , b )``, of the latter, unless their option ``form`` says otherwise.
        dropout: of the head: before the comparison layer and before the classifier (the authors' ``dropouto``).

    Raises:
        RecipeError: another form.
    """

    name: ClassVar[str] = "logical_inference"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "operations"
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = LogicDataOptions
    text_columns: ClassVar[tuple[str, ...]] = ("operations", "label", "left", "right")
    record_fields: ClassVar[Mapping[str, str]] = {
        "left, right": "the formulas, as in ( ( not a ) ( and b ) ) (or lhs, rhs)",
        "label": f"the relation, one of {' '.join(RELATIONS)}",
        "operations": "the larger of their numbers of operators (or n_ops); may be left out",
        "split": "train, validation or test; may be left out",
    }

    form: LogicForm = "binary"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checked_choice("form", self.form, get_args(LogicForm))
        checked_probability("dropout", self.dropout)

    @property
    def token_form(self) -> TokenForm:
        """Of binary trees the words and brackets; of the others, whose operators are nodes, functions."""
        return "bracketed leaves" if self.form == "binary" else "function"

    @property
    def vocabulary(self) -> Vocabulary:
        if self.form == "binary":
            return Vocabulary(WORDS, [(CONSTITUENT, 2)])
        return Vocabulary(VARIABLES, [(NOT, 1), (AND, 2), (OR, 2)])

    def make_data(self, options: LogicDataOptions, *, progress: bool | None = None) -> TaskData:
        """The pairs that ``options`` ask for.

        Raises:
            RecipeError: a folder without the published files, or options that leave no pair for training, validation or
                test, or fewer for training than they ask for.
            ParseError: a line of a file that is no pair.
        """
        if options.path is not None:
            pairs, is_test = read_logic_folder(options.path)
            source = f"{len(pairs)} pairs of {options.path}"
            if options.hide_test:
                pairs = pairs[np.flatnonzero(~is_test)]
                is_test = (pairs.operations > options.max_training_operations) & (pairs.split == "train")
                source = f"{len(pairs)} pairs of {options.path} without its test files"
        else:
            pairs, is_test = generate_logic(options.size, seed=options.seed, max_operations=options.max_operations)
            is_test = is_test | (pairs.operations > options.max_training_operations)
            source = f"{len(pairs)} pairs generated with seed {options.seed}"
        is_validation = None if pairs.split is None or "validation" not in pairs.split else pairs.split == "validation"
        held_out = None
        if options.hold_out is not None:
            held_out = examples_with(pairs.forest, held_out_pattern(options.hold_out), 2)
        split = divided(
            pairs.operations,
            is_test,
            held_out,
            is_validation,
            max_training_operations=options.max_training_operations,
            validation_every=options.validation_every,
        )
        empty = [name for name in SPLITS if name not in split]
        if empty:
            raise RecipeError(_why_empty(empty, held_out, options))
        if options.training_size is not None:
            training = np.random.default_rng(options.seed).permutation(np.flatnonzero(split == "train"))
            if options.training_size > len(training):
                raise RecipeError(
                    f"training_size is {options.training_size}, and these options leave {len(training)} pairs for "
                    "training; data.training_size=null takes them all, or ask for more pairs"
                )
            split[training[options.training_size :]] = ""
        kept = np.flatnonzero(split != "")
        pairs = pairs[kept]
        forest = with_operators(pairs.forest) if self.form == "operators" else pairs.forest
        if options.path is not None:
            source += _leaked(SubtreeIndex(forest, self.vocabulary), forest, split[kept], options.path)
        data = {"label": pairs.label, "split": split[kept], "operations": pairs.operations}
        forest = forest.with_data(tree_data={name: np.repeat(array, 2) for name, array in data.items()})
        return TaskData(forest, _card(source, options, split, is_validation is not None))

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Pairs as records: ``label``, ``left`` and ``right`` as in the published files, split and operations."""
        examples = self.examples(data)
        formulas, labels = iter(examples.forest), examples.targets["label"].tolist()
        for left, right, label, rest in zip(
            formulas, formulas, labels, split_and_group(examples, self.group), strict=True
        ):
            said = None if label < 0 else RELATIONS[label]
            yield {"label": said, "left": format_logic(left), "right": format_logic(right), **rest}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """The pairs of a file; see :func:`~treemem.tasks.logical_inference.readers.read_logic`."""
        pairs = read_logic(source, format=format, labelled=False)
        if not len(pairs):
            raise RecipeError(f"there are no pairs in {os.fspath(source)}")
        forest = with_operators(pairs.forest) if self.form == "operators" else pairs.forest
        data: dict[str, NDArray[Any]] = {"label": pairs.label, "operations": pairs.operations}
        if pairs.split is not None:
            data["split"] = pairs.split
        return forest.with_data(tree_data={name: np.repeat(array, 2) for name, array in data.items()})

    def parse(self, text: str) -> Tree:
        """A pair from ``LEFT<TAB>RIGHT``, as a tree whose root joins the two formulas."""
        text = decode_source(text)
        sides = text.split("\t")
        if len(sides) != 2:
            parts = "one part, without a tab" if len(sides) == 1 else f"{len(sides)} parts between tabs"
            raise ParseError(parts, text, 0, "LEFT<TAB>RIGHT")
        return Tree(PAIR, [parse_logic(side, form=self.form) for side in sides])

    @property
    def reader(self) -> LogicRecords:
        return LogicRecords(self.form)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The relations."""
        return RELATIONS

    def examples(self, data: Forest) -> Examples:
        """The pairs of a forest of two formulas each, or of trees that join two.

        Raises:
            GraphError: trees that make no pairs.
            RecipeError: splits that mean nothing.
        """
        joins = PAIR in data.labels and bool((data.label[data.begin[1:] - 1] == data.labels.index(PAIR)).all())
        tree_data = data.tree_data
        if joins and len(data):
            data = data.split_roots()
        elif len(data) % 2:
            raise GraphError(f"{len(data)} formulas make no pairs; the two of a pair must be adjacent")
        else:
            tree_data = {name: array[::2] for name, array in tree_data.items()}
        num_pairs = len(data) // 2
        label = label_numbers(tree_data.get("label"), num_pairs, len(RELATIONS), _LABEL)
        operations = tree_data.get("operations")
        group = pair_operations(data) if operations is None else operations.astype(np.int64)
        return Examples(data, 2, {"label": label}, group, label >= 0, split_numbers(tree_data.get("split")))

    def head(self, hidden_size: int) -> nn.Module:
        """``softmax(W_2 elu(W_1 [l; r; |l - r|; l * r] + b_1) + b_2)``, the head of Shen et al. 2019."""
        return RelationHead(
            hidden_size,
            len(RELATIONS),
            features="differences",
            activation="elu",
            dropout=self.dropout,
            feature_dropout=self.dropout,
        )

    def joint_head(self, hidden_size: int) -> nn.Module:
        """A classifier of one vector for the whole pair (Radford et al. 2018)."""
        return ClassifierHead(hidden_size, len(RELATIONS), dropout=self.dropout)


def _why_empty(empty: Sequence[str], held_out: NDArray[np.bool_] | None, options: LogicDataOptions) -> str:
    """Why no pair is for some of the splits.

    Args:
        empty: those splits.
        held_out: which pairs have what is held out; None: nothing is.
        options: the pairs are what these ask for.
    """
    problem = f"these options leave no pair for {' and '.join(empty)}; ask for more pairs, or others"
    if held_out is None:
        return problem
    found = f"hold_out={options.hold_out!r} occurs in {held_out.sum()} of {len(held_out)} pairs"
    longer = f"those with it that are for the test and have more than {options.max_training_operations} operations"
    return f"{problem}: {found}; training and validation have those without it, the test {longer}"


def _leaked(index: SubtreeIndex, pairs: Forest, split: NDArray[np.str_], path: str) -> str:
    """What the card says of training pairs that are to validate or test with, too, which is also warned of."""
    sides = index.number[pairs.begin[1:] - 1].reshape(-1, 2)
    pair = sides[:, 0] * index.num_distinct + sides[:, 1]
    known = int(np.isin(pair[split == "train"], pair[split != "train"]).sum())
    if not known:
        return ""
    _logger.warning(
        "%d of the %d pairs to train on, of %s, are among those to validate and test with, too",
        known, int((split == "train").sum()), path,
    )  # fmt: skip
    return f", {known} of whose training pairs are among those to validate and test with, too"


def _card(source: str, options: LogicDataOptions, split: NDArray[np.str_], has_validation_files: bool) -> str:
    """What the data are, as Markdown."""
    counts = ", ".join(f"{int((split == name).sum())} for {name}" for name in SPLITS)
    held_out = "" if options.hold_out is None else f" Held out: {options.hold_out}."
    validating = (
        "those of the validation files are" if has_validation_files else f"one pair in {options.validation_every} is"
    )
    return (
        f"# Logical inference\n\n{source}; {counts}. Training and validation have at most "
        f"{options.max_training_operations} operations; of these, {validating} for validation.{held_out}\n"
    )
