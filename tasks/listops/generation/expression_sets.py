"""Sets of expressions to test with, by name: other lengths, depths and numbers of arguments than in training."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from treemem.errors import RecipeError, near_names
from treemem.tasks.listops.generation.generator import ListOpsDistribution

IID = "iid"
EXTRAPOLATION_SETS = tuple(f"{first}-{first + 100}" for first in range(200, 1000, 100))
NAMED_SETS = {
    "31-50": "length 31-50",
    "51-100": "length 51-100",
    **{name: f"length {int(name[:3]) + 1}-{int(name[:3]) + 99}" for name in EXTRAPOLATION_SETS},
    "5 arguments": "arguments 5 depth 1-8 length 100-1000",
    "10 arguments": "arguments 10 depth 1-8 length 100-1000",
    "15 arguments": "arguments 15 depth 1-8 length 100-1000",
    "deeper": "depth 8-9 probability 0.3",
}
"""Names of published sets, and their descriptions.

The lengths from 200 on are those of Havrylov et al. 2019, both ends left out; the numbers of arguments and the greater
depth those of Ray Chowdhury & Caragea 2023, whose generator's MAX_DEPTH 9 and 10 is one more than the depth here.
"""

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_FORM = "such as 'length 31-50 depth 2-7 arguments 10 probability 0.3', any of these, or a name"


def find_set(name: str, training: ListOpsDistribution) -> ListOpsDistribution:
    """Return the distribution of a set: that of the training expressions with the changes that its name describes.

    Args:
        name: ``"iid"``, one of ``NAMED_SETS``, or words with values: ``length`` and ``depth`` (a number or a range),
            ``arguments`` (the most of a list), ``probability`` (of a list at a node).
        training: the distribution of training expressions.

    Raises:
        RecipeError: an unknown name, or values that contradict each other.

    Example:
        >>> find_set("length 31-50", ListOpsDistribution(max_length=30)).min_length
        31
    """
    if name == IID:
        return training
    words = NAMED_SETS.get(name, name).split()
    changes: dict[str, Any] = {}
    for word, value in zip(words[0::2], words[1::2], strict=False):
        bounds = _RANGE.fullmatch(value)
        if word in ("length", "depth") and bounds:
            changes[f"min_{word}"], changes[f"max_{word}"] = int(bounds[1]), int(bounds[2] or bounds[1])
        elif word == "arguments" and bounds and not bounds[2]:
            changes["max_arguments"] = int(value)
        elif word == "probability" and re.fullmatch(r"[01]|[01]?\.[0-9]+", value):
            changes["list_probability"] = float(value)
        else:
            raise _no_set(name)
    if len(words) % 2 or not words or len(set(words[0::2])) < len(words) // 2:
        raise _no_set(name)
    try:
        return dataclasses.replace(training, **changes)
    except RecipeError as error:
        raise RecipeError(f"the set {name!r}: {error}") from error


def _no_set(name: str) -> RecipeError:
    names = [IID, *NAMED_SETS]
    return RecipeError(f"no set {name!r}{near_names(name, names)}; write {_FORM}: {', '.join(names)}")
