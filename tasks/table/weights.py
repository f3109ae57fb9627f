"""Weights of the rows and of the classes of a table in the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, quoted, shown
from treemem.tasks.table.cells import class_key

WEIGHT = "weight"
"""The name of the weights among the data of the trees and among the targets."""


def class_weights(asked: Any, names: Sequence[Any], balanced: NDArray[np.float64] | None) -> tuple[float, ...]:
    """Return the weight of each class.

    Args:
        asked: ``"balanced"``, a number for each class by its name (1 for the others), or a number for each in order.
        names: of the classes, in order.
        balanced: what ``"balanced"`` means; None: there are no rows to tell it.

    Raises:
        RecipeError: another value, a name that no class has, or weights that are all 0.
    """
    if isinstance(asked, str):
        if asked != "balanced" or balanced is None:
            reason = "" if asked != "balanced" else ", and there is no table that says how frequent the classes are"
            raise RecipeError(
                f'class_weight must be "balanced" or numbers, such as {{{names[0]!r}: 2}}, not {shown(asked)}{reason}'
            )
        return tuple(balanced.tolist())
    if isinstance(asked, Mapping):
        places = {class_key(name): place for place, name in enumerate(names)}
        weights: list[Any] = [1.0] * len(names)
        for name, weight in asked.items():
            if class_key(name) not in places:
                raise RecipeError(f"class_weight: no class {shown(name)}; there are {quoted(names)}")
            weights[places[class_key(name)]] = weight
    else:
        weights = list(asked) if isinstance(asked, Sequence) else [asked]
        if len(weights) != len(names):
            raise RecipeError(
                f"class_weight has {len(weights)} numbers and there are {len(names)}: {quoted(names)}; give one each, "
                "in this order, or name them as in {name: number}"
            )
    for name, weight in zip(names, weights, strict=True):
        if not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
            raise RecipeError(
                f"class_weight: the weight of {name!r} must be a number of 0 or more, not {shown(weight)}"
            )
    if not any(weights):
        raise RecipeError("class_weight: all weights are 0, so there is nothing to learn")
    return tuple(map(float, weights))


def balanced_weights(label: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return weights with which all classes weigh the same together: ``rows / (classes * rows of the class)``.

    They are those of scikit-learn's ``compute_class_weight("balanced", ...)``; a class without a row has the weight 1.

    Args:
        label: numbers of classes; negative ones are unknown.
        count: number of classes.
    """
    rows = np.bincount(label[label >= 0], minlength=count)
    return np.where(rows > 0, rows.sum() / (max(1, (rows > 0).sum()) * np.maximum(rows, 1)), 1.0)


def row_weights(given: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Return the weights that data give their trees, float64 ``[trees]``.

    Raises:
        RecipeError: they are not numbers of 0 or more, or not one for each tree.
    """
    if given.shape != (count,) or given.dtype.kind not in "iufb":
        raise RecipeError(
            f'weights (sample_weight, or tree_data["weight"]) must be a number for each of the {count} trees'
        )
    weights = given.astype(np.float64)
    is_bad = ~((weights >= 0) & np.isfinite(weights))
    if is_bad.any():
        first = int(is_bad.argmax())
        raise RecipeError(f"the weight of tree {first + 1} must be a number of 0 or more, not {weights[first]:g}")
    return weights


def of_classes(weights: Sequence[float] | None, label: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight of the class of each label, 1 without weights and for an unknown class, of the same shape."""
    return np.ones(label.shape) if weights is None else np.where(label >= 0, np.array(weights)[label], 1.0)
