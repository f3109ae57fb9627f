"""The values of expressions at a few points, which a network can learn beside the labels of equations.

Whether an equation holds depends on the values of its sides alone. So a network that knows the values of expressions
need not have seen the rules that make two expressions equal. (Arabshahi et al. 2018 learn values from equations such as
``sin(2.5) = 0.6``.)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treemem.data.examples import Examples
from treemem.data.loader import Batch
from treemem.device_copy import to_device
from treemem.schedule.schedule import run_starts
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.equation_verification.generation.functions import CONSTANTS, FUNCTIONS
from treemem.trees.formats.equations.labels import NUM_VARIABLES, variable_label
from treemem.trees.vocabulary import Vocabulary

_LARGEST = 6.0
"""Targets are cut to this size, about ``asinh(200)``."""

_BEYOND = 1e12


@dataclass(frozen=True, eq=False)
class EquationExamples(Examples):
    """Equations, and for a network that learns values those of their subexpressions.

    With ``num_points``, batches have the target ``"values"``, float32 ``[rows, num_points]``: ``asinh`` of the value of
    the expression in each row of the schedule, between -6 and 6; NaN where it has none.
    """

    num_points: int = 0

    def batch_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        targets = super().batch_targets(batch, device)
        if self.num_points:
            assert isinstance(batch, TreeBatch)
            assert batch.vocabulary is not None
            assert batch.example_ids is not None
            node = self.nodes_of(batch.example_ids)[batch.schedule.node_of_row.cpu().numpy()]
            values = self._values(batch.vocabulary)[self.index(batch.vocabulary).number[node]]
            targets["values"] = to_device(torch.from_numpy(values), device)
        return targets

    def known_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the targets that scores need, without values; nothing if an example has no label."""
        return super().batch_targets(batch, device) if self.labelled[batch.example_ids].all() else {}

    def _values(self, vocabulary: Vocabulary) -> NDArray[np.float32]:
        """Return the targets of all distinct subexpressions, ``[distinct, num_points]``."""
        made: dict[str, NDArray[np.float32]] = self.__dict__.setdefault("_made_values", {})
        if vocabulary.digest not in made:
            values = subtree_values(self.index(vocabulary), points(self.num_points))
            np.arcsinh(values, out=values)
            made[vocabulary.digest] = values.clip(-_LARGEST, _LARGEST, out=values).astype(np.float32)
        return made[vocabulary.digest]


def points(count: int) -> NDArray[np.float64]:
    """Return values of the variables at ``count`` points, ``[variables, count]``.

    They lie between 0.25 and 2.2. At half of the points, some are negative.
    """
    draw = np.random.default_rng(1)
    size = draw.uniform(0.25, 2.2, (NUM_VARIABLES, count))
    sign = draw.choice([-1.0, 1.0], size.shape)
    sign[:, : count // 2] = 1
    return size * sign


def subtree_values(index: SubtreeIndex, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value of each distinct expression at each point, ``[distinct, points]``.

    Functions are real functions. A value that is not there is NaN: at a pole, of the square root of a negative number,
    of infinity, or beyond 1e12. Where rounding hides a pole, there may be a large value.

    Args:
        index: of the sides of equations.
        at: values of the variables, ``[variables, points]``.
    """
    vocabulary = index.vocabulary
    known = {**{variable_label(number): value for number, value in enumerate(at)}, **CONSTANTS}
    of_leaf = np.stack([np.broadcast_to(known.get(leaf, np.nan), at.shape[1:]) for leaf in vocabulary.leaves])
    values = np.empty((index.num_distinct, at.shape[1]))
    with np.errstate(all="ignore"):
        for first, last in pairwise([*run_starts(index.segment).tolist(), index.num_distinct]):
            arity = int(index.arity[first])
            if not arity:
                values[first:last] = of_leaf[index.symbol[first:last]]
                continue
            child = index.child[index.child_pointer[first] : index.child_pointer[last]].reshape(-1, arity)
            operands = [values[column] for column in child.T]
            result = FUNCTIONS[vocabulary.kinds[index.kind[first]].label].real(*operands)
            there = np.abs(result) < _BEYOND
            for operand in operands:
                there &= ~np.isnan(operand)  # numpy's nan^0 and 1^nan are 1
            values[first:last] = np.where(there, result, np.nan)
    return values
