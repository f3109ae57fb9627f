"""The expressions of the task: generated or read from files, divided into training, validation and test."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.listops.generation.evaluation import values_of
from treemem.tasks.listops.generation.expression_sets import IID, find_set
from treemem.tasks.listops.generation.generator import ListOpsDistribution, Sampler, draw_distinct
from treemem.tasks.listops.readers import read_expressions
from treemem.trees.listops import ListOpsForm
from treemem.trees.listops_arrays import Expressions, join
from treemem.trees.record_reader import SPLITS

_logger = logging.getLogger(__name__)

TRAINING = "training"
_TRAINING_SIZE = 20_000  # of generated ones
_PUBLISHED_SIZE = 100_000  # expressions in the published files


@dataclass(frozen=True)
class ListOpsDataOptions:
    """Which expressions to train on and to test with.

    Lengths count tokens: digits, operators and ``]``. Depths count the lists that stand within one another.

    Attributes:
        training_size: how many expressions to train on: generated, or the first so many of ``training_file`` in an
            order that ``seed`` shuffles. None: 20,000 generated ones, or all that the file has left.
        validation_size: how many expressions to validate with.
        training_length: leave training expressions of more tokens out, and those of the ``"iid"`` sets in. None: none.
        test_size: how many expressions each of ``test_sets`` has.
        test_sets: what to test with: ``"iid"``, like the training expressions; a name such as ``"31-50"`` or ``"10
            arguments"``; or ``"length 31-50 depth 2-7 arguments 10 probability 0.3"``, any of these. See
            :func:`~treemem.tasks.listops.generation.expression_sets.find_set`.
        validation_set: what to validate with, likewise.
        min_length, max_length, max_depth, max_arguments, list_probability, bare_digits: what training expressions are
            drawn from; see :class:`~treemem.tasks.listops.generation.generator.ListOpsDistribution`. With a
            ``training_file`` they only count for sets other than ``"iid"``, if their names leave them open.
        pool: those to train on, and all ``"iid"`` ones, are chosen at random from so many different ones, or as many as
            there are. As in the published files of 100,000 expressions, no expression stands twice, so a larger pool
            has fewer short ones. Does not count where ``training_file`` is given.
        seed: of all choices.
        training_file: take the training expressions, and those of the ``"iid"`` sets, from this file instead: only
            those that differ. Those that ``validation_file`` or ``test_file`` holds too are kept, and a warning counts
            them. See :func:`~treemem.tasks.listops.readers.read_listops`.
        validation_file, test_file: take these from a file, and all of it whatever ``validation_size`` or ``test_size``
            is, instead of what ``"iid"`` would give. Of no file may a record say that it is for another split.
    """

    training_size: int | None = None
    validation_size: int = 2_000
    test_size: int = 2_000
    training_length: int | None = None
    test_sets: list[str] = field(default_factory=lambda: [IID])
    validation_set: str = IID
    min_length: int = 1
    max_length: int = 30
    max_depth: int = 19
    max_arguments: int = 5
    list_probability: float = 0.25
    bare_digits: bool = False
    pool: int = _PUBLISHED_SIZE
    seed: int = 12093
    training_file: str | None = None
    validation_file: str | None = None
    test_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("validation_size", "test_size"):
            checked_count(f"data.{name}", getattr(self, name))
        if self.training_size is not None:
            checked_count("data.training_size", self.training_size)
        checked_count("data.seed", self.seed, least=0)
        checked_count("data.pool", self.pool, least=0)
        if self.training_length is not None:
            checked_count("data.training_length", self.training_length)
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
        """What training expressions are drawn from."""
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
    """The expressions of one set; ``split`` is what they are for."""

    split: str
    name: str
    expressions: Expressions


def make_listops_data(options: ListOpsDataOptions, form: ListOpsForm = "binary") -> TaskData:
    """The expressions that ``options`` ask for, none of them generated twice.

    Returns:
        A forest with ``tree_data``: ``"label"``; ``"split"``; ``"set"``, the name of the set, for training ones
            ``"training"``.

    Raises:
        RecipeError: fewer expressions than are asked for, or a file with some of another split.
        ParseError: a line of a file that is no labelled expression.
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
        with _telling_set(name):
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
        with _telling_set(name):
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
def _telling_set(name: str) -> Iterator[None]:
    """Say in errors which set cannot be drawn."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"the set {name!r}: {error}") from error


def _wanted(options: ListOpsDataOptions) -> list[_Wanted]:
    """The sets that no file holds."""
    wanted = []
    if options.validation_file is None:
        wanted.append(_Wanted("validation", options.validation_set, options.validation_size))
    names = [name for name in options.test_sets if name != IID or options.test_file is None]
    return [*wanted, *(_Wanted("test", name, options.test_size) for name in names)]


def _of_file(path: str, split: str) -> Expressions:
    """The expressions of a file, each of which is for ``split`` or does not say what it is for."""
    found = read_expressions(path)
    if not len(found.expressions):
        raise RecipeError(f"there are no expressions in {path}")
    others = np.flatnonzero((found.split != "") & (found.split != split))
    if len(others):
        option = "training_file" if split == "train" else f"{split}_file"
        raise RecipeError(
            f"data.{option} is {path}, and {len(others)} of its {len(found.expressions)} expressions are not of the "
            f"split {split}: line {found.line[others[0]]} says {found.split[others[0]]}; give a file of {split} alone, "
            "such as `treemem generate listops -o FOLDER` writes for each split, or leave the field split out"
        )
    return found.expressions


def _generated_pool(
    options: ListOpsDataOptions, count: int, random: np.random.Generator, seen: set[bytes]
) -> tuple[Expressions, str]:
    """``count`` different expressions in random order, and where they come from."""
    size = max(options.pool, count)
    expressions = draw_distinct(options.distribution, size, random, set(seen), least=count)
    return expressions.chosen(random.permutation(len(expressions))[:count]), (
        f"Training and {IID} expressions are chosen at random from {len(expressions)} different ones of "
        f"{options.distribution}, of {expressions.length().mean():.2f} tokens on average."
    )


def _file_pool(
    path: str, held_out: int, training_size: int | None, random: np.random.Generator, seen: set[bytes]
) -> tuple[Expressions, str]:
    """The ``held_out`` different expressions of a file and those to train on, in random order, and what they are."""
    expressions = _of_file(path, "train")
    different = _first_of_each(expressions)
    left = len(different) - held_out
    size = left if training_size is None else training_size
    if size > left or not left:
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
    """The expressions to train on, and how many are left out."""
    if options.training_length is None:
        return _Part("train", TRAINING, expressions), "None of them is left out for its length."
    kept = np.flatnonzero(expressions.length() <= options.training_length)
    if not len(kept):
        raise RecipeError(f"data.training_length is {options.training_length}, and every training expression is longer")
    note = f"{len(expressions) - len(kept)} training expressions of over {options.training_length} tokens are left out."
    return _Part("train", TRAINING, expressions.chosen(kept)), note


def _first_of_each(expressions: Expressions) -> NDArray[np.int64]:
    """The numbers of the expressions that do not repeat an earlier one."""
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
    rows = "\n".join(_card_row(part) for part in parts)
    card = (
        "# ListOps\n\n| split | set | expressions | tokens, mean | shortest | longest | deepest |\n"
        f"|---|---|---|---|---|---|---|\n{rows}\n\n" + "\n".join(notes) + "\n"
    )
    return TaskData(expressions.forest(form).with_data(tree_data=tree_data), card)


def _card_row(part: _Part) -> str:
    length, depth = part.expressions.length(), part.expressions.depth()
    figures = f"{length.mean():.2f} | {length.min()} | {length.max()} | {depth.max()}"
    return f"| {part.split} | {part.name} | {len(length)} | {figures} |"
