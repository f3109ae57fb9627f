"""Steps of rows as Triton: functions on blocks in registers, and kernels that take a step of many rows.

The functions are for kernels that are written by hand, such as those of a whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from treemem.engines.printer.operations import ACROSS, OPERATIONS
from treemem.engines.printer.program import Node, Place, in_order
from treemem.engines.printer.symbolic import StepError
from treemem.engines.printer.trace import StepProgram
from treemem.engines.printer.triton_layout import Part, Rows, name_of, owners_of, place_in
from treemem.engines.printer.triton_values import HEAD, Values

Operands = dict[str, list[Place]]
"""Tensors with a row for each row of the step, by name, and the places of a row."""


def row_source(step: StepProgram) -> str:
    """Return a module with two functions on blocks and two kernels.

    The functions are::

        state, ... = step(products, children, factors, learned, wide, D)
        d_product, ..., d_child, ..., d_learned, ... = step_backward(
            products, children, factors, learned, states, d_states, wide, D
        )

    A block ``[rows, positions]`` has a vector of each row, and ``[rows, 1]`` a number. Arguments are tuples of blocks:
    all vectors or numbers of all products; the first state of all children, then the second; factors of dropouts;
    learned vectors, ``[1, positions]``. ``wide`` tells which positions there are, and the constant ``D`` how many. What
    is not read may be any number, and its gradient is 0. Gradients of learned vectors are those of each row.

    The kernels ``forward`` and ``backward`` get the number of rows; of each tensor with rows, in the same order, a
    pointer and the distance of its rows; and pointers to learned vectors. Factors may be None, which stands for 1, and
    gradients of states, for 0. Gradients that are set may be None. Those of learned vectors are by program,
    ``[programs, vectors, D]``.

    Args:
        step: without features; all that it learns are vectors.

    Raises:
        StepError: the step has an operation that Triton has not, or reads what these kernels do not know.
    """
    if step.shape.features is not None or any(len(size) != 1 for size in step.shape.learned):
        raise StepError("kernels of rows have no features, and all that they learn are vectors")
    printed = _Rows(step)
    return "\n".join([*HEAD.splitlines(), *printed.functions(), *printed.forward(), *printed.backward(), ""])


def is_pointwise(step: StepProgram) -> bool:
    """Return whether positions do not depend on each other, so that a program may take a part of them."""
    return not any(node.op in ACROSS for node in in_order([*step.forward.values(), *step.backward.values()]))


class _Rows:
    """The lines of a module."""

    def __init__(self, step: StepProgram) -> None:
        self._step, shape = step, step.shape
        self._products: Operands = {
            f"product{at}": [part.place for row in Rows.of(f"product{at}", *product, shape.D).parts for part in row]
            for at, product in enumerate(shape.products.values())
        }
        states = {f"state{at}": Place("", 0, 0, size == (shape.D,)) for at, size in enumerate(shape.states.values())}
        self._states: Operands = {name: [place._replace(base=name)] for name, place in states.items()}
        self._children: Operands = {
            name: [place._replace(base=name)]
            for state, place in states.items()
            for name in (f"{state.replace('state', 'child')}_{k}" for k in range(shape.arity))
        }
        num_factors = sum(size for _, size in step.dropouts) // shape.D
        self._factors: Operands = {"mask": [Place("mask", at, 0, True) for at in range(num_factors)]}
        self._learned = [Place("learned", at, 0, True) for at in range(len(shape.learned))]

    def functions(self) -> list[str]:
        """The functions on blocks."""
        products, children, factors, states = (
            [*chain.from_iterable(operands.values())]
            for operands in (self._products, self._children, self._factors, self._states)
        )
        read = {"products": products, "children": children, "factors": factors, "learned": self._learned}
        d_states = [_gradient(place) for place in states]
        gradients = [_gradient(place) for place in (*products, *children, *self._learned)]
        return [
            *self._function("step", read, [self._step.forward[place] for place in states]),
            *self._function(
                "step_backward",
                {**read, "states": states, "d_states": d_states},
                [self._step.backward.get(place) for place in gradients],
            ),
        ]

    def _function(self, name: str, read: dict[str, list[Place]], results: Sequence[Node | None]) -> list[str]:
        lines = ["T: tl.constexpr = products[0].dtype"]
        for argument, places in read.items():
            lines += [f"{name_of(place)} = {argument}[{at}]" for at, place in enumerate(places)]
        values = Values(lines, "v", self._loaded, None)
        texts = ["0.0" if node is None else values.of(node) for node in results]
        head = f"def {name}({', '.join(read)}, wide, D: tl.constexpr):"
        return ["", "", "@triton.jit", head, *_indented([*lines, f"return {_tuple(texts)}"])]

    def _loaded(self, place: Place) -> str:
        """What a place holds; what the forward pass could keep of products is computed again."""
        product = _product(place)
        if place == product:
            return name_of(place)
        expression = OPERATIONS[self._step.kept[product].op].triton
        assert expression is not None
        return expression.format(name_of(product))

    def forward(self) -> list[str]:
        """The kernel of the forward pass."""
        read, written = {**self._products, **self._children, **self._factors}, self._states
        loads, arguments = self._read(self._step.forward, read)
        body = [*loads, f"results = step({arguments}, wide, D)"]
        for at, place in enumerate(chain.from_iterable(written.values())):
            body.append(_store(place, f"results[{at}]"))
        return self._kernel("forward", [*_pointers(read), *self._vectors("learned"), *_pointers(written)], body)

    def backward(self) -> list[str]:
        """The kernel of the backward pass."""
        read = {**self._products, **self._children, **self._factors, **self._states}
        incoming, outgoing = _gradients(self._states), _gradients({**self._products, **self._children})
        body, arguments = self._read(self._step.backward, read)
        for name, places in incoming.items():
            body += _loads(name, places, 0.0)
        d_states = _tuple([name_of(place) for place in chain.from_iterable(incoming.values())])
        body.append(f"results = step_backward({arguments}, {d_states}, wide, D)")
        body.append("tl.debug_barrier()  # all threads have read what gradients may be stored over")
        at = 0
        for name, places in outgoing.items():
            stores = [_store(place, f"results[{at + of_row}]") for of_row, place in enumerate(places)]
            body += [f"if {name} is not None:", *_indented(stores)]
            at += len(places)
        if self._learned:
            body.append("if d_learned is not None:")
        for vector in range(len(self._learned)):
            pointer = f"d_learned + (tl.program_id(0) * {len(self._learned)} + {vector}) * D + d"
            total = f"tl.sum(tl.where(there, results[{at + vector}], 0.0), 0, keep_dims=True)"
            body += _indented([f"tl.store({pointer}, {total}, wide)"])
        pointers = [*_pointers(read), *_pointers(incoming), *_pointers(outgoing)]
        summed = ["d_learned"] if self._learned else []
        return self._kernel("backward", [*pointers, *self._vectors("learned"), *summed], body)

    def _vectors(self, name: str) -> list[str]:
        return [f"{name}{at}" for at in range(len(self._learned))]

    def _read(self, program: dict[Place, Node], operands: Operands) -> tuple[list[str], str]:
        """Lines that load what a function reads, and its arguments, in which 0 stands for what it does not read."""
        nodes = in_order(program.values())
        read = {_product(node.args[0]) for node in nodes if node.op == "load"}
        read.add(self._products["product0"][0])  # whose type all numbers have
        lines: list[str] = []
        of_argument: dict[str, list[str]] = {"product": [], "child": [], "mask": [], "learned": [], "state": []}
        for name, places in operands.items():
            there = [place for place in places if place in read]
            lines += _loads(name, there, 1.0) if name == "mask" else map(_load, there)
            texts = [name_of(place) if place in read else "0.0" for place in places]
            of_argument[name.rstrip("0123456789_")] += texts
        lines += [f"{name_of(place)} = tl.load(learned{at} + d, wide, 0.0)" for at, place in enumerate(self._learned)]
        of_argument["learned"] = [*map(name_of, self._learned)]
        arguments = [argument for argument in of_argument if argument != "state" or self._states.keys() <= {*operands}]
        return lines, ", ".join(_tuple(of_argument[argument]) for argument in arguments)

    @staticmethod
    def _kernel(name: str, arguments: Sequence[str], body: Sequence[str]) -> list[str]:
        constants = ", ".join(f"{constant}: tl.constexpr" for constant in ("D", "ROWS", "BLOCK"))
        lines = [
            "T: tl.constexpr = product0.dtype.element_ty",
            "row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)",
            "d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]",
            "rows = row < num_rows",
            "wide = d < D",
            "there = rows & wide",
            *body,
        ]
        head = f"def {name}(num_rows, {', '.join(arguments)}, {constants}):"
        return ["", "", '@triton.jit(do_not_specialize=["num_rows"])', head, *_indented(lines)]


def _product(place: Place) -> Place:
    """The product whose value the forward pass could keep at a place; any other place."""
    return place._replace(base=place.base.removeprefix("kept_"))


def _gradient(place: Place) -> Place:
    return place._replace(base=f"d_{place.base}")


def _gradients(operands: Operands) -> Operands:
    return {f"d_{name}": [*map(_gradient, places)] for name, places in operands.items()}


def _pointers(operands: Operands) -> list[str]:
    """The arguments of a kernel for tensors: a pointer and the distance of rows."""
    return [argument for name in operands for argument in (name, f"{name}_stride")]


def _address(place: Place) -> str:
    start = [f"{place.vectors} * D"] if place.vectors else []
    start += [str(place.numbers)] if place.numbers else []
    return place_in(" + ".join([place.base, f"row * {place.base}_stride", *start]), Part(place, 0))


def _load(place: Place) -> str:
    return f"{name_of(place)} = tl.load({_address(place)}, {owners_of(place)}, 0.0)"


def _loads(name: str, places: Sequence[Place], default: float) -> list[str]:
    """Lines that load what may be missing."""
    if not places:
        return []
    sizes = {place: "BLOCK" if place.is_vector else "1" for place in places}
    lines = [f"{name_of(place)} = tl.full([ROWS, {size}], {default}, T)" for place, size in sizes.items()]
    return [*lines, f"if {name} is not None:", *_indented([*map(_load, places)])]


def _store(place: Place, value: str) -> str:
    return f"tl.store({_address(place)}, {value}, {owners_of(place)})"


def _tuple(texts: Sequence[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts).strip()})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
