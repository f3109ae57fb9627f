"""The pairs of the task, generated or read from files, and their splits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count, Natural, Range, check_fields
from treemem.data.examples import TaskData
from treemem.errors import ParseError, RecipeError, near_names
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.tasks.logical_inference.generation.generator import generate_logic
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.tasks.logical_inference.readers import MOST_OPERATIONS, read_logic_folder
from treemem.trees.forest import Forest
from treemem.trees.formats.logic import AND, OR, WORDS, LogicForm
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.formats.source_text import shorten
from treemem.trees.pairs import with_pair_data
from treemem.trees.tree_pattern import ANY_SUBTREE, TreePattern
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

SYSTEMATIC = {
    "A": "( and ( not a ) )",
    "B": "( and ( not _ ) )",
    "C": "( and|or ( not _ ) )",
}
"""The systematic splits of Shen et al. 2019: pairs with such a subtree on either side are kept from training."""


@dataclass(frozen=True)
class LogicDataOptions:
    """Which pairs to train on and to test with.

    Attributes:
        path: folder of the published files (:func:`~treemem.tasks.logical_inference.readers.read_logic_folder`); None:
            generate pairs.
        size: number of generated pairs.
        seed: of the generator and of the shuffling for ``training_size``.
        max_operations: of generated formulas.
        max_training_operations: pairs with more operations are only tested with.
        validation_every: one in so many training pairs is for validation, unless ``path`` has validation files.
        training_size: number of shuffled training pairs to keep; None: all.
        hold_out: a systematic split ``"A"``, ``"B"`` or ``"C"``, or a pattern in brackets such as
            ``"( or ( not _ ) )"``. Pairs in which it occurs are not trained on; the test has those of them with more
            operations than the training pairs. None: nothing is held out.
        hide_test: test with the longer pairs of the published training files instead of the published test pairs, to
            choose a recipe before the test.
    """

    path: str | None = None
    size: Count = 50_000
    seed: Natural = 1111
    max_operations: Count = MOST_OPERATIONS
    max_training_operations: Natural = 6
    validation_every: Annotated[int, Range(2)] = 10
    training_size: Count | None = None
    hold_out: str | None = None
    hide_test: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
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
        ParseError: a line of a file is not a pair.
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
    return TaskData(with_pair_data(forest, data), _card(source, options, split, is_validation is not None))


def _why_empty(empty: Sequence[str], held_out: NDArray[np.bool_] | None, options: LogicDataOptions) -> str:
    """Return why these splits are empty."""
    problem = f"these options leave no pair for {' and '.join(empty)}; ask for more pairs, or others"
    if held_out is None:
        return problem
    occurrence = f"hold_out={options.hold_out!r} occurs in {held_out.sum()} of {len(held_out)} pairs"
    longer = f"those with it that are for the test and have more than {options.max_training_operations} operations"
    return f"{problem}: {occurrence}; training and validation have those without it, the test {longer}"


def _leaked(index: SubtreeIndex, pairs: Forest, split: NDArray[np.str_], path: str) -> str:
    """Warn of training pairs that are also for validation or test, and return what the card says about them."""
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
    """Return the data card."""
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
    """Return the pattern of a systematic split by its letter, or one in brackets whose first item is a child.

    Raises:
        ParseError: the text is not one bracketed tree.
        RecipeError: it has no bracket, or a word that no formula has.
    """
    pattern = TreePattern.parse(SYSTEMATIC.get(name_or_pattern, name_or_pattern), first="child")
    if not pattern.tree.children:
        raise RecipeError(
            f"{name_or_pattern!r} is none of {', '.join(SYSTEMATIC)}, and no pattern in brackets such as "
            f"'( or ( not {ANY_SUBTREE} ) )'{near_names(name_or_pattern, SYSTEMATIC)}"
        )
    for leaf in pattern.tree.leaves():
        unknown = [name for name in leaf.label.split("|") if name not in WORDS and leaf.label != ANY_SUBTREE]
        if unknown:
            problem = f"the pattern has the word {shorten(unknown[0])}{near_names(unknown[0], WORDS)}"
            raise RecipeError(f"{problem}; there are {ANY_SUBTREE} {' '.join(WORDS)}, and such as {AND}|{OR}")
    return pattern


def examples_with(forest: Forest, pattern: TreePattern, trees_per_example: int) -> NDArray[np.bool_]:
    """Return the examples with a tree in which the pattern occurs, bool ``[examples]``."""
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
    """Return the split of each pair: ``"train"``, ``"validation"``, ``"test"``, or ``""`` if it is left out.

    With ``held_out``, the test has only pairs that are held out and longer than all training pairs.

    Args:
        operations: of each pair, int64 ``[pairs]``.
        is_test: the test pairs, bool ``[pairs]``.
        held_out: the pairs that are held out from training, bool ``[pairs]``; None: nothing is.
        is_validation: the validation pairs, bool ``[pairs]``; None: the last of every ``validation_every`` training
            pairs, as in the authors' code.
        max_training_operations: of training and validation pairs.
        validation_every: see ``is_validation``.
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
