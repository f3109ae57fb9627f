"""Generated data sets of true and false equations, in the manner of Arabshahi et al. 2018, but sound."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError
from treemem.records import replacing
from treemem.tasks.equation_verification.generation.balance import balanced_equations
from treemem.tasks.equation_verification.generation.corruption import CorruptionOptions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.quotas import PUBLISHED_SIZE, depth_quotas
from treemem.tasks.equation_verification.generation.splits import split_by_depth
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

VERSION = "1"
"""Data sets of different versions differ even if size and seed are the same."""

IDENTITY = "equations.json"

_DERIVED = (
    "True equations are derived from 142 identities; false ones are one edit away from a true one of the same depth."
)


@dataclass(frozen=True, eq=False)
class EquationData:
    """A generated data set.

    Attributes:
        forest: trees with root ``Equality``, sorted by depth. Its ``tree_data``: ``label`` (int8, 1 true, 0 false);
            ``depth`` (int8, height of the tree); ``split`` (``"train"``, ``"validation"``, ``"test"``); ``edit`` (int8,
            0 grow, 1 shrink, 2 replace, 3 exchange for false equations, -1 for true ones); ``source`` (int64, the
            number of the equation that was edited; -1 for true ones, or if the edited one is not in the data).
        version: of the generator.
        seed: of the generator.
        about: how the equations were made, for the card, if not by :func:`generate_equations` alone.
    """

    forest: Forest
    version: str
    seed: int
    about: str = ""

    def __len__(self) -> int:
        return len(self.forest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the equations, their order, labels and split, in hexadecimal."""
        forest = self.forest
        content = hashlib.sha256("\n".join((*forest.labels, "")).encode())
        data = [forest.tree_data[name] for name in ("label", "edit", "source")]
        for array in (forest.label, forest.arity, forest.begin, *data):
            content.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        content.update("\n".join(forest.tree_data["split"].tolist()).encode())
        return content.hexdigest()

    def part(self, split: str) -> Forest:
        """Return the equations of ``"train"``, ``"validation"`` or ``"test"``."""
        if split not in SPLITS:
            raise RecipeError(f"no split {split!r}; there are {', '.join(SPLITS)}")
        return self.forest[self.forest.tree_data["split"] == split]

    def card(self) -> str:
        """Return a description of the data as Markdown."""
        label, depth, split = (self.forest.tree_data[name] for name in ("label", "depth", "split"))
        lines = [
            "# Equations, true and false",
            "",
            f"{len(self)} equations made by treemem's equation generator, version {self.version}, seed {self.seed}.",
            f"SHA-256 of the content: `{self.digest}`",
            "",
            f"{self.about or _DERIVED} Each was tested at 24 real and 24 complex points.",
            "No two are equal up to renaming and swapping.",
            "",
            "| depth | equations | true | training | validation | test |",
            "|---|---|---|---|---|---|",
        ]
        for level in np.unique(depth):
            at = depth == level
            counts = [at.sum(), label[at].sum(), *((split[at] == name).sum() for name in SPLITS)]
            lines.append(f"| {level} | " + " | ".join(str(int(count)) for count in counts) + " |")
        return "\n".join(lines) + "\n"

    def save(self, folder: Path | str) -> None:
        """Write the forest and its card into ``folder``; :meth:`load` reads them back."""
        self.forest.save(folder)
        identity = {"version": self.version, "seed": self.seed, "digest": self.digest}
        identity |= {"about": self.about} if self.about else {}
        for name, text in (("CARD.md", self.card()), (IDENTITY, json.dumps(identity, indent=1) + "\n")):
            with replacing(Path(folder) / name) as temporary:
                temporary.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> EquationData:
        """Read what :meth:`save` wrote.

        Raises:
            GraphError: the folder holds no forest.
            RecipeError: its description is missing or damaged, or the equations are not those that were saved.
        """
        path = Path(folder) / IDENTITY
        forest = Forest.load(folder)
        try:
            identity = json.loads(path.read_text(encoding="utf-8"))
            data = cls(forest, str(identity["version"]), int(identity["seed"]), str(identity.get("about", "")))
            intact = data.digest == identity["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecipeError(f"{path} does not say what the equations are: {error}") from error
        if not intact:
            raise RecipeError(f"the equations in {folder} are not those that were saved there: their hash is another")
        return data


def generate_equations(
    size: int = PUBLISHED_SIZE, *, seed: int = 0, max_depth: int = 13, progress: bool | None = False
) -> EquationData:
    """Generate equations with the depths and labels of the published data, scaled to ``size``.

    True equations are derived from identities by steps of rewriting; false ones are true ones of the same depth with
    one edit. Both are tested at real and complex points. The same arguments give the same equations on every run.

    Args:
        size: number of equations. There may be fewer if the greatest depths have no more to give; the log says so.
        seed: of all random choices.
        max_depth: the greatest depth, 2 to 20.
        progress: whether to show a progress bar; None shows one on a terminal.

    Raises:
        RecipeError: a size, seed or depth that is not a whole number or out of range.

    Example:
        >>> data = generate_equations(1000, seed=1)
        >>> len(data), int(data.forest.tree_data["depth"].max())
        (1000, 13)
    """
    quota = depth_quotas(size, max_depth)
    rng = random.Random(f"equations {VERSION} {seed}")
    forest = balanced_equations(ExpressionTable(), quota, rng, options=CorruptionOptions(), progress=progress)
    split = split_by_depth(forest.tree_data["depth"], forest.tree_data["label"], rng)
    return EquationData(forest.with_data(tree_data={**forest.tree_data, "split": split}), VERSION, int(seed))
