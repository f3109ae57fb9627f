"""The expressions of the task, generated or read from files, and their splits."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count, Natural, check_fields
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.listops.generation.evaluation import values_of
from treemem.tasks.listops.generation.expression_sets import IID, find_set
from treemem.tasks.listops.generation.generator import ListOpsDistribution, Sampler, draw_distinct
from treemem.tasks.listops.readers import read_expressions
from treemem.trees.formats.listops import ListOpsForm
from treemem.trees.formats.listops_arrays import Expressions, join
from treemem.trees.formats.record_reader import SPLITS

_logger = logging.getLogger(__name__)

TRAINING = "training"
_TRAINING_SIZE = 20_000  # of generated ones
_PUBLISHED_SIZE = 100_000  # expressions in the published files


@dataclass(frozen=True)
class ListOpsDataOptions:
    """Which expressions to train on and to test with.

    Lengths count tokens: digits, operators and ``]``. Depths count nested lists.

    Attributes:
        training_size: number of training expressions: generated, or of the shuffled ``training_file``. None: 20,000
            generated ones, or all of the file.
        validation_size: number of validation expressions.
        training_length: leave out longer training expressions, but keep those of the ``"iid"`` sets. None: keep all.
        test_size: number of expressions in each of ``test_sets``.
        test_sets: what to test with: ``"iid"``, like the training expressions; a name such as ``"31-50"`` or ``"10
            arguments"``; or a description such as ``"length 31-50 depth 2-7 arguments 10 probability 0.3"``. See
            :func:`~treemem.tasks.listops.generation.expression_sets.find_set`.
        validation_set: what to validate with, likewise.
        min_length, max_length, max_depth, max_arguments, list_probability, bare_digits: the distribution of training
            expressions; see :class:`~treemem.tasks.listops.generation.generator.ListOpsDistribution`. With a
            ``training_file`` they are the defaults of the other sets.
        pool: draw training and ``"iid"`` expressions from so many different ones; more if the sets need more, fewer if
            there are no more. The published files have 100,000. A larger pool has a smaller share of short ones. Not
            with ``training_file``.
        seed: of all choices.
        training_file: take the training and ``"iid"`` expressions from this file, each different one once
            (:func:`~treemem.tasks.listops.readers.read_listops`). A warning counts those that ``validation_file`` or
            ``test_file`` has too.
        validation_file, test_file: take all expressions of the file instead of an ``"iid"`` set. A file must not have
            records of another split.
    """

    training_size: Count | None = None
    validation_size: Count = 2_000
    test_size: Count = 2_000
    training_length: Count | None = None
    test_sets: list[str] = field(default_factory=lambda: [IID])
    validation_set: str = IID
    min_length: int = 1
    max_length: int = 30
    max_depth: int = 19
    max_arguments: int = 5
    list_probability: float = 0.25
    bare_digits: bool = False
    pool: Natural = _PUBLISHED_SIZE
    seed: Natural = 12093
    training_file: str | None = None
    validation_file: str | None = None
    test_file: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "data.")
        if len(set(self.test_sets)) < len(self.test_sets):
            raise RecipeError(f"data.test_sets names a set twice: {', '.join(self.test_sets)}; name each once")
        if not self.test_sets and self.test_file is None:
            raise RecipeError("data.test_sets is empty; name a set, such as iid")
        if self.validation_file is not None and self.validation_set != IID:
            raise RecipeError(
                f"data.validation_set is {self.validation_set!r}, and data.validation_file names the expressions to "
                "validate with; choose one"
            )
        for name in (*self.test_sets, self.validation_set):
            find_set(name, self.distribution)

    @property
    def distribution(self) -> ListOpsDistribution:
        """The distribution of training expressions."""
        return ListOpsDistribution(
            min_length=self.min_length,
            max_length=self.max_length,
            max_depth=self.max_depth,
            max_arguments=self.max_arguments,
            list_probability=self.list_probability,
            bare_digits=self.bare_digits,
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """The expressions of one set."""

    split: str
    name: str
    expressions: Expressions


def make_listops_data(options: ListOpsDataOptions, form: ListOpsForm = "binary") -> TaskData:
    """Return the expressions that ``options`` ask for. No expression is generated twice.

    Returns:
        A forest with ``tree_data``: ``"label"``, ``"split"``, and ``"set"``, the name of the set (``"training"`` for
            training expressions).

    Raises:
        RecipeError: there are too few expressions, or a file has some of another split.
        ParseError: a line of a file is not a labelled expression.
    """
    random = np.random.default_rng(options.seed)
    files = {"validation": options.validation_file, "test": options.test_file}
    parts = [_Part(split, IID, _of_file(path, split)) for split, path in files.items() if path is not None]
    notes = [f"The {split} expressions of {IID} are those of {path}." for split, path in files.items() if path]
    seen = {spelling for part in parts for spelling in part.expressions.spellings()}
    wanted = _wanted(options)
    like_training = [entry for entry in wanted if entry.name == IID]
    held_out = sum(entry.size for entry in like_training)
    others = [entry for entry in wanted if entry.name != IID]
    for _, name, _ in others:
        with _naming_set(name):
            Sampler(find_set(name, options.distribution))  # before the pool is drawn, which takes longer
    if options.training_file is None:
        size = _TRAINING_SIZE if options.training_size is None else options.training_size
        pool, note = _generated_pool(options, held_out + size, random, seen)
    else:
        pool, note = _file_pool(options.training_file, held_out, options.training_size, random, seen)
    first = 0
    for split, name, size in like_training:
        parts.append(_Part(split, name, pool.chosen(np.arange(first, first + size))))
        first += size
    training, left_out = _training_part(options, pool.chosen(np.arange(first, len(pool))))
    parts.append(training)
    notes += [note, left_out]
    seen.update(spelling for part in parts for spelling in part.expressions.spellings())
    for split, name, size in others:
        with _naming_set(name):
            drawn = draw_distinct(find_set(name, options.distribution), size, random, seen)
        parts.append(_Part(split, name, drawn))
    parts.sort(key=lambda part: SPLITS.index(part.split))
    return _task_data(parts, notes, form)


class _Wanted(NamedTuple):
    """A set to validate or test with."""

    split: str
    name: str
    size: int


@contextlib.contextmanager
def _naming_set(name: str) -> Iterator[None]:
    """Add the name of the set to errors."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"the set {name!r}: {error}") from error


def _wanted(options: ListOpsDataOptions) -> list[_Wanted]:
    """Return the sets that are not read from a file."""
    wanted = []
    if options.validation_file is None:
        wanted.append(_Wanted("validation", options.validation_set, options.validation_size))
    names = [name for name in options.test_sets if name != IID or options.test_file is None]
    return [*wanted, *(_Wanted("test", name, options.test_size) for name in names)]


def _of_file(path: str, split: str) -> Expressions:
    """Return the expressions of a file, after checking that none is of another split."""
    labelled = read_expressions(path)
    if not len(labelled.expressions):
        raise RecipeError(f"there are no expressions in {path}")
    others = np.flatnonzero((labelled.split != "") & (labelled.split != split))
    if len(others):
        option = "training_file" if split == "train" else f"{split}_file"
        raise RecipeError(
            f"data.{option} is {path}, and {len(others)} of its {len(labelled.expressions)} expressions are not of the "
            f"split {split}: line {labelled.line[others[0]]} says {labelled.split[others[0]]}; give a file of {split} "
            "alone, such as `treemem generate listops -o FOLDER` writes for each split, or leave the field split out"
        )
    return labelled.expressions


def _generated_pool(
    options: ListOpsDataOptions, count: int, random: np.random.Generator, seen: set[bytes]
) -> tuple[Expressions, str]:
    """Return ``count`` different expressions in random order, and a note on where they come from."""
    size = max(options.pool, count)
    expressions = draw_distinct(options.distribution, size, random, set(seen), least=count)
    return expressions.chosen(random.permutation(len(expressions))[:count]), (
        f"Training and {IID} expressions are chosen at random from {len(expressions)} different ones of "
        f"{options.distribution}, of {expressions.length().mean():.2f} tokens on average."
    )


def _file_pool(
    path: str, held_out: int, training_size: int | None, random: np.random.Generator, seen: set[bytes]
) -> tuple[Expressions, str]:
    """Return the ``held_out`` and the training expressions of a file, shuffled, and a note on them."""
    expressions = _of_file(path, "train")
    different = _first_of_each(expressions)
    left = len(different) - held_out
    size = left if training_size is None else training_size
    if size > left or left <= 0:
        raise RecipeError(
            f"{path} holds {len(different)} different expressions to train on; {held_out} of them are to validate and "
            f"test with, which leaves {max(0, left)}"
            + (f", and data.training_size is {size}; data.training_size=null takes all of these" if left > 0 else "")
            + "; ask for fewer, or give files to validate and test with"
        )
    pool = expressions.chosen(random.permutation(different)[: held_out + size])
    known = sum(spelling in seen for spelling in pool.spellings())
    if known:
        _logger.warning(
            "%d of the %d expressions taken from %s stand in the files to validate and test with, too",
            known, len(pool), path,
        )  # fmt: skip
    return pool, (
        f"Training expressions are those of {path}: of its {len(expressions)}, {len(different)} differ, {held_out} of "
        f"these are held out for {IID}, and {size} of the other {left} are taken. {known} of those held out or taken "
        "stand in the other files too."
    )


def _training_part(options: ListOpsDataOptions, expressions: Expressions) -> tuple[_Part, str]:
    """Return the training expressions, and a note on how many are left out."""
    if options.training_length is None:
        return _Part("train", TRAINING, expressions), "None of them is left out for its length."
    kept = np.flatnonzero(expressions.length() <= options.training_length)
    if not len(kept):
        raise RecipeError(f"data.training_length is {options.training_length}, and every training expression is longer")
    note = f"{len(expressions) - len(kept)} training expressions of over {options.training_length} tokens are left out."
    return _Part("train", TRAINING, expressions.chosen(kept)), note


def _first_of_each(expressions: Expressions) -> NDArray[np.int64]:
    """Return the indices of the expressions that do not repeat an earlier one."""
    first: dict[bytes, int] = {}
    for index, key in enumerate(expressions.spellings()):
        first.setdefault(key, index)
    return np.array(list(first.values()), np.int64)


def _task_data(parts: list[_Part], notes: list[str], form: ListOpsForm) -> TaskData:
    expressions = join([part.expressions for part in parts])
    sizes = [len(part.expressions) for part in parts]
    tree_data = {
        "label": values_of(expressions).astype(np.int8),
        "split": np.repeat([part.split for part in parts], sizes),
        "set": np.repeat([part.name for part in parts], sizes),
    }
    head = ["split", "set", "expressions", "tokens, mean", "shortest", "longest", "deepest"]
    card = data_card("# ListOps", head, map(_card_row, parts)) + "\n" + "".join(f"{note}\n" for note in notes)
    return TaskData(expressions.forest(form).with_data(tree_data=tree_data), card)


def _card_row(part: _Part) -> list[object]:
    length, depth = part.expressions.length(), part.expressions.depth()
    return [part.split, part.name, len(length), f"{length.mean():.2f}", length.min(), length.max(), depth.max()]
