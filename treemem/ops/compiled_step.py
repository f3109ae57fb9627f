"""The pointwise step of a level as one compiled kernel forwards and one backwards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import torch

from treemem.ops.activation import activation
from treemem.ops.cell import State, StepPair, UnrolledStep, Vectors
from treemem.ops.children import Children
from treemem.ops.compile_mode import compiling, give_up
from treemem.ops.product_input import Shapes

_NAMES = {True: ("train", "backward"), False: ("score",)}
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4}  # of kernels to the step, for numbers around 1
_INT32 = 2**31 - 1
_compiler = Lock()  # compiles one kernel at a time
_MOST_CHILDREN = 6  # more make a kernel of several loops, which takes half a minute to compile

Kernel = Callable[[list[torch.Tensor]], object]
"""Reads some of its tensors and writes the others; may empty the list."""


class WrongNumbers(RuntimeError):
    """A compiled kernel computes something else than the step that it was made of."""


def compiled_where_wanted(
    pair: StepPair, shapes: Shapes, num_rows: int, dtype: torch.dtype, device: torch.device, train: bool
) -> StepPair:
    """The compiled form of a step, where steps are to be compiled and this one can be; else the step pair itself.

    A step is compiled once in a process, and tried out before it is relied upon.

    Args:
        pair: the step.
        shapes: of one node's states.
        num_rows: rows of the states.
        dtype, device: of the states.
        train: whether there will be a backward pass.
    """
    if not compiling(device) or dtype not in _CLOSE:
        return pair
    step: UnrolledStep | None = getattr(pair, "unrolled", None)
    if step is None or step.arity > _MOST_CHILDREN:
        return pair
    if device.type != "cpu" and num_rows * max(map(math.prod, shapes.values())) > _INT32:
        return pair  # kernels for other devices count in 32 bits
    num_threads = torch.get_num_threads()
    key = (step, tuple(shapes.items()), dtype, device, num_threads)
    with _compiler:
        compiled = _steps.get(key)
        if compiled is None:
            compiled = _steps[key] = CompiledStep(step)
        if compiled.is_made(train):
            return compiled
        if compiled.is_wrong:
            return pair
        # In a thread of its own, where nothing is in force that the caller may be in: saved tensor hooks, transforms.
        with ThreadPoolExecutor(1) as thread:
            making = thread.submit(_make, compiled, shapes, dtype, device, train, num_threads)
            try:
                making.result()
            except WrongNumbers as error:
                compiled.is_wrong = True
                warnings.warn(f"{error}; it runs uncompiled", RuntimeWarning, stacklevel=2)
                return pair
            except Exception as error:  # whatever compilers raise, the steps run without one
                reason = str(error).strip().splitlines() or [type(error).__name__]
                give_up(reason[0])
                return pair
    return compiled


def _make(
    compiled: CompiledStep, shapes: Shapes, dtype: torch.dtype, device: torch.device, train: bool, num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        compiled.make(shapes, dtype, device, train)


def forget_compiled_steps() -> None:
    """Compile every step anew when it is next needed."""
    _steps.clear()


class CompiledStep(StepPair):
    """An unrolled step, compiled forwards and backwards, as a step pair (:class:`treemem.ops.cell.StepPair`).

    The children's states are gathered, and the results written, by the kernels themselves. Where there will be a
    backward pass, the forward pass turns the products into the gates, in place.

    Args:
        step: the step.
    """

    def __init__(self, step: UnrolledStep) -> None:
        self._step = step
        self._widths = {name: [width for width, _ in blocks] for name, blocks in step.blocks.items()}
        self._kernels: dict[str, Kernel] = {}
        self.is_wrong = False

    def is_made(self, train: bool) -> bool:
        """Whether the kernels are there that training, or scoring, needs."""
        return all(name in self._kernels for name in _NAMES[train])

    def make(self, shapes: Shapes, dtype: torch.dtype, device: torch.device, train: bool) -> None:
        """Compile the kernels that are needed, and see whether they compute the step.

        Args:
            shapes: of one node's states.
            dtype, device: of the states.
            train: whether there will be a backward pass.

        Raises:
            WrongNumbers: they do not.
        """
        names = _NAMES[train]
        functions: dict[str, Kernel] = {"score": self._score, "train": self._train, "backward": self._differentiate}
        largest = sum(map(sum, self._widths.values())) + sum(map(math.prod, shapes.values()))
        # Sizes that occur nowhere else, since a compiler takes two equal ones for the same.
        examples = self._random_inputs(largest + 3, largest + 5, shapes, dtype, device)
        made = {name: _compiled(functions[name], examples[name]) for name in names}
        for nodes in (1, 2, 19):
            for name in names:
                found, expected = (self._random_inputs(nodes, 7, shapes, dtype, device)[name] for _ in range(2))
                made[name](list(found))
                functions[name](expected)
                close = _CLOSE[dtype]
                if not all(torch.allclose(a, b, rtol=close, atol=close) for a, b in zip(found, expected, strict=True)):
                    what = f"{type(self._step).__name__} of {self._step.arity} children"
                    raise WrongNumbers(f"the compiler made {what} compute other numbers than it should")
        self._kernels |= made

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> None:
        """Write the states; see :class:`treemem.ops.cell.StepPair`."""
        train = kept is not None
        self._kernels["train" if train else "score"](self._forward_inputs(products, children, out, train))

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: None, gradient: State
    ) -> State:
        """Overwrite the gates with the gradients of the products; see :class:`treemem.ops.cell.StepPair`."""
        inputs, found = self._backward_inputs(products, children, gradient)
        self._kernels["backward"](inputs)
        return found

    def _forward_inputs(self, products: State, children: Children, out: State, train: bool) -> list[torch.Tensor]:
        """What the kernels ``score`` and ``train`` read, and then what they write."""
        by_node = self._by_node(products, children)
        rows = [row for name, count in self._step.states.items() for row in _rows(out[name], count)]
        return [*self._read(by_node, children), *rows, *(self._blocks(by_node) if train else [])]

    def _backward_inputs(
        self, products: State, children: Children, gradient: State
    ) -> tuple[list[torch.Tensor], State]:
        """What the kernel ``backward`` reads, and then what it writes; and by name the children's part of that."""
        by_node, (nodes, arity) = self._by_node(products, children), children.rows.shape
        step = self._step
        found = {name: gradient[name].new_empty(nodes, arity, *gradient[name].shape[1:]) for name in step.reads}
        rows = [row for name, value in found.items() for row in _rows_of_children(value, step.states[name])]
        own = [gradient[name] for name in step.states]
        return [*self._read(by_node, children), *own, *rows, *self._blocks(by_node)], found

    def _by_node(self, products: State, children: Children) -> State:
        return {name: products[name].view(len(children.rows), -1) for name in self._widths}

    def _read(self, by_node: State, children: Children) -> list[torch.Tensor]:
        return [*by_node.values(), children.rows, *(children.buffers[name] for name in self._step.reads)]

    def _blocks(self, by_node: State) -> list[torch.Tensor]:
        return [block for blocks in self._split(by_node).values() for block in blocks]

    def _score(self, inputs: list[torch.Tensor]) -> None:
        given = iter(inputs)
        products, children = self._given(given)
        _write(self._states(self._gates(products), children), given)

    def _train(self, inputs: list[torch.Tensor]) -> None:
        given = iter(inputs)
        products, children = self._given(given)
        gates = self._gates(products)
        _write([*self._states(gates, children), *(gate for blocks in gates.values() for gate in blocks)], given)

    def _differentiate(self, inputs: list[torch.Tensor]) -> None:
        given = iter(inputs)
        products, children = self._given(given)
        gates = {name: list(blocks) for name, blocks in self._split(products).items()}
        gradient = [row for count in self._step.states.values() for row in _rows(next(given), count)]
        _, pull_back, *_ = torch.func.vjp(self._states, gates, children)
        of_gates, of_children = pull_back(gradient)
        of_rows = [row for rows_of_child in of_children.values() for rows in rows_of_child for row in rows]
        of_products = [
            value * activation(function).derivative(gate)
            for name, blocks in self._step.blocks.items()
            for (_, function), gate, value in zip(blocks, gates[name], of_gates[name], strict=True)
        ]
        _write([*of_rows, *of_products], given)

    def _given(self, given: Iterator[torch.Tensor]) -> tuple[State, dict[str, list[Vectors]]]:
        """The products, and the rows of each child's states."""
        step = self._step
        products, child = {name: next(given) for name in self._widths}, next(given)
        children = {}
        for name in step.reads:
            rows = _rows(next(given), step.states[name])
            children[name] = [[row[child[:, position]] for row in rows] for position in range(step.arity)]
        return products, children

    def _split(self, products: State) -> dict[str, Sequence[torch.Tensor]]:
        return {name: products[name].split_with_sizes(widths, 1) for name, widths in self._widths.items()}

    def _gates(self, products: State) -> dict[str, Vectors]:
        split = self._split(products)
        return {
            name: [activation(function).function(each) for (_, function), each in zip(blocks, split[name], strict=True)]
            for name, blocks in self._step.blocks.items()
        }

    def _states(self, gates: dict[str, Vectors], children: dict[str, list[Vectors]]) -> Vectors:
        states = self._step(gates, children)
        return [row for name in self._step.states for row in states[name]]

    def _random_inputs(
        self, nodes: int, rows: int, shapes: Shapes, dtype: torch.dtype, device: torch.device
    ) -> dict[str, list[torch.Tensor]]:
        """By its name, what a kernel may be called with; always the same numbers."""
        draw = torch.Generator(device).manual_seed(nodes)

        def numbers(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, device=device, generator=draw)

        products = {name: numbers(nodes, sum(widths)) for name, widths in self._widths.items()}
        children = Children(
            {name: numbers(rows, *shapes[name]) for name in self._step.reads},
            torch.randint(rows, (nodes, self._step.arity), device=device, generator=draw),
        )
        states = {name: numbers(nodes, *shape) for name, shape in shapes.items()}
        return {
            "score": self._forward_inputs(products, children, states, train=False),
            "train": self._forward_inputs(products, children, states, train=True),
            "backward": self._backward_inputs(products, children, states)[0],
        }


_steps: dict[tuple[Any, ...], CompiledStep] = {}


def _rows(value: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    """The rows of a state, ``[m, ...]``."""
    return value.unbind(1) if count else [value]


def _rows_of_children(value: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    """The rows of the states of each child in turn, ``[m, arity, ...]``."""
    return (value.flatten(1, 2) if count else value).unbind(1)


def _write(values: Sequence[torch.Tensor], targets: Iterator[torch.Tensor]) -> None:
    for value, target in zip(values, targets, strict=True):
        target.copy_(value)


def _compiled(function: Kernel, examples: list[torch.Tensor]) -> Kernel:
    """``function`` as one kernel, for tensors like ``examples`` that may have any first size.

    What the kernel writes may be what it reads, entry by entry: it has read an entry of all its inputs before it writes
    that of any.
    """
    import torch._inductor.compile_fx  # takes a second to import
    from torch._dynamo.source import ConstantSource
    from torch._guards import TracingContext, tracing
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    inputs = []
    for place, example in enumerate(examples):
        sizes = [DimDynamic.DUCK] + [DimDynamic.STATIC] * (example.dim() - 1)
        alone = torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device=example.device)
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        inputs.append(mode.from_tensor(alone, symbolic_context=context, source=ConstantSource(f"input_{place}")))

    def traced(*given: torch.Tensor) -> list[torch.Tensor]:
        function(list(given))
        return []

    with mode:
        graph = make_fx(traced, decomposition_table=select_decomp_table())(*inputs)
    options = {
        "assert_indirect_indexing": False,
        "size_asserts": False,
        "compile_threads": 1,
        # All in one loop: a second one would find products that the first has overwritten.
        "max_fusion_size": 100_000,
        "max_fusion_buffer_group_pairwise_attempts": 100_000,
        "cpp.max_horizontal_fusion_size": 100_000,
        # What several results need stays in registers; by default it goes through memory.
        "realize_reads_threshold": 100_000,
        "realize_opcount_threshold": 100_000,
        "realize_acc_reads_threshold": 100_000,
    }
    with torch._inductor.config.patch(options), tracing(TracingContext(mode)):
        return torch._inductor.compile_fx.compile_fx_inner(graph, inputs)
