"""Inner nodes of binary trees, composed by the gated recursive cell a part at a time, with a backward pass by hand."""

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
from treemem.ops.gated_recursive.fused import GatedRecursiveStepPair
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.second_derivative import graph_is_retained

_SOURCE = Path(__file__).with_name("levels.cpp")
_ROWS_PER_THREAD = 64


class NodeOptions(NamedTuple):
    """How nodes are composed.

    Attributes:
        activation: of the hidden layer.
        library: the compiled functions; None: in torch.
        threads: of the compiled functions.
    """

    activation: CellActivation
    library: ctypes.CDLL | None
    threads: int


class GatedNodes:
    """The states of nodes; :func:`new_nodes` makes them, on a CPU in C++, where that can be had.

    An operation saves ``options`` and ``tensors``; in its backward pass :func:`saved_nodes` returns the nodes.

    Attributes:
        children: the rows of both children of each inner node, int64 ``[inner nodes, 2]``. May be filled in later.
        keep: by what the hidden layer of each inner node is multiplied, ``[inner nodes, inner_size]``, or None. May be
            filled in later.
        states: of all rows, ``[given rows + inner nodes, hidden_size]``.
        first: the number of given rows.
        kept: what the backward pass needs besides.
    """

    def __init__(self, options: NodeOptions, tensors: Sequence[torch.Tensor | None]) -> None:
        self.options, self.tensors = options, tensors
        self.states, self.children, *maps = (cast(torch.Tensor, each) for each in tensors[:-1])
        self._weights, self.kept, self.keep = maps[:6], maps[6:], tensors[-1]
        self.size = self.states.shape[1]
        self.first = len(self.states) - len(self.children)

    def compose(self, begin: int, *ends: int) -> None:
        """Compose inner nodes ``begin`` to ``ends[-1]``; those between two ends do not depend on each other."""
        raise NotImplementedError

    def compose_pairs(self, begin: int, children: torch.Tensor, dropout: float) -> torch.Tensor:
        """Compose the inner nodes from ``begin`` of children ``[nodes, 2]``; return their states."""
        part = slice(begin, begin + len(children))
        self.children[part] = children
        if self.keep is not None:
            self.keep[part] = functional.dropout(torch.ones_like(self.keep[part]), dropout)
        self.compose(part.start, part.stop)
        return self.states[self.first + part.start : self.first + part.stop]

    def backward(self, d_states: torch.Tensor, begin: int, *ends: int) -> None:
        """Add to the gradients of the children of these inner nodes, from those of their states."""
        raise NotImplementedError

    def of_weights(self, d_states: torch.Tensor) -> list[torch.Tensor]:
        """Return the gradients of the weights, after the backward pass of all inner nodes."""
        raise NotImplementedError


def new_nodes(
    given: torch.Tensor,
    children: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None,
    activation: CellActivation = "gelu",
    *,
    differentiable: bool,
) -> GatedNodes:
    """Return nodes none of which is composed yet.

    Args:
        given: the states of the rows before the inner nodes, ``[given rows, hidden_size]``.
        children, keep: see :class:`GatedNodes`.
        weights: of the cell.
        activation: of the hidden layer.
        differentiable: whether there will be a backward pass.
    """
    maps = [each.contiguous() for affine in weights for each in affine]
    read = [given, *maps, *([] if keep is None else [keep])]
    library = native_library(_SOURCE, read, f"REAL={TYPE_NAMES.get(given.dtype)}")
    count, size, inner = len(children), given.shape[1], len(maps[0])
    states = empty_rows(given, len(given) + count, size)
    states[: len(given)] = given
    widths = _sort_of(library).widths(inner, size) if differentiable else ()
    kept = [empty_rows(given, count, width) for width in widths]
    threads = max(1, min(torch.get_num_threads(), count // _ROWS_PER_THREAD))
    own_keep = None if keep is None else keep.contiguous()
    return _nodes(NodeOptions(activation, library, threads), [states, children.contiguous(), *maps, *kept, own_keep])


def saved_nodes(options: NodeOptions, tensors: Sequence[torch.Tensor | None]) -> GatedNodes:
    """Return nodes in a backward pass, which overwrites what was kept for it."""
    nodes = _nodes(options, tensors)
    if graph_is_retained():
        nodes.kept = [each.clone() for each in nodes.kept]
    return nodes


def _nodes(options: NodeOptions, tensors: Sequence[torch.Tensor | None]) -> GatedNodes:
    return _sort_of(options.library)(options, tensors)


def _sort_of(library: ctypes.CDLL | None) -> type[_TorchNodes | _NativeNodes]:
    return _TorchNodes if library is None else _NativeNodes


class _NativeNodes(GatedNodes):
    def __init__(self, options: NodeOptions, tensors: Sequence[torch.Tensor | None]) -> None:
        super().__init__(options, tensors)
        assert options.library is not None
        self._library = options.library
        self._found: list[torch.Tensor] = []

    @staticmethod
    def widths(inner: int, size: int) -> tuple[int, ...]:
        """Of the hidden layer, its derivative, the gates, and what the layer norm keeps."""
        return inner, inner, 4 * size, size + 1

    def compose(self, begin: int, *ends: int) -> None:
        self._call(self._library.forward, begin, ends)

    def backward(self, d_states: torch.Tensor, begin: int, *ends: int) -> None:
        self._call(self._library.backward, begin, ends, d_states)

    def of_weights(self, d_states: torch.Tensor) -> list[torch.Tensor]:
        self._call(self._library.of_weights, 0, (), d_states)
        *maps, learned = self._found
        return [*maps, *learned.sum(0)]

    def _call(
        self, function: Callable[..., None], begin: int, ends: Sequence[int], d_states: torch.Tensor | None = None
    ) -> None:
        """Call a function with ``Problem`` and, given ``d_states``, ``Gradients`` of the source."""
        until = torch.tensor(ends, dtype=torch.int64)
        sizes = self.first, len(self.children), self.size, len(self._weights[0]), self.options.threads
        kept: list[torch.Tensor | None] = [*self.kept] or [None] * 4
        tensors = (until, self.children, *self._weights, self.keep, self.states, *kept)
        is_gelu = self.options.activation == "gelu"
        problem = structure(*sizes, is_gelu, begin, len(ends), *map(address, tensors))
        if d_states is None:
            return function(problem)
        if not self._found:
            learned = self.states.new_zeros(self.options.threads, 2, self.size)
            self._found = [*map(torch.zeros_like, self._weights[:4]), learned]
        return function(problem, structure(*map(address, (d_states, *self._found))))


class _TorchNodes(GatedNodes):
    @staticmethod
    def widths(inner: int, size: int) -> tuple[int, ...]:
        """Of the hidden layer before and after its activation, the gates, and what the layer norm keeps."""
        return inner, inner, 4 * size, size, 1, 1

    def compose(self, begin: int, *ends: int) -> None:
        for at, end in pairwise((begin, *ends)):
            part = slice(at, end)
            children = self.states[self.children[part]]
            keep = None if self.keep is None else self.keep[part]
            state = self.states[self.first + at : self.first + end]
            if not self.kept:
                hidden_map, gate_map, norm = (Affine(*self._weights[first : first + 2]) for first in (0, 2, 4))
                weights = GatedCellWeights(hidden_map, gate_map, norm)
                left, right = children.unbind(1)
                state.copy_(gated_cell(left, right, weights, keep, self.options.activation))
                continue
            hidden_weight, hidden_bias, gate_weight, gate_bias = self._weights[:4]
            before, hidden, gates = (each[part] for each in self.kept[:3])
            torch.addmm(hidden_bias, children.flatten(1), hidden_weight.t(), out=before)
            hidden.copy_(functional.gelu(before) if self.options.activation == "gelu" else before.relu())
            if keep is not None:
                hidden *= keep
            torch.addmm(gate_bias, hidden, gate_weight.t(), out=gates)
            self._step().forward({"gates": gates}, {"h": children}, {"h": state}, self._of_norm(part))

    def backward(self, d_states: torch.Tensor, begin: int, *ends: int) -> None:
        hidden_weight, _, gate_weight, _ = self._weights[:4]
        for at, end in reversed(list(pairwise((begin, *ends)))):
            part, rows = slice(at, end), self.children[at:end]
            before, _, gates = (each[part] for each in self.kept[:3])
            d_state = {"h": d_states[self.first + at : self.first + end]}
            of_children = {"h": self.states[rows]}
            found = self._step().backward({"gates": gates}, of_children, {}, self._of_norm(part), None, d_state)
            d_children = found["h"].flatten(1)
            d_hidden = gates @ gate_weight
            if self.keep is not None:
                d_hidden *= self.keep[part]
            if self.options.activation == "gelu":
                before.copy_(torch.ops.aten.gelu_backward(d_hidden, before))
            else:
                before.copy_(torch.ops.aten.threshold_backward(d_hidden, before, 0))
            d_children.addmm_(before, hidden_weight)
            d_states.index_add_(0, rows.flatten(), d_children.view(-1, self.size))

    def of_weights(self, d_states: torch.Tensor) -> list[torch.Tensor]:
        d_before, hidden, d_gates = self.kept[:3]
        children = self.states[self.children].flatten(1)
        of_norm = self._step().learned_gradients(self._of_norm(slice(None)), {"h": d_states[self.first :]})
        return [d_before.t() @ children, d_before.sum(0), d_gates.t() @ hidden, d_gates.sum(0), *of_norm]

    def _step(self) -> GatedRecursiveStepPair:
        return GatedRecursiveStepPair(2, self.size, *self._weights[4:])

    def _of_norm(self, part: slice) -> dict[str, torch.Tensor]:
        return dict(zip(("mixed", "mean", "rstd"), (each[part] for each in self.kept[3:]), strict=True))
