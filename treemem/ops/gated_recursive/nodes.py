"""Inner nodes of binary trees, composed by the gated recursive cell a part at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch.nn import functional

from treemem.ops.affine import Affine
from treemem.ops.gated_recursive.cell import CellActivation, GatedCellWeights, gated_cell
from treemem.ops.large_pages import empty_rows
from treemem.ops.native.structures import Structure, structured_library
from treemem.ops.second_derivative import graph_is_retained

_SOURCE = Path(__file__).with_name("levels.cpp")
_ROWS_PER_THREAD = 64
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t first, count, hidden_size, inner_size, num_threads, gelu",
    "int64_t begin, num_levels",
    "const int64_t *ends",  # of these levels among the inner nodes, where the first begins at `begin`, [num_levels]
    "const int64_t *children",  # rows, [count, 2]
    "const REAL *weight1, *bias1, *weight2, *bias2, *gain, *shift",
    "const REAL *keep",  # factors of dropout, [count, inner_size], or null
    "REAL *states",  # [first + count, hidden_size]
    # What the backward pass needs, or null: the hidden layer and its derivative, [count, inner_size]; the gates,
    # [count, 4 * hidden_size]; the normalized sum and the factor of the normalization, [count, hidden_size + 1].
    "REAL *hidden, *slope, *gates, *normed",
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "REAL *states",  # comes in and is added to, [first + count, hidden_size]
    "REAL *weight1, *bias1, *weight2, *bias2",  # begin with 0
    "REAL *learned",  # of gain and shift, begins with 0, [num_threads, 2, hidden_size]
)
_WEIGHTS = ("weight1", "bias1", "weight2", "bias2", "gain", "shift")
_KEPT = ("hidden", "slope", "gates", "normed")


class NodeOptions(NamedTuple):
    """How nodes are composed.

    Attributes:
        activation: of the hidden layer.
        library: the compiled functions; None: in torch, which has no backward pass here.
        threads: of the compiled functions.
    """

    activation: CellActivation
    library: ctypes.CDLL | None
    threads: int


def gated_library(tensors: Sequence[torch.Tensor]) -> ctypes.CDLL | None:
    """Return the compiled functions, or None if they cannot be used on these tensors."""
    return structured_library(_SOURCE, tensors, _PROBLEM, _GRADIENTS)


class GatedNodes:
    """The states of nodes; :func:`new_nodes` makes them, on a CPU in C++, where that can be had.

    An operation saves ``options`` and ``tensors``, and makes the nodes of them again in its backward pass.

    Attributes:
        children: the rows of both children of each inner node, int64 ``[inner nodes, 2]``. May be filled in later.
        keep: by what the hidden layer of each inner node is multiplied, ``[inner nodes, inner_size]``, or None. May be
            filled in later.
        states: of all rows, ``[given rows + inner nodes, hidden_size]``.
        first: the number of given rows.
    """

    def __init__(self, options: NodeOptions, tensors: Sequence[torch.Tensor | None]) -> None:
        self.options, self.tensors = options, tensors
        self.states, self.children, *maps = (cast(torch.Tensor, each) for each in tensors[:-1])
        self._weights, self._kept, self.keep = maps[:6], maps[6:], tensors[-1]
        self.first = len(self.states) - len(self.children)
        self._found: list[torch.Tensor] = []

    def compose(self, begin: int, *ends: int) -> None:
        """Compose inner nodes ``begin`` to ``ends[-1]``; those between two ends do not depend on each other."""
        if self.options.library is not None:
            self._call(self.options.library.forward, begin, ends)
            return
        weights = GatedCellWeights(*(Affine(*self._weights[at : at + 2]) for at in (0, 2, 4)))
        for at, end in pairwise((begin, *ends)):
            left, right = self.states[self.children[at:end]].unbind(1)
            keep = None if self.keep is None else self.keep[at:end]
            self.states[self.first + at : self.first + end] = gated_cell(
                left, right, weights, keep, self.options.activation
            )

    def compose_pairs(self, begin: int, children: torch.Tensor, dropout: float) -> torch.Tensor:
        """Compose the inner nodes from ``begin`` of children ``[nodes, 2]``; return their states."""
        part = slice(begin, begin + len(children))
        self.children[part] = children
        if self.keep is not None:
            self.keep[part] = functional.dropout(torch.ones_like(self.keep[part]), dropout)
        self.compose(part.start, part.stop)
        return self.states[self.first + part.start : self.first + part.stop]

    def gradients(self, d_states: torch.Tensor, *ends: int) -> list[torch.Tensor]:
        """Add to the gradients of the children, from those of the inner nodes; return those of the weights."""
        assert self.options.library is not None
        if graph_is_retained():  # it overwrites what was kept for it
            self._kept = [each.clone() for each in self._kept]
        learned = self.states.new_zeros(self.options.threads, 2, self.states.shape[1])
        found = [torch.zeros_like(each) for each in self._weights[:4]]
        of = _GRADIENTS(states=d_states, learned=learned, **dict(zip(_WEIGHTS, found, strict=False)))
        self._call(self.options.library.backward, 0, ends, of)
        self._call(self.options.library.of_weights, 0, (), of)
        return [*found, *learned.sum(0)]

    def _call(self, function: Callable[..., None], begin: int, ends: Sequence[int], *gradients: object) -> None:
        """Call a function with the structures of the source."""
        kept: Sequence[torch.Tensor | None] = self._kept or [None] * len(_KEPT)
        problem = _PROBLEM(
            first=self.first,
            count=len(self.children),
            hidden_size=self.states.shape[1],
            inner_size=len(self._weights[0]),
            num_threads=self.options.threads,
            gelu=self.options.activation == "gelu",
            begin=begin,
            num_levels=len(ends),
            ends=torch.tensor(ends, dtype=torch.int64),
            children=self.children,
            keep=self.keep,
            states=self.states,
            **dict(zip(_WEIGHTS, self._weights, strict=True)),
            **dict(zip(_KEPT, kept, strict=True)),
        )
        function(problem, *gradients)


def new_nodes(
    given: torch.Tensor,
    children: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None,
    activation: CellActivation = "gelu",
    *,
    differentiable: bool = False,
) -> GatedNodes:
    """Return nodes none of which is composed yet.

    Args:
        given: the states of the rows before the inner nodes, ``[given rows, hidden_size]``.
        children, keep: see :class:`GatedNodes`.
        weights: of the cell.
        activation: of the hidden layer.
        differentiable: whether there will be a backward pass, which there is only in C++.
    """
    maps = [each.contiguous() for affine in weights for each in affine]
    library = gated_library([given, *maps, *([] if keep is None else [keep])])
    count, size, inner = len(children), given.shape[1], len(maps[0])
    states = empty_rows(given, len(given) + count, size)
    states[: len(given)] = given
    widths = (inner, inner, 4 * size, size + 1) if differentiable else ()
    kept = [empty_rows(given, count, width) for width in widths]
    threads = max(1, min(torch.get_num_threads(), count // _ROWS_PER_THREAD))
    own_keep = None if keep is None else keep.contiguous()
    options = NodeOptions(activation, library, threads)
    return GatedNodes(options, [states, children.contiguous(), *maps, *kept, own_keep])
