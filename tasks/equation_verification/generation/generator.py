"""Equations, true and false, in the manner of Arabshahi et al. 2018, but sound.

Run as a program it generates a data set and says what is in it::

    python -m treemem.tasks.equation_verification.generation.generator --size 41894 --output equations
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError, TreememError
from treemem.records import replacing
from treemem.tasks.equation_verification.generation.balance import balanced_equations
from treemem.tasks.equation_verification.generation.corruption import EDIT_SHARES, CorruptionOptions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.profile import comparison, profile, read_profile
from treemem.tasks.equation_verification.generation.quotas import PUBLISHED_SIZE, checked_seed, depth_quotas
from treemem.tasks.equation_verification.generation.splits import TRAINING_DEPTH, split_by_depth
from treemem.tasks.equation_verification.shallow_reader import shallow_results
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

VERSION = "1"
"""Data sets of different versions differ although size and seed are the same."""

IDENTITY = "equations.json"


@dataclass(frozen=True, eq=False)
class EquationData:
    """Generated equations.

    Attributes:
        forest: trees with root ``Equality``, sorted by depth. Its ``tree_data``: ``label`` (int8, 1 true, 0 false);
            ``depth`` (int8, height of the tree); ``split`` (``"train"``, ``"validation"``, ``"test"``); ``edit`` (int8,
            0 grow, 1 shrink, 2 replace, 3 exchange for false equations, -1 for true ones); ``source`` (int64, which
            equation was edited; -1 for true ones and where the edited one is not part of the data).
        version: of the generator.
        seed: as given.
        false_steps: steps of rewriting between the edit of a true equation and the false one.
        about: where they come from, for the card, where it is not the generator alone.
    """

    forest: Forest
    version: str
    seed: int
    false_steps: int = 0
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
        """The equations of ``"train"``, ``"validation"`` or ``"test"``."""
        if split not in SPLITS:
            raise RecipeError(f"no split {split!r}; there are {', '.join(SPLITS)}")
        return self.forest[self.forest.tree_data["split"] == split]

    def card(self) -> str:
        """What the data are, as Markdown."""
        label, depth, split = (self.forest.tree_data[name] for name in ("label", "depth", "split"))
        apart = f"an edit and {self.false_steps} steps of rewriting" if self.false_steps else "one edit"
        derived = (
            f"True equations are derived from 142 identities; false ones are {apart} away from a true one of the same "
            "depth."
        )
        lines = [
            "# Equations, true and false",
            "",
            f"{len(self)} equations made by treemem's equation generator, version {self.version}, seed {self.seed}.",
            f"SHA-256 of the content: `{self.digest}`",
            "",
            f"{self.about or derived} Each was tested at 24 real and 24 complex points.",
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
        identity |= {"false_steps": self.false_steps} if self.false_steps else {}
        identity |= {"about": self.about} if self.about else {}
        for name, text in (("CARD.md", self.card()), (IDENTITY, json.dumps(identity, indent=1) + "\n")):
            with replacing(Path(folder) / name) as temporary:
                temporary.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> EquationData:
        """Read what :meth:`save` wrote.

        Raises:
            GraphError: the folder holds no forest.
            RecipeError: it does not say what the equations are, or they are not those that were saved.
        """
        path = Path(folder) / IDENTITY
        forest = Forest.load(folder)
        try:
            identity = json.loads(path.read_text(encoding="utf-8"))
            steps, about = int(identity.get("false_steps", 0)), str(identity.get("about", ""))
            data = cls(forest, str(identity["version"]), int(identity["seed"]), steps, about)
            intact = data.digest == identity["digest"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecipeError(f"{path} does not say what the equations are: {error}") from error
        if not intact:
            raise RecipeError(f"the equations in {folder} are not those that were saved there: their hash is another")
        return data


def generate_equations(
    size: int = PUBLISHED_SIZE,
    *,
    seed: int = 0,
    max_depth: int = 13,
    false_steps: int = 0,
    edits: Sequence[float] = EDIT_SHARES,
    progress: bool | None = False,
) -> EquationData:
    """Generate equations with the depths and labels of the published data, scaled to ``size``.

    True equations are derived from identities by steps of rewriting; false ones are true ones of the same depth with
    one edit. Both are tested at real and complex points. The same arguments give the same equations on every run.

    Args:
        size: number of equations. There may be fewer if the greatest depths have no more to give; the log says so.
        seed: of all random choices.
        max_depth: the greatest depth, 2 to 20.
        false_steps: number of times that an identity is applied to an equation after the edit that made it false.
        edits: how often edits that grow, shrink, replace and exchange are tried; in any unit. With other steps or edits
            than these, false equations are chosen so that they have the lengths and labels of true ones on average.
        progress: whether to show a progress bar; None shows one on a terminal.

    Raises:
        RecipeError: a size, seed, depth or number of steps that is not a whole number or out of range, or edits that
            are not four shares.

    Example:
        >>> data = generate_equations(1000, seed=1)
        >>> len(data), int(data.forest.tree_data["depth"].max())
        (1000, 13)
    """
    quota = depth_quotas(size, max_depth)
    seed = checked_seed(seed)
    rng = random.Random(f"equations {VERSION} {seed}")
    options = CorruptionOptions.with_even_counts(false_steps, edits)
    forest = balanced_equations(ExpressionTable(), quota, rng, options=options, progress=progress)
    depth, label = forest.tree_data["depth"], forest.tree_data["label"]
    split = split_by_depth(depth, label, rng)
    data = forest.with_data(tree_data={**forest.tree_data, "split": split})
    return EquationData(data, VERSION, seed, int(false_steps))


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate a data set, say what is in it, and save it where asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m treemem.tasks.equation_verification.generation.generator",
        description="Generate true and false equations and say what they look like.",
    )
    parser.add_argument("--size", type=int, default=PUBLISHED_SIZE, help="number of equations (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (%(default)s)")
    parser.add_argument("--max-depth", type=int, default=13, help="the greatest depth, 2 to 20 (%(default)s)")
    parser.add_argument("--output", metavar="FOLDER", help="where to save the equations and their card")
    parser.add_argument("--compare", metavar="FILE", help="a published profile (JSON) to print beside this one")
    parser.add_argument("--no-shallow-reader", action="store_true", help="do not measure what counting tokens reaches")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        published = read_profile(options.compare) if options.compare else None
        data = generate_equations(options.size, seed=options.seed, max_depth=options.max_depth, progress=None)
        print(data.card())
        if published is not None:
            print(comparison(profile(data.forest), published))
        if not options.no_shallow_reader:
            for result in shallow_results(data.forest, TRAINING_DEPTH):
                print(
                    f"boosted trees on {result.features}: {100 * result.accuracy:.1f} % beyond depth {TRAINING_DEPTH} "
                    f"(majority {100 * result.majority:.1f} %, training {100 * result.training_accuracy:.1f} %)"
                )
        if options.output:
            data.save(options.output)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
