"""The equations of the task: generated, or read from a folder or a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from treemem.checked_options import Count, Natural, Range, check_fields
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.generator import VERSION, generate_equations, with_more_training
from treemem.tasks.equation_verification.generation.numeric import SYMBOLIC, generate_numeric
from treemem.tasks.equation_verification.generation.quotas import DEEPEST, TRAINING_DEPTH, split_by_depth
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS


@dataclass(frozen=True)
class EquationDataOptions:
    """Options of the data of equation verification.

    Attributes:
        size: number of equations to generate.
        seed: of the generator.
        max_depth: the greatest depth generated.
        training_size: generate further equations of depth 1-7, with the next seed, until this number is for training;
            validation and test stay the same. None adds nothing.
        training_depth: the greatest depth of those further equations.
        numeric: number of numeric equations to add to all splits; the task must be numeric.
        path: use these equations instead: a folder of a saved forest, or a file of labelled equations. Their field
            ``split`` (train, validation, test) divides them; without it, depth and ``seed`` do.

    Raises:
        RecipeError: an option is out of range or contradicts another.
    """

    former: ClassVar[Mapping[str, Any]] = {"version": "2", "derived_share": 0.0, "branches": False}
    """Options in recipes of earlier runs, and the values that mean what there is now. Other values are refused."""

    size: int = 20_000
    seed: int = 12093
    max_depth: int = 13
    training_size: Count | None = None
    numeric: Natural = 0
    path: str | None = None
    training_depth: Annotated[int, Range(TRAINING_DEPTH, DEEPEST, f"{TRAINING_DEPTH} to {DEEPEST}")] = TRAINING_DEPTH

    def __post_init__(self) -> None:
        check_fields(self, "data.")
        adds = self.training_size is not None
        for name, given in (("training_size", adds), ("numeric", self.numeric)):
            if given and self.path is not None:
                raise RecipeError(
                    f"data.{name} adds to generated equations, but data.path is set; set only one of them"
                )
        if adds and self.max_depth < TRAINING_DEPTH:
            raise RecipeError(
                f"data.training_size adds equations to depth {TRAINING_DEPTH}, but data.max_depth is {self.max_depth}; "
                f"make it at least {TRAINING_DEPTH}"
            )
        if self.training_depth != TRAINING_DEPTH and not adds:
            raise RecipeError("data.training_depth needs data.training_size; set that too")


def make_equation_data(
    options: EquationDataOptions, read: Callable[[str], Forest], *, progress: bool | None = None
) -> TaskData:
    """Return the equations that ``options`` describe.

    Args:
        options: what to generate or read.
        read: reads a file of labelled equations.
        progress: whether to show a progress bar; None shows one on a terminal.

    Raises:
        RecipeError: training, validation or test would be empty, or the file has no equations.
        ParseError, VocabularyError, GraphError: a record of the file is not an equation, or the folder has no forest.
    """
    if options.path is None:
        return _generated(options, progress)
    forest = Forest.load(options.path) if Path(options.path).is_dir() else read(options.path)
    card = f"# Equations\n\n{len(forest)} equations of {options.path}"
    if "split" in forest.tree_data:
        return TaskData(forest, f"{card}, with the splits given there.\n")
    depth, label = forest.height()[forest.begin[1:] - 1], forest.tree_data["label"]
    split = split_by_depth(depth, label, random.Random(f"split {options.seed}"))
    forest = forest.with_data(tree_data={"label": label, "split": split})
    return TaskData(forest, f"{card}, divided by depth with seed {options.seed}.\n")


def _generated(options: EquationDataOptions, progress: bool | None) -> TaskData:
    forest = generate_equations(options.size, seed=options.seed, max_depth=options.max_depth, progress=progress)
    wanted = SPLITS if options.max_depth > TRAINING_DEPTH else SPLITS[:2]
    empty = [split for split in wanted if split not in forest.tree_data["split"]]
    if empty:
        raise RecipeError(
            f"data.size is {options.size}, which leaves no equation for {' and '.join(empty)}; "
            "make it larger, 1,000 or more to train a network"
        )
    card = _card(forest, options.seed)
    if options.training_size is not None:
        depth, before = options.training_depth, len(forest)
        forest = with_more_training(
            forest, options.training_size, seed=options.seed + 1, max_depth=depth, progress=progress
        )
        card += f"\nBeside them, {len(forest) - before} equations of depth 1-{depth}, all for training.\n"
    if not options.numeric:
        return TaskData(forest, card)
    numeric = generate_numeric(options.numeric, seed=options.seed)
    kind = np.full(len(forest), SYMBOLIC, np.int8)
    kept = {name: forest.tree_data[name] for name in ("label", "split")}
    forest = Forest.concatenate([forest.with_data(tree_data={**kept, "kind": kind}), numeric])
    return TaskData(forest, f"{card}\nBeside them, {len(numeric)} numeric equations of the same seed.\n")


def _card(forest: Forest, seed: int) -> str:
    """Return a description of generated equations as Markdown."""
    label, depth, split = (forest.tree_data[name] for name in ("label", "depth", "split"))
    rows = []
    for level in np.unique(depth):
        at = depth == level
        rows.append([level, at.sum(), label[at].sum(), *((split[at] == name).sum() for name in SPLITS)])
    about = f"""# Equations, true and false

{len(forest)} equations made by treemem's equation generator, version {VERSION}, seed {seed}.

True equations come from the published procedure and from textbook identities; false ones are edited true ones or
contain a mistake. Each was tested at 28 real points, and at 12 complex ones unless a function has branches. Equations
with infinity were tested at three points. No two are equal up to renaming and swapping."""
    return data_card(about, ["depth", "equations", "true", "training", "validation", "test"], rows)
