"""The equations of the studies: one data set, parts of its training equations, more of them, others to score."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from treemem.tasks.equation_verification.generator import VERSION, EquationData, generate_equations
from treemem.tasks.equation_verification.more_data import deep_equations, training_equations, with_more_training
from treemem.tasks.equation_verification.splits import shuffled
from treemem.tasks.equation_verification.subexpressions import subexpression_pairs
from treemem.trees.forest import Forest

SIZE, DATA_SEED = 41_894, 2020
"""Equations, and the seed of their generation, which no choice of recipe has seen the test part of."""

SHARES = (20, 40, 60, 80, 100)
"""Percent of the training equations, for the sample efficiency."""

DEEP_VALIDATION = "deep_validation"
"""Equations of depth 8-13, to compare recipes on; none of them is in another set."""

DEEPER = "deeper"
"""Equations of depth 14-20, to score."""

_SUBEXPRESSION_PAIRS = 20_000
_FALSE_STEPS = 3
_DERIVED_SHARE = 0.7
_HARDER_EDITS = (0.1, 0.1, 0.4, 0.4)  # more labels replaced and functions exchanged: fewer traces in the tokens


class StudyData:
    """All of it, each made when it is first asked for and then kept in a folder.

    Args:
        folder: where it is kept.
        size, seed: of the data set of Table 2.
    """

    def __init__(self, folder: Path, size: int = SIZE, seed: int = DATA_SEED) -> None:
        self._folder = folder
        self._seed = seed
        self.equations = self._kept("data", lambda: generate_equations(size, seed=seed))

    def forests(self, names: Iterable[str]) -> dict[str, Forest]:
        """What runs train on; all have the same validation and test equations.

        Args:
            names: ``"data"``; :func:`part_name` of a share; ``"tenfold"``, and ``"tenfold, derived"`` as the published
                generator derives them; ``"harder"``, whose false equations are farther from true ones; ``"with
                sub-expressions"`` that are equal or not.
        """
        return {name: self._kept(name, partial(self._made, name)) for name in names}

    def deep_validation(self) -> Forest:
        """The equations called ``DEEP_VALIDATION``, as many true as false ones."""
        return self._kept(DEEP_VALIDATION, lambda: self._deep(500, range(8, 14), self._seed + 2))

    def deeper(self) -> Forest:
        """The equations called ``DEEPER``, as many true as false ones."""
        return self._kept(DEEPER, lambda: self._deep(200, range(14, 21), self._seed + 3))

    def _deep(self, count: int, depths: range, seed: int) -> EquationData:
        return EquationData(deep_equations(count, depths, seed=seed, apart_from=self.equations), VERSION, seed)

    def _made(self, name: str) -> EquationData:
        return EquationData(self._forest(name), VERSION, self._seed)

    def _forest(self, name: str) -> Forest:
        equations, seed = self.equations, self._seed
        training = equations.tree_data["split"] == "train"
        if name in ("tenfold", "tenfold, derived"):
            share = _DERIVED_SHARE if name == "tenfold, derived" else 0.0
            return with_more_training(equations, 10 * int(training.sum()), seed=seed + 1, derived_share=share)
        if name == "harder":
            harder = training_equations(
                int(training.sum()), seed=seed + 4, apart_from=equations, false_steps=_FALSE_STEPS, edits=_HARDER_EDITS
            )
            return Forest.concatenate([harder, equations[~training]])
        if name == "with sub-expressions":
            return Forest.concatenate([equations, subexpression_pairs(equations, _SUBEXPRESSION_PAIRS, seed=seed)])
        return part_of(equations, {part_name(share): share for share in SHARES}[name], seed)

    def _kept(self, name: str, make: Callable[[], EquationData]) -> Forest:
        folder = self._folder / name
        if not (folder / "CARD.md").exists():  # written last
            make().save(folder)
        return EquationData.load(folder).forest


def part_name(share: int) -> str:
    """What runs call the data set with so many percent of its training equations."""
    return f"{share} percent"


def part_of(forest: Forest, share: int, seed: int = DATA_SEED) -> Forest:
    """The equations with fewer of them to train on, nested: what is in a smaller part is in every larger one.

    Args:
        forest: with ``tree_data["split"]``.
        share: percent of the training equations that are kept.
        seed: of which are left out.
    """
    split = forest.tree_data["split"]
    training = np.flatnonzero(split == "train")
    order = training[shuffled(len(training), random.Random(f"parts {seed}"))]
    left_out = np.ones(len(forest), bool)
    left_out[order[: round(len(order) * share / 100)]] = False
    left_out[split != "train"] = False
    return forest[~left_out]
