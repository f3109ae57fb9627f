"""Runs a traced graph on arrays of symbols: each entry says which node of a program it is, and at which position.

So numpy resolves every view, and a sum knows whether it runs over children, which is an addition of nodes, or over the
positions of a state, which is a reduction of one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.engines.printer.operations import OF_ATEN
from treemem.engines.printer.program import Node, Program

Symbols = NDArray[np.int64]
"""``node.number * (D + 1) + position + 1``; for a node without positions, ``node.number * (D + 1)``."""


class StepError(Exception):
    """A step that cannot be printed; the message says why."""


class SymbolicRun:
    """Operations of aten on arrays of symbols.

    Args:
        program: gets the nodes.
        D: width of a state.
    """

    def __init__(self, program: Program, D: int) -> None:
        self.program, self.D, self._base = program, D, D + 1

    def symbol(self, node: Node, position: int | None = None) -> int:
        return node.number * self._base + (0 if position is None else position + 1)

    def node(self, symbol: int) -> Node:
        return self.program.nodes[symbol // self._base]

    def positions(self, symbols: Symbols) -> Symbols:
        """Return the positions from 1 on; 0 for none."""
        return symbols % self._base

    def run(self, graph: torch.fx.Graph, inputs: Sequence[Symbols]) -> list[Symbols]:
        """Return the outputs of a graph.

        Raises:
            StepError: it has an operation that cannot be printed.
        """
        known: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in graph.nodes:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "output":
                return [self._symbols(each) for each in args[0]]
            elif node.op == "get_attr":
                known[node] = self._literal(node, getattr(graph.owning_module, node.target))
            elif node.target is operator.getitem:
                known[node] = args[0][args[1]]
            else:
                try:
                    known[node] = self._call(node, args, kwargs)
                except StepError as error:
                    raise StepError(f"{error}{_line(node)}") from None
        raise AssertionError("a graph has an output")

    def _literal(self, node: torch.fx.Node, value: torch.Tensor) -> Symbols:
        if not all("lift_fresh" in str(each.target) for each in node.users):
            raise StepError("it reads a tensor that is neither a parameter nor a buffer of the cell; register it")
        return self._symbols(value.double().numpy())

    def _call(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        name = target._schema.name.removeprefix("aten::")
        value = node.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if name in OF_ATEN:
            if kwargs.get("alpha", 1) != 1:
                args = (args[0], self.pointwise("mul", args[1], kwargs["alpha"]))
            return self.pointwise(OF_ATEN[name], *args)
        if name in VIEWS:
            return VIEWS[name](shape, *(self._symbols(each) if _is_symbols(each) else each for each in args), **kwargs)
        if name in FILLED:
            return np.full(shape, self._constant(FILLED[name](*args)))
        method = getattr(self, f"_aten_{name.lstrip('_')}", None)
        if method is None:
            raise StepError(f"the operation {name} cannot be printed")
        return method(shape, *args, **kwargs)

    def _constant(self, value: float) -> int:
        if value == self.D > 4:
            return self.symbol(self.program.width)
        if value and self.D > 4 and abs(value * self.D - 1) < 1e-12:
            return self.symbol(self.program.of("div", self.program.constant(1), self.program.width))
        return self.symbol(self.program.constant(value))

    def _symbols(self, values: Any) -> Symbols:
        """Return an array of symbols; numbers become constants."""
        if isinstance(values, (np.ndarray, np.int64)) and values.dtype == np.int64:
            return np.asarray(values)
        values = np.asarray(values, np.float64)
        found = np.array([self._constant(each) for each in values.flat], np.int64)
        return found.reshape(values.shape)

    # Pointwise operations, and those over dimensions.

    def pointwise(self, op: str, *given: Any) -> Symbols:
        """Return an operation on each entry; arrays are broadcast.

        Raises:
            StepError: entries at different positions of a state meet.
        """
        arrays = np.broadcast_arrays(*map(self._symbols, given))
        positions = [self.positions(each) for each in arrays]
        position = np.maximum.reduce(positions)
        if any(((each != 0) & (each != position)).any() for each in positions):
            raise StepError("different positions of a state meet, other than in a sum, a maximum or a running sum")
        numbers = np.stack([each.ravel() // self._base for each in arrays], 1)
        distinct, inverse = np.unique(numbers, axis=0, return_inverse=True)
        made = [self.program.of(op, *(self.program.nodes[each] for each in row)) for row in distinct]
        of_entry = np.array([self.symbol(each) for each in made], np.int64)[inverse.ravel()].reshape(position.shape)
        has_positions = np.array([each.is_vector for each in made], bool)[inverse.ravel()].reshape(position.shape)
        return of_entry + np.where(has_positions, position, 0)

    def reduced(self, array: Any, dims: Any, keepdim: bool, fold: str, across: str) -> Symbols:
        """Return a sum or maximum over dimensions.

        Args:
            array: of symbols.
            dims: the dimensions; all if None or empty.
            keepdim: whether they stay, with size 1.
            fold, across: the operation on two nodes, and that on the positions of one.
        """
        array = self._symbols(array)
        over = sorted(d % array.ndim for d in (range(array.ndim) if dims in (None, []) else np.atleast_1d(dims)))
        rest = [d for d in range(array.ndim) if d not in over]
        flat = array.transpose(*rest, *over).reshape(*(array.shape[d] for d in rest), -1)
        position = self.positions(flat)
        if not flat.shape[-1]:
            found = np.full(flat.shape[:-1], self._constant(0.0))
        elif ((position == 0) | (position == position.max(-1, keepdims=True))).all() and flat.shape[-1] != self.D:
            found = flat[..., 0]
            for at in range(1, flat.shape[-1]):
                found = self.pointwise(fold, found, flat[..., at])
        else:
            found = np.empty(flat.shape[:-1], np.int64)
            for at in np.ndindex(found.shape):
                found[at] = self._total(flat[at], fold, across)
        return np.expand_dims(found, tuple(over)) if keepdim else found

    def _total(self, symbols: Symbols, fold: str, across: str) -> int:
        """Return the total of entries, among which are all positions of nodes, or numbers."""
        total: Node | None = None
        at: set[int] = set()
        for number in np.unique(symbols // self._base):
            own = symbols[symbols // self._base == number]
            node, places, counts = self.program.nodes[number], *np.unique(self.positions(own), return_counts=True)
            count = int(counts[0])
            if node.is_vector and len(places) == 1 != self.D:  # one position, again and again
                part = node
                at.add(int(places[0]))
            elif node.is_vector and (len(places) < self.D or (counts != count).any()):
                raise StepError("it takes some positions of a state together, but not all")
            else:
                part = self.program.of(across, node) if node.is_vector else node
                at.add(0)
            if fold == "add" and count > 1:
                part = self.program.of("mul", self.node(self._count(count)), part)
            total = part if total is None else self.program.of(fold, total, part)
        assert total is not None
        position = max(at)
        if len(at - {0}) > 1 or (total.is_vector and not position):
            raise StepError("it takes some positions of a state together, but not all")
        return self.symbol(total, position - 1 if total.is_vector else None)

    def _count(self, count: int) -> int:
        """Return a number of entries, in terms of D if there are as many as positions or several times as many."""
        if self.D > 4 and count % self.D == 0:
            return self.symbol(self.program.of("mul", self.program.constant(count // self.D), self.program.width))
        return self.symbol(self.program.constant(count))

    def _running(self, array: Any, dim: int) -> Symbols:
        moved = np.moveaxis(self._symbols(array), dim, -1)
        found = np.empty(moved.shape, np.int64)
        everywhere = np.arange(1, self.D + 1)
        for at in np.ndindex(moved.shape[:-1]):
            own, places = moved[at], self.positions(moved[at])
            one = len({*(own // self._base)}) == 1
            if one and np.array_equal(places, everywhere):
                found[at] = self.symbol(self.program.of("running sum", self.node(own[0]))) + everywhere
            elif one and np.array_equal(places, everywhere[::-1]):
                found[at] = self.symbol(self.program.of("running sum backwards", self.node(own[0]))) + everywhere[::-1]
            else:
                found[at] = [self._total(own[: k + 1], "add", "sum") for k in range(len(own))]
        return np.moveaxis(found, -1, dim)

    # Operations that are neither one node an entry nor a view.

    def _aten_to_copy(self, shape: Any, x: Any, dtype: Any = torch.float64, **_: Any) -> Any:
        if dtype != torch.float64:
            raise StepError(f"it casts to {str(dtype).removeprefix('torch.')}")
        return x

    def _aten_sum(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Symbols:
        return self.reduced(x, dims, keepdim, "add", "sum")

    def _aten_amax(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Symbols:
        return self.reduced(x, dims, keepdim, "max", "largest")

    def _aten_amin(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Symbols:
        return self.pointwise("neg", self._aten_amax(shape, self.pointwise("neg", x), dims, keepdim))

    def _aten_mean(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Symbols:
        total = self._aten_sum(shape, x, dims, keepdim)
        return self.pointwise("div", total, np.array(self._count(np.size(x) // max(1, np.size(total)))))

    def _aten_var_mean(self, shape: Any, x: Any, dims: Any = None, correction: float = 1, keepdim: bool = False) -> Any:
        mean = self._aten_mean(shape, x, dims, True)
        centred = self.pointwise("sub", x, mean)
        square = self._aten_sum(shape, self.pointwise("mul", centred, centred), dims, True)
        count = np.array(self._count(np.size(x) // max(1, np.size(mean))))
        variance = self.pointwise("div", square, self.pointwise("sub", count, float(correction)))
        dims = tuple(np.atleast_1d(dims if dims is not None else range(np.ndim(x))))
        return (variance, mean) if keepdim else (variance.squeeze(dims), mean.squeeze(dims))

    def _aten_softmax(self, shape: Any, x: Any, dim: int, half: bool) -> Symbols:
        x = self._symbols(x)
        if any(self.node(each).op not in ("sigmoid", "tanh") for each in x.flat):  # those are at most 1
            x = self.pointwise("sub", x, self._aten_amax(shape, x, [dim], True))
        weights = self.pointwise("exp", x)
        return self.pointwise("div", weights, self._aten_sum(shape, weights, [dim], True))

    def _aten_cumsum(self, shape: Any, x: Any, dim: int, **_: Any) -> Symbols:
        return self._running(x, dim)

    def _aten_mm(self, shape: Any, a: Any, b: Any) -> Symbols:
        return self._aten_sum(shape, self.pointwise("mul", a[..., :, :, None], b[..., None, :, :]), [-2])

    _aten_bmm = _aten_mm

    def _aten_relu(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("max", x, 0.0)

    def _aten_clamp(self, shape: Any, x: Any, least: Any = None, most: Any = None) -> Symbols:
        x = self._symbols(x) if least is None else self.pointwise("max", x, least)
        return x if most is None else self.pointwise("min", x, most)

    def _aten_square(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("mul", x, x)

    def _aten_reciprocal(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("div", 1.0, x)

    def _aten_rsqrt(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("div", 1.0, self.pointwise("sqrt", x))

    def _aten_constant_pad_nd(self, shape: Any, x: Any, pad: Sequence[int], value: float = 0) -> Symbols:
        x = self._symbols(x)
        found = np.full(shape, self._constant(value))
        source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for at in range(len(pad) // 2):  # a negative one cuts off
            before, after, dim = pad[2 * at], pad[2 * at + 1], x.ndim - 1 - at
            source[dim] = slice(max(0, -before), x.shape[dim] + min(0, after))
            target[dim] = slice(max(0, before), shape[dim] - max(0, after))
        found[tuple(target)] = x[tuple(source)]
        return found

    def _aten_slice_backward(self, shape: Any, g: Any, size: Any, dim: int, begin: int, end: int, step: int) -> Symbols:
        return self._put(g, shape, _at(dim, len(shape), slice(begin, end, step)))

    def _aten_select_backward(self, shape: Any, g: Any, size: Any, dim: int, at: int) -> Symbols:
        return self._put(g, shape, _at(dim, len(shape), at))

    def _put(self, values: Any, shape: Any, where: Any) -> Symbols:
        found = np.full(shape, self._constant(0.0))
        found[where] = self._symbols(values)
        return found


def _is_symbols(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.int64))


def _line(node: torch.fx.Node) -> str:
    """Return where in the user's file an operation stands, if it is known."""
    trace = [each for each in (node.stack_trace or "").splitlines() if each.strip().startswith("File")]
    return f" ({trace[-1].strip()})" if trace else ""


def _at(dim: int, ndim: int, what: Any) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * ndim
    index[dim] = what
    return tuple(index)


def _split(shape: Any, x: Any, sizes: Any, dim: int = 0) -> list[Any]:
    bounds = np.cumsum(sizes)[:-1] if isinstance(sizes, (list, tuple)) else range(sizes, x.shape[dim], sizes)
    return np.split(x, list(bounds), dim)


def _reshaped(shape: Any, x: Any, *_: Any, **__: Any) -> Any:
    return np.reshape(x, shape)


def _same(shape: Any, x: Any, *_: Any, **__: Any) -> Any:
    return x


VIEWS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _reshaped),
    **dict.fromkeys(("clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "contiguous"), _same),
    "expand": lambda shape, x, *_, **__: np.broadcast_to(x, shape),
    "permute": lambda shape, x, dims: x.transpose(dims),
    "transpose": lambda shape, x, a, b: x.swapaxes(a, b),
    "t": lambda shape, x: x.T,
    "slice": lambda shape, x, dim=0, begin=None, end=None, step=1: x[_at(dim, x.ndim, slice(begin, end, step))],
    "select": lambda shape, x, dim, at: x[_at(dim, x.ndim, at)],
    "cat": lambda shape, xs, dim=0: np.concatenate([each for each in xs if np.ndim(each) == len(shape)], dim),
    "stack": lambda shape, xs, dim=0: np.stack(xs, dim),
    "unbind": lambda shape, x, dim=0: list(np.moveaxis(x, dim, 0)),
    "split_with_sizes": _split,
    "split": _split,
    "flip": lambda shape, x, dims: np.flip(x, dims),
}

FILLED: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("full", "full_like", "new_full"), lambda *args: args[-1]),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), lambda *_: 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda *_: 1.0),
    "scalar_tensor": lambda value: value,
}
