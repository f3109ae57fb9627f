"""Runs a formula on symbols: entries of tensors, each of which is a node of a program at a position of a vector.

Torch runs the formula on numbers, and its backward pass, and shows each operation. The same operation is then done on
arrays of symbols. So numpy resolves every view, and a sum knows whether it runs over children, which is an addition of
nodes, or over the positions of a vector, which is a reduction of one.
"""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from treemem.engines.printer.operations import OF_ATEN
from treemem.engines.printer.program import Node, Place, Program, in_order
from treemem.engines.printer.views import FILLED, REFUSED, VIEWS, at_index

Symbols = NDArray[np.int64]
"""``node.number * (D + 1) + position + 1``; for a node without positions, ``node.number * (D + 1)``."""

_DECOMPOSED = (
    *("sigmoid_backward", "tanh_backward", "threshold_backward", "elu", "elu_backward", "silu", "silu_backward"),
    *("gelu", "gelu_backward", "softplus", "softplus_backward", "leaky_relu", "leaky_relu_backward", "hardtanh"),
    *("hardtanh_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward", "mish"),
    *("mish_backward", "native_layer_norm", "native_layer_norm_backward", "_softmax_backward_data", "_log_softmax"),
    *("_log_softmax_backward_data", "logsumexp", "addcmul", "addcdiv", "lerp", "addmm", "rsub", "glu", "glu_backward"),
    *("log_sigmoid_forward", "log_sigmoid_backward"),
)  # fmt: skip


class StepError(Exception):
    """A step that cannot be printed; the message says why."""


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import get_decompositions  # slow to import

    return get_decompositions([getattr(torch.ops.aten, name) for name in _DECOMPOSED])


class SymbolicRun(TorchDispatchMode):
    """A block in which operations on known tensors are done on symbols, too.

    Args:
        program: gets the nodes.
        D: width of a vector.

    Raises:
        StepError: in the block, at an operation that cannot be printed.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch not import its compiler, which takes seconds."""
        return False

    def __init__(self, program: Program, D: int) -> None:
        super().__init__()
        self.program, self.D, self._base = program, D, D + 1
        self._known: dict[tuple[Any, ...], Symbols] = {}
        self._alive: list[torch.Tensor] = []  # so that no other tensor takes the memory

    def symbol(self, node: Node, position: int | None = None) -> int:
        return node.number * self._base + (0 if position is None else position + 1)

    def node(self, symbol: int) -> Node:
        return self.program.nodes[symbol // self._base]

    def positions(self, symbols: Symbols) -> Symbols:
        """Return the positions from 1 on; 0 for none."""
        return symbols % self._base

    def symbols_of_places(self, places: Sequence[Sequence[tuple[Place, int | None]]]) -> Symbols:
        """Return the symbols of what is in memory, from the place and the position of each entry."""
        return np.array([[self.symbol(self.program.load(place), at) for place, at in row] for row in places], np.int64)

    def know(self, tensor: torch.Tensor, symbols: Symbols) -> None:
        """Say which symbols are the entries of a tensor."""
        self._alive.append(tensor)
        self._known[where(tensor)] = symbols

    def symbols(self, values: Any) -> Symbols:
        """Return an array of symbols, of a tensor, of numbers, or of symbols."""
        if isinstance(values, torch.Tensor):
            if where(values) not in self._known:
                raise StepError(
                    "it reads a tensor that is not a learned parameter of the cell nor a buffer of floating-point "
                    "numbers, or a weight without its gradient"
                )
            return self._known[where(values)]
        if isinstance(values, (np.ndarray, np.int64)) and values.dtype == np.int64:
            return np.asarray(values)
        values = np.asarray(values, np.float64)
        constants = np.array([self._constant(value) for value in values.flat], np.int64)
        return constants.reshape(values.shape)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _decompositions():
            with self:
                return _decompositions()[func](*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # it consists of others
                return func.decompose(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
            if self._is_weight(func, args):
                return result
            shape = tuple(result.shape) if isinstance(result, torch.Tensor) else ()
            symbols = self._operation(func, shape, args, kwargs)
        except StepError as error:
            raise StepError(f"{error}{_line()}") from None
        several = isinstance(result, (tuple, list))
        for tensor, entries in zip(result if several else [result], symbols if several else [symbols], strict=True):
            self.know(tensor, entries)
        return result

    def _is_weight(self, func: Any, args: Any) -> bool:
        """Whether this is a view of a tensor that is not known: a weight, whose product is taken as given."""
        is_view = func._schema.name.removeprefix("aten::") in VIEWS and isinstance(args[0], torch.Tensor)
        return is_view and where(args[0]) not in self._known

    def _operation(self, func: Any, shape: tuple[int, ...], args: Any, kwargs: Any) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if func._schema.is_mutable:  # right where nothing else sees the memory
            memory = where(args[0])[0]
            if not name.endswith("_") or [place[0] for place in self._known].count(memory) != 1:
                raise StepError("it writes into a tensor in place that other tensors are views of")
            name = name.removesuffix("_")
        if name in OF_ATEN:
            if kwargs.get("alpha", 1) != 1:
                args = (args[0], self.pointwise("mul", args[1], kwargs["alpha"]))
            return self.pointwise(OF_ATEN[name], *args)
        if name in FILLED:
            return np.full(shape, self._constant(FILLED[name](*args)))
        if name == "lift_fresh":
            return self.symbols(args[0].double().numpy())
        if name in VIEWS:
            first, *others = args
            several = isinstance(first, (tuple, list))
            return VIEWS[name](
                shape, [*map(self.symbols, first)] if several else self.symbols(first), *others, **kwargs
            )
        method = getattr(self, f"_aten_{name.lstrip('_')}", None)
        if method is None:
            raise StepError(REFUSED.get(name, f"the operation {name} cannot be printed"))
        return method(shape, *args, **kwargs)

    def _constant(self, value: float) -> int:
        if value == self.D > 4:
            return self.symbol(self.program.width)
        if value and self.D > 4 and abs(value * self.D - 1) < 1e-12:
            return self.symbol(self.program.of("div", self.program.constant(1), self.program.width))
        return self.symbol(self.program.constant(value))

    # Pointwise operations, and those over dimensions.

    def pointwise(self, op: str, *given: Any) -> Symbols:
        """Return an operation on each entry; arrays are broadcast.

        Raises:
            StepError: entries at different positions of a state meet.
        """
        arrays = np.broadcast_arrays(*map(self.symbols, given))
        positions = [self.positions(array) for array in arrays]
        position = np.maximum.reduce(positions)
        if any(((other != 0) & (other != position)).any() for other in positions):
            raise StepError("different positions of a state meet, other than in a sum, a maximum or a running sum")
        numbers = np.stack([array.ravel() // self._base for array in arrays], 1)
        distinct, inverse = np.unique(numbers, axis=0, return_inverse=True)
        made = [self.program.of(op, *(self.program.nodes[number] for number in row)) for row in distinct]
        of_entry = np.array([self.symbol(node) for node in made], np.int64)[inverse.ravel()].reshape(position.shape)
        has_positions = np.array([node.is_vector for node in made], bool)[inverse.ravel()].reshape(position.shape)
        return of_entry + np.where(has_positions, position, 0)

    def reduced(self, array: Any, dims: Any, keepdim: bool, fold: str, across: str) -> Symbols:
        """Return a sum or maximum over dimensions.

        Args:
            array: of symbols.
            dims: the dimensions; all if None or empty.
            keepdim: whether they stay, with size 1.
            fold, across: the operation on two nodes, and that on the positions of one.
        """
        array = self.symbols(array)
        over = sorted(d % array.ndim for d in (range(array.ndim) if dims in (None, []) else np.atleast_1d(dims)))
        rest = [d for d in range(array.ndim) if d not in over]
        kept = tuple(array.shape[d] for d in rest)
        flat = array.transpose(*rest, *over).reshape(*kept, math.prod(array.shape[d] for d in over))
        position = self.positions(flat)
        if not flat.shape[-1]:
            folded = np.full(kept, self._constant(0.0))
        elif ((position == 0) | (position == position.max(-1, keepdims=True))).all() and flat.shape[-1] != self.D:
            folded = flat[..., 0]
            for at in range(1, flat.shape[-1]):
                folded = self.pointwise(fold, folded, flat[..., at])
        else:
            folded = np.empty(kept, np.int64)
            for at in np.ndindex(kept):
                folded[at] = self._total(flat[at], fold, across)
        return np.expand_dims(folded, tuple(over)) if keepdim else folded

    def _total(self, symbols: Symbols, fold: str, across: str) -> int:
        """Return the total of entries, among which are all positions of nodes, or numbers."""
        total: Node | None = None
        at: set[int] = set()
        for number in np.unique(symbols // self._base):
            alike = symbols[symbols // self._base == number]
            node, places, counts = self.program.nodes[number], *np.unique(self.positions(alike), return_counts=True)
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
        moved = np.moveaxis(self.symbols(array), dim, -1)
        sums = np.empty(moved.shape, np.int64)
        everywhere = np.arange(1, self.D + 1)
        for at in np.ndindex(moved.shape[:-1]):
            row, places = moved[at], self.positions(moved[at])
            one = len({*(row // self._base)}) == 1
            if one and np.array_equal(places, everywhere):
                sums[at] = self.symbol(self.program.of("running sum", self.node(row[0]))) + everywhere
            elif one and np.array_equal(places, everywhere[::-1]):
                sums[at] = self.symbol(self.program.of("running sum backwards", self.node(row[0]))) + everywhere[::-1]
            else:
                sums[at] = [self._total(row[: k + 1], "add", "sum") for k in range(len(row))]
        return np.moveaxis(sums, -1, dim)

    # Operations that are neither one node an entry nor a view.

    def _aten_to_copy(self, shape: Any, x: Any, dtype: Any = torch.float64, **_: Any) -> Symbols:
        if dtype != torch.float64:
            raise StepError(f"it casts to {str(dtype).removeprefix('torch.')}")
        return self.symbols(x)

    def _aten_sum(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Symbols:
        return self.reduced(x, dims, keepdim, "add", "sum")

    def _aten_amax(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Symbols:
        return self.reduced(x, dims, keepdim, "max", "largest")

    def _aten_amin(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Symbols:
        return self.pointwise("neg", self._aten_amax(shape, self.pointwise("neg", x), dims, keepdim))

    def _aten_mean(self, shape: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Symbols:
        total = self._aten_sum(shape, x, dims, keepdim)
        return self.pointwise("div", total, np.array(self._count(x.numel() // max(1, total.size))))

    def _aten_var_mean(self, shape: Any, x: Any, dims: Any = None, correction: float = 1, keepdim: bool = False) -> Any:
        mean = self._aten_mean(shape, x, dims, True)
        centred = self.pointwise("sub", x, mean)
        square = self._aten_sum(shape, self.pointwise("mul", centred, centred), dims, True)
        count = np.array(self._count(x.numel() // max(1, mean.size)))
        variance = self.pointwise("div", square, self.pointwise("sub", count, float(correction)))
        dims = tuple(np.atleast_1d(dims if dims is not None else range(x.ndim)))
        return (variance, mean) if keepdim else (variance.squeeze(dims), mean.squeeze(dims))

    def _aten_var(self, shape: Any, x: Any, dims: Any = None, correction: float = 1, keepdim: bool = False) -> Symbols:
        variance: Symbols = self._aten_var_mean(shape, x, dims, correction, keepdim)[0]
        return variance

    def _aten_std(self, shape: Any, x: Any, dims: Any = None, correction: float = 1, keepdim: bool = False) -> Symbols:
        return self.pointwise("sqrt", self._aten_var(shape, x, dims, correction, keepdim))

    def _aten_linalg_vector_norm(
        self, shape: Any, x: Any, ord: float = 2, dims: Any = None, keepdim: bool = False, **_: Any
    ) -> Symbols:
        if ord != 2:
            raise StepError(f"the norm of order {ord} cannot be printed")
        return self.pointwise("sqrt", self._aten_sum(shape, self.pointwise("mul", x, x), dims, keepdim))

    def _aten_softmax(self, shape: Any, x: Any, dim: int, *_: Any) -> Symbols:
        x = self.symbols(x)
        if any(self.node(symbol).op not in ("sigmoid", "tanh") for symbol in x.flat):  # those are at most 1
            x = self.pointwise("sub", x, self._aten_amax(shape, x, [dim], True))
        weights = self.pointwise("exp", x)
        return self.pointwise("div", weights, self._aten_sum(shape, weights, [dim], True))

    _aten_safe_softmax = _aten_softmax

    def _aten_cumsum(self, shape: Any, x: Any, dim: int, **_: Any) -> Symbols:
        return self._running(x, dim)

    def _aten_mm(self, shape: Any, a: Any, b: Any) -> Symbols:
        a, b = self.symbols(a), self.symbols(b)
        if b.shape[-1] >= self.D and self._is_learned(b):
            raise StepError(
                "a product with a part of a weight, or with a matrix made from one, cannot be printed; multiply by a "
                "whole weight, with nn.Linear, functional.linear or @"
            )
        return self._aten_sum(shape, self.pointwise("mul", a[..., :, :, None], b[..., None, :, :]), [-2])

    _aten_bmm = _aten_mm

    def _is_learned(self, symbols: Symbols) -> bool:
        """Whether they depend on what the cell learns, and on nothing of the row."""
        nodes = in_order({self.node(symbol): None for symbol in symbols.flat})
        bases = {node.args[0].base for node in nodes if node.op == "load"}
        return bases == {"learned"}

    def _aten_mv(self, shape: Any, a: Any, b: Any) -> Symbols:
        return self._aten_sum(shape, self.pointwise("mul", a, b), [-1])

    _aten_dot = _aten_mv

    def _aten_relu(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("max", x, 0.0)

    def _aten_masked_fill(self, shape: Any, x: Any, mask: Any, value: Any) -> Symbols:
        return self.pointwise("where", mask, value, x)

    def _aten_clamp(self, shape: Any, x: Any, least: Any = None, most: Any = None) -> Symbols:
        x = self.symbols(x) if least is None else self.pointwise("max", x, least)
        return x if most is None else self.pointwise("min", x, most)

    def _aten_clamp_min(self, shape: Any, x: Any, least: Any) -> Symbols:
        return self.pointwise("max", x, least)

    def _aten_clamp_max(self, shape: Any, x: Any, most: Any) -> Symbols:
        return self.pointwise("min", x, most)

    def _aten_square(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("mul", x, x)

    def _aten_reciprocal(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("div", 1.0, x)

    def _aten_rsqrt(self, shape: Any, x: Any) -> Symbols:
        return self.pointwise("div", 1.0, self.pointwise("sqrt", x))

    def _aten_constant_pad_nd(self, shape: Any, x: Any, pad: Sequence[int], value: float = 0) -> Symbols:
        x = self.symbols(x)
        padded = np.full(shape, self._constant(value))
        source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for at in range(len(pad) // 2):  # a negative one cuts off
            before, after, dim = pad[2 * at], pad[2 * at + 1], x.ndim - 1 - at
            source[dim] = slice(max(0, -before), x.shape[dim] + min(0, after))
            target[dim] = slice(max(0, before), shape[dim] - max(0, after))
        padded[tuple(target)] = x[tuple(source)]
        return padded

    def _aten_slice_backward(self, shape: Any, g: Any, size: Any, dim: int, begin: int, end: int, step: int) -> Symbols:
        return self._put(g, shape, at_index(dim, len(shape), slice(begin, end, step)))

    def _aten_select_backward(self, shape: Any, g: Any, size: Any, dim: int, at: int) -> Symbols:
        return self._put(g, shape, at_index(dim, len(shape), at))

    def _put(self, values: Any, shape: Any, where: Any) -> Symbols:
        whole = np.full(shape, self._constant(0.0))
        whole[where] = self.symbols(values)
        return whole


def where(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a tensor has in common with its views of the same entries, such as those that autograd keeps."""
    memory = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    return memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def note_line(result: Any) -> None:
    """Let the derivative of a result know where the formula stands."""
    if isinstance(result, torch.Tensor) and result.grad_fn is not None:
        _notes(result.grad_fn).setdefault("line", _line())


def _notes(node: Any) -> dict[Any, Any]:
    """What is noted of a node of autograd."""
    notes: dict[Any, Any] = node.metadata
    return notes


def _line() -> str:
    """Return where the formula stands: the last line that is not of torch or of this package."""
    backward = torch._C._current_autograd_node()
    if backward is not None:
        line: str = _notes(backward).get("line", f" (in the backward pass of {backward.name()})")
        return line
    packages = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*packages, "<")):
        frame = frame.f_back
    file, number = frame.f_code.co_filename, frame.f_lineno
    return f" ({Path(file).name}, line {number}: {linecache.getline(file, number).strip()})"
