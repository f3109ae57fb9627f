"""The pairs of the task: generated or read from files, and divided into training, validation and test."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.data.examples import TaskData
from treemem.errors import ParseError, RecipeError, near_names
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.tasks.logical_inference.generation.generator import generate_logic
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.tasks.logical_inference.readers import MOST_OPERATIONS, read_logic_folder
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR, VARIABLES, WORDS, LogicForm
from treemem.trees.record_reader import SPLITS
from treemem.trees.source_text import shorten
from treemem.trees.tree import Tree
from treemem.trees.tree_pattern import ANY_SUBTREE, TreePattern
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

SYSTEMATIC = {
    "A": "( and ( not a ) )",
    "B": "( and ( not _ ) )",
    "C": "( and|or ( not _ ) )",
}
"""The systematic splits of Shen et al. 2019: pairs with such a subtree on either side are kept from training."""

_FORMULA, _CONNECTIVE = "formula", "and or or"
_REST = "rest"  # the bracket of a connective and the formula after it
_SORT_OF_WORD = {**dict.fromkeys(VARIABLES, _FORMULA), NOT: NOT, AND: _CONNECTIVE, OR: _CONNECTIVE}
_SORT_OF_BRACKET = {(NOT, _FORMULA): _FORMULA, (_FORMULA, _REST): _FORMULA, (_CONNECTIVE, _FORMULA): _REST}
_BRACKETS = f"'( {NOT} F )', '( F ( {AND} F ) )' and '( F ( {OR} F ) )', or the inner one of these alone"


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
        checked_count("size", self.size)
        checked_count("seed", self.seed, least=0)
        checked_count("max_operations", self.max_operations)
        checked_count("max_training_operations", self.max_training_operations, least=0)
        checked_count("validation_every", self.validation_every, least=2)
        if self.training_size is not None:
            checked_count("training_size", self.training_size)
        if self.hide_test and self.path is None:
            raise RecipeError("hide_test goes with path: generated pairs come with a test of their own")
        if self.hold_out is not None:
            try:
                held_out_pattern(self.hold_out)
            except RecipeError as error:
                raise RecipeError(f"hold_out: {error}") from error
            except ParseError as error:
                raise RecipeError(f"hold_out is neither A, B, C nor a pattern in brackets: {error}") from error


def make_logic_data(options: LogicDataOptions, form: LogicForm, vocabulary: Vocabulary) -> TaskData:
    """Return the pairs that ``options`` ask for.

    Args:
        options: what to generate or read.
        form: of the trees.
        vocabulary: of the trees.

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
    forest = with_operators(pairs.forest) if form == "operators" else pairs.forest
    if options.path is not None:
        source += _leaked(SubtreeIndex(forest, vocabulary), forest, split[kept], options.path)
    data = {"label": pairs.label, "split": split[kept], "operations": pairs.operations}
    forest = forest.with_data(tree_data={name: np.repeat(array, 2) for name, array in data.items()})
    return TaskData(forest, _card(source, options, split, is_validation is not None))


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


def held_out_pattern(name_or_pattern: str) -> TreePattern:
    """The pattern of a systematic split by its letter, or one in brackets whose first item is a child.

    Raises:
        ParseError: neither.
        RecipeError: no bracket, or one that no formula of the form ``"binary"`` has, so that nothing could match it.
    """
    pattern = TreePattern.parse(SYSTEMATIC.get(name_or_pattern, name_or_pattern), first="child")
    if not pattern.tree.children:
        raise RecipeError(
            f"{name_or_pattern!r} is none of {', '.join(SYSTEMATIC)}, and no pattern in brackets such as "
            f"'( or ( not {ANY_SUBTREE} ) )'{near_names(name_or_pattern, SYSTEMATIC)}"
        )
    sorts: list[frozenset[str]] = []  # of the nodes whose parent is yet to come
    for node in pattern.tree.postorder():
        children = sorts[len(sorts) - len(node.children) :]
        del sorts[len(sorts) - len(children) :]
        sorts.append(_sorts_of_bracket(node, children) if children else _sorts_of_leaf(node))
    return pattern


def _sorts_of_leaf(leaf: Tree) -> frozenset[str]:
    """What a leaf of a pattern may be: ``NOT``, ``_CONNECTIVE``, ``_FORMULA`` or ``_REST``."""
    if leaf.label == ANY_SUBTREE:
        return frozenset({NOT, _CONNECTIVE, _FORMULA, _REST})
    names = leaf.label.split("|")
    if "" in names:
        raise RecipeError(f"{shorten(leaf.label)} in the pattern; alternatives are joined without blanks: {AND}|{OR}")
    if ANY_SUBTREE in names[1:] + names[:-1]:
        raise RecipeError(f"{shorten(leaf.label)} in the pattern; {ANY_SUBTREE} stands for anything, and so alone")
    for name in names:
        if name not in _SORT_OF_WORD:
            words = [ANY_SUBTREE, *WORDS]
            raise RecipeError(
                f"the pattern has the word {shorten(name)}{near_names(name, words)}; there are {' '.join(words)}"
            )
    return frozenset(_SORT_OF_WORD[name] for name in names)


def _sorts_of_bracket(bracket: Tree, children: Sequence[frozenset[str]]) -> frozenset[str]:
    """What a bracket of a pattern may be, given what its items may be: ``_FORMULA`` or ``_REST``, at least one."""
    shown = shorten(str(bracket).replace(CONSTITUENT + " ", ""))
    if len(children) != 2:
        problem = f"has {len(children)} item{'s' * (len(children) != 1)}, and those of formulas have two"
        raise RecipeError(f"the bracket {shown} {problem}: {_BRACKETS}")
    left, right = children
    sorts = {sort for (first, second), sort in _SORT_OF_BRACKET.items() if first in left and second in right}
    if not sorts:
        raise RecipeError(f"no formula has the bracket {shown}; there are {_BRACKETS}")
    return frozenset(sorts)


def examples_with(forest: Forest, pattern: TreePattern, trees_per_example: int) -> NDArray[np.bool_]:
    """Which examples have a tree in which the pattern occurs, bool ``[examples]``."""
    return np.asarray(pattern.occurs(forest).reshape(-1, trees_per_example).any(1))


def divided(
    operations: NDArray[np.int64],
    is_test: NDArray[np.bool_],
    held_out: NDArray[np.bool_] | None,
    is_validation: NDArray[np.bool_] | None = None,
    *,
    max_training_operations: int,
    validation_every: int,
) -> NDArray[np.str_]:
    """The split of each pair: ``"train"``, ``"validation"``, ``"test"``, or ``""`` for one that is left out.

    Pairs that are not for the test and have few enough operations are for training; the last of every so many
    of them is for validation, as in the authors' code, or else those that are given for it. All pairs for the test
    are for it, unless something is held out: then those that have it and more operations than any pair for training.

    Args:
        operations: of each pair, int64 ``[pairs]``.
        is_test: which pairs are kept for the test, bool ``[pairs]``.
        held_out: which pairs have what is held out; None: nothing is.
        is_validation: which pairs are given for validation, bool ``[pairs]``; None: one in so many is.
        max_training_operations: of the pairs for training and for validation.
        validation_every: how many of these there are for one that is for validation, where none are given.
    """
    split = np.full(len(operations), "", "<U10")
    for_training = ~is_test & (operations <= max_training_operations)
    for_test = is_test
    if held_out is not None:
        for_training = for_training & ~held_out
        for_test = is_test & held_out & (operations > max_training_operations)
    chosen = np.flatnonzero(for_training)
    split[chosen] = "train"
    if is_validation is None:
        split[chosen[validation_every - 1 :: validation_every]] = "validation"
    else:
        split[for_training & is_validation] = "validation"
    split[for_test] = "test"
    return split
