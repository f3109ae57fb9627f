"""The values of expressions at a few points, and the training that has a network learn them.

Whether an equation holds depends on the values of its sides alone. A network that learns the values of every
subexpression beside the labels of equations therefore carries over to rules that no training equation shows. (Arabshahi
et al. 2018 learn the values of functions from equations such as ``sin(2.5) = 0.6``.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treemem.data.examples import Examples
from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.device_copy import to_device
from treemem.runs.learner import MAIN_LOSS, Learner
from treemem.schedule.schedule import run_starts
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.equation_verification.generation.evaluation import CONSTANTS
from treemem.tasks.equation_verification.value_head import ValueHead
from treemem.trees.equation_labels import NUM_VARIABLES, variable_label
from treemem.trees.vocabulary import Vocabulary

_Function = Callable[..., NDArray[np.float64]]

_LARGEST = 6.0
"""Targets are ``asinh`` of a value, between -6 and 6; that of 200 is 6."""

_BEYOND = 1e30
_QUADRATIC_BELOW = 0.1


@dataclass(frozen=True, eq=False)
class EquationExamples(Examples):
    """Equations, and for a network that learns values those of their subexpressions.

    With ``num_points``, batches have the target ``"values"``, float32 ``[rows, num_points]``: ``asinh`` of the value of
    the expression in each row of the schedule, at most 6 either way; NaN where it has none.
    """

    num_points: int = 0

    def batch_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        targets = super().batch_targets(batch, device)
        if self.num_points:
            assert isinstance(batch, TreeBatch)
            assert batch.vocabulary is not None
            assert batch.example_ids is not None
            number = self.index(batch.vocabulary).number[self.nodes_of(batch.example_ids)]
            of_node = to_device(torch.from_numpy(self._values(batch.vocabulary)[number]), device)
            targets["values"] = of_node.index_select(0, batch.schedule.node_of_row.to(of_node.device))
        return targets

    def _values(self, vocabulary: Vocabulary) -> NDArray[np.float32]:
        made: dict[str, NDArray[np.float32]] = self.__dict__.setdefault("_made_values", {})
        if vocabulary.digest not in made:
            found = np.arcsinh(subtree_values(self.index(vocabulary), points(self.num_points)))
            made[vocabulary.digest] = found.clip(-_LARGEST, _LARGEST).astype(np.float32)
        return made[vocabulary.digest]


class ValueLearner(Learner):
    """Trains a :class:`.ValueHead` with the values of all subexpressions; any other head as usual.

    The auxiliary loss ``"values"`` is the mean smooth absolute error (quadratic below 0.1) of the decoded values, over
    the distinct subexpressions of the batch and the points at which they have a value.
    """

    def losses(self, batch: Batch, targets: Mapping[str, Tensor]) -> dict[str, SumCount]:
        head: Any = self.model.head
        if not batch.num_examples or not isinstance(head, ValueHead):
            return super().losses(batch, targets)
        output = self.run(batch)
        assert isinstance(batch, TreeBatch)
        decoded = head.decoder(output.encoded.outputs.index_select(0, batch.schedule.node_of_row)).float()
        known = ~targets["values"].isnan()
        wanted = targets["values"].where(known, decoded.detach())
        error = functional.smooth_l1_loss(decoded, wanted, reduction="sum", beta=_QUADRATIC_BELOW)
        return {
            MAIN_LOSS: self.model.task.loss(output.outputs, targets),
            **output.auxiliary_losses,
            "values": SumCount(error, known.sum()),
        }


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
    beyond 1e30, or of infinity.

    Args:
        index: of the sides of equations.
        at: values of the variables, ``[variables, points]``.
    """
    vocabulary = index.vocabulary
    known = {**{variable_label(number): value for number, value in enumerate(at)}, **CONSTANTS}
    of_leaf = np.stack([np.broadcast_to(known.get(leaf, np.nan), at.shape[1:]) for leaf in vocabulary.leaves])
    found = np.empty((index.num_distinct, at.shape[1]))
    with np.errstate(all="ignore"):
        for first, last in pairwise([*run_starts(index.segment).tolist(), index.num_distinct]):
            arity = int(index.arity[first])
            if arity:
                child = index.child[index.child_pointer[first] : index.child_pointer[last]].reshape(-1, arity)
                result = _FUNCTIONS[vocabulary.kinds[index.kind[first]].label](*(found[each] for each in child.T))
            else:
                result = of_leaf[index.symbol[first:last]]
            found[first:last] = np.where(np.abs(result) < _BEYOND, result, np.nan)
    return found


def _inverse(function: _Function) -> _Function:
    return lambda argument: 1 / function(argument)


def _of_inverse(function: _Function) -> _Function:
    return lambda argument: function(1 / argument)


_FUNCTIONS: dict[str, _Function] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Pow": np.power,
    "log": lambda value, base: np.log(value) / np.log(base),
    "exp": np.exp,
    **{"sin": np.sin, "cos": np.cos, "tan": np.tan},
    **{"csc": _inverse(np.sin), "sec": _inverse(np.cos), "cot": _inverse(np.tan)},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan},
    **{"acsc": _of_inverse(np.arcsin), "asec": _of_inverse(np.arccos), "acot": _of_inverse(np.arctan)},
    **{"sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
    **{"csch": _inverse(np.sinh), "sech": _inverse(np.cosh), "coth": _inverse(np.tanh)},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
    **{"acsch": _of_inverse(np.arcsinh), "asech": _of_inverse(np.arccosh), "acoth": _of_inverse(np.arctanh)},
}
