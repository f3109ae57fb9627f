"""The equations of the studies: one data set, parts of its training equations, more of them, others to score."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, DerivationOptions
from treemem.tasks.equation_verification.generation.generator import IDENTITY, VERSION, EquationData, generate_equations
from treemem.tasks.equation_verification.generation.more_data import (
    deep_equations,
    joined,
    kept_equations,
    training_equations,
    with_more_training,
)
from treemem.tasks.equation_verification.generation.splits import shuffled
from treemem.tasks.equation_verification.generation.subexpressions import subexpression_pairs
from treemem.trees.forest import Forest

SIZE, DATA_SEED = 41_894, 2020
"""Equations, and the seed of their generation, which no choice of recipe has seen the test part of."""

SHARES = (20, 40, 60, 80, 100)
"""Percent of the training equations, for the sample efficiency."""

DEEP_VALIDATION = "deep_validation"
"""Equations of depth 8-13, to compare recipes on; none of them is in another set."""

DEEPER = "deeper"
"""Equations of depth 14-20, to score."""

TENFOLD = {
    "tenfold": BY_IDENTITIES,
    "tenfold, derived": DerivationOptions(derived_share=0.7),
    "tenfold, branches": DerivationOptions(branches=True),
}
"""Sets with ten times the equations for training, and how the new ones are derived."""

_SUBEXPRESSION_PAIRS = 20_000
_FALSE_STEPS = 3
_HARDER_EDITS = (0.1, 0.1, 0.4, 0.4)  # more labels replaced and functions exchanged: fewer traces in the tokens


class StudyData:
    """All of it, each made when it is first asked for and then kept in a folder.

    Args:
        folder: where it is kept.
        size, seed: of the data set of Table 2.
        true_per_depth: true equations of each depth in the sets ``DEEP_VALIDATION`` and ``DEEPER``; as many false ones.
    """

    def __init__(
        self, folder: Path, size: int = SIZE, seed: int = DATA_SEED, *, true_per_depth: tuple[int, int] = (500, 200)
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._validation_per_depth, self._deeper_per_depth = true_per_depth
        data = self._kept("data", "", seed, lambda: generate_equations(size, seed=seed, progress=None).forest)
        if len(data) != size:
            raise _other_equations(folder / "data", data)
        self.equations = data.forest
        self._digest = data.digest

    def forests(self, names: Iterable[str]) -> dict[str, Forest]:
        """What runs train on; all have the same validation and test equations.

        Args:
            names: ``"data"``; :func:`part_name` of a share; those of ``TENFOLD``; ``"harder"``, whose false equations
                for training are farther from true ones; ``"with sub-expressions"`` that are equal or not.
        """
        return {name: self._forest(name) for name in names}

    def deep_validation(self) -> Forest:
        """The equations called ``DEEP_VALIDATION``, as many true as false ones."""
        return self._deep(DEEP_VALIDATION, self._validation_per_depth, range(8, 14), self._seed + 2)

    def deeper(self) -> Forest:
        """The equations called ``DEEPER``, as many true as false ones."""
        return self._deep(DEEPER, self._deeper_per_depth, range(14, 21), self._seed + 3)

    def _deep(self, name: str, count: int, depths: range, seed: int) -> Forest:
        about = f"{count} true and {count} false ones of each depth {depths[0]}-{depths[-1]}, each deepened on its own."
        make = partial(deep_equations, count, depths, seed=seed, apart_from=self.equations)
        return self._from_data(name, about, seed, make)

    def _forest(self, name: str) -> Forest:
        equations, seed = self.equations, self._seed
        num_training = int((equations.tree_data["split"] == "train").sum())
        if name == "data":
            return equations
        if name in TENFOLD:
            derivation = TENFOLD[name]
            return self._from_data(
                name,
                f"Those for training are ten times as many; new ones are derived by {derivation}.",
                seed + 1,
                partial(with_more_training, equations, 10 * num_training, seed=seed + 1, derivation=derivation),
            )
        if name == "harder":
            return self._from_data(
                name,
                f"The false ones for training are others, {_FALSE_STEPS} steps of rewriting after an edit away from "
                f"true ones; kinds of edits were tried in the proportions {_HARDER_EDITS}.",
                seed + 4,
                self._with_harder_false_ones,
            )
        if name == "with sub-expressions":
            return self._from_data(
                name,
                f"Beside them, {_SUBEXPRESSION_PAIRS} true equations of equal sub-expressions of those for training, "
                "and as many false ones.",
                seed,
                lambda: joined(equations, subexpression_pairs(equations, _SUBEXPRESSION_PAIRS, seed=seed)),
            )
        share = {part_name(share): share for share in SHARES}[name]
        return self._from_data(name, f"{share} % of those for training.", seed, lambda: part_of(equations, share))

    def _with_harder_false_ones(self) -> Forest:
        """The equations with other false ones for training, as many of each depth."""
        label, depth, split = (self.equations.tree_data[name] for name in ("label", "depth", "split"))
        replaced = (split == "train") & (label == 0)
        made = training_equations(
            2 * int((split == "train").sum()),
            seed=self._seed + 4,
            apart_from=self.equations,
            false_steps=_FALSE_STEPS,
            edits=_HARDER_EDITS,
        )
        false = np.flatnonzero(made.tree_data["label"] == 0)
        wanted, spare = Counter(depth[replaced].tolist()), 0
        chosen: list[int] = []
        for level in sorted(wanted):
            there = false[made.tree_data["depth"][false] == level]
            taken = min(len(there), wanted[level] + spare)
            spare += wanted[level] - taken
            chosen += there[:taken].tolist()
        harder = kept_equations(made, np.isin(np.arange(len(made)), chosen))
        return joined(kept_equations(self.equations, ~replaced), harder)

    def _from_data(self, name: str, about: str, seed: int, make: Callable[[], Forest]) -> Forest:
        about = f"Made from the equations {self._digest[:16]}. {about}"
        return self._kept(name, about, seed, make).forest

    def _kept(self, name: str, about: str, seed: int, make: Callable[[], Forest]) -> EquationData:
        """What the folder has under a name, made where it has not.

        Raises:
            RecipeError: it has other equations.
        """
        folder = self._folder / name
        if not (folder / IDENTITY).exists():  # written last
            EquationData(make(), VERSION, seed, about=about).save(folder)
        found = EquationData.load(folder)
        if (found.version, found.seed, found.about) != (VERSION, seed, about):
            raise _other_equations(folder, found)
        return found


def _other_equations(folder: Path, found: EquationData) -> RecipeError:
    about = f" {found.about}" if found.about else ""
    return RecipeError(
        f"{folder} holds other equations than are asked for: {len(found)} of seed {found.seed}, generator version "
        f"{found.version}.{about} Remove it, or choose another folder for the runs (--runs)"
    )


def part_name(share: int) -> str:
    """What runs call the data set with so many percent of its training equations."""
    return f"{share} percent"


def part_of(forest: Forest, share: int, seed: int = DATA_SEED) -> Forest:
    """The equations with fewer of them to train on, nested: what is in a smaller part is in every larger one.

    Args:
        forest: with ``split`` and ``source`` in its ``tree_data``.
        share: percent of the training equations that are kept.
        seed: of which are left out.
    """
    split = forest.tree_data["split"]
    training = np.flatnonzero(split == "train")
    order = training[shuffled(len(training), random.Random(f"parts {seed}"))]
    left_out = np.ones(len(forest), bool)
    left_out[order[: round(len(order) * share / 100)]] = False
    left_out[split != "train"] = False
    return kept_equations(forest, ~left_out)
