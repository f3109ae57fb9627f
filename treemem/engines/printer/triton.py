"""Programs as Triton kernels: all rows of a level, forwards and backwards, with their products.

A program of a kernel takes a tile of rows of one arity and kind. It gathers what the products multiply, multiplies, and
takes the step. Vectors are blocks ``[ROWS, width]``, numbers ``[ROWS, 1]``; they stay in registers. The backward kernel
pulls the gradients of its rows from the edges to their parents, and leaves those of the children at their edges. So no
two programs write to one place, and results do not depend on the order in which they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treemem.engines.printer.compiled_formula import PrintedCell, parts_of
from treemem.engines.printer.operations import OPERATIONS
from treemem.engines.printer.program import Node, Place, in_order
from treemem.engines.printer.symbolic import StepError

ROWS = 16
"""Rows of a tile: the fewest that tensor cores multiply."""
WIDEST = 64
"""Width of a vector up to which the values of a tile fit into registers."""
_MOST_PRODUCTS = 96  # of blocks in a kernel, which takes minutes to compile

ROW_FIELDS = ("arity", "row", "count", "edge", "most", "feature", "factor")
"""What the table of tiles says of each: number of children, the first row, how many rows, the first edge, the most
parents of a row, and where the rows' features and factors of dropouts begin."""
PRODUCT_FIELDS = ("product", "input", "weight", "bias")
"""And of each product: where the rows' results and inputs begin, and the weight and bias of their kind."""

_HEAD = """\
import triton
import triton.language as tl


@triton.jit
def hyperbolic_tangent(x):
    return 1 - 2 / (tl.exp(2 * x) + 1)


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0 * x))
"""
_COMMON = ("first", "tiles", "child", "weights", "learned", "factors", "features", "products")
_BACKWARD = ("parent_begin", "parent_edge", "d_products", "d_learned", "d_features", "d_edges")


class Part(NamedTuple):
    """A vector or a number of a row: its place, and how many numbers come before it."""

    place: Place
    offset: int


class Rows(NamedTuple):
    """Rows that a node has of a product's inputs or results.

    Attributes:
        width: of a row.
        parts: of each row.
    """

    width: int
    parts: list[list[Part]]

    @classmethod
    def of(cls, base: str, copies: int, sizes: Sequence[int], D: int) -> Rows:
        """``copies`` rows of vectors and numbers of these sizes."""
        parts: list[list[Part]] = []
        vectors = numbers = 0
        for _ in range(copies):
            offset, row = 0, []
            for size in sizes:
                row.append(Part(Place(base, vectors, numbers, size == D), offset))
                vectors, numbers, offset = vectors + (size == D), numbers + (size != D), offset + size
            parts.append(row)
        return cls(sum(sizes), parts)

    @property
    def numbers(self) -> int:
        """How many numbers a node has."""
        return self.width * len(self.parts)


def num_learned(cell: PrintedCell) -> int:
    """Return how many numbers a formula reads beside the weights of its products."""
    return sum(int(np.prod(shape)) for shape in cell.step.shape.learned)


def num_fields(formulas: Mapping[int, PrintedCell]) -> int:
    """Return how many numbers the table of tiles has for each."""
    most = max((len(cell.products) for cell in formulas.values()), default=0)
    return len(ROW_FIELDS) + most * len(PRODUCT_FIELDS)


def triton_source(formulas: Mapping[int, PrintedCell], widths: Sequence[int], D: int) -> str:
    """Return a module with the kernels ``forward`` and ``backward`` of a level.

    Args:
        formulas: of the rows, by arity.
        widths: of each state of a row, in numbers.
        D: width of a vector, at most ``WIDEST``.

    Raises:
        StepError: a formula has an operation that Triton has not, or too many products.
    """
    states = [f"state{at}" for at in range(len(widths))]
    arguments = {
        "forward": [*_COMMON, "inputs", *states],
        "backward": [*_COMMON, *_BACKWARD, *states, *(f"d_{state}" for state in states)],
    }
    lines = _HEAD.splitlines()
    calls: dict[str, list[str]] = {name: [] for name in arguments}
    first, total = 0, sum(map(num_learned, formulas.values()))
    for arity, cell in formulas.items():
        for name, names in arguments.items():
            tile = _Tile(cell, widths, D, first, total)
            body = tile.forward() if name == "forward" else tile.backward()
            lines += ["", "", "@triton.jit", f"def {name}_{arity}(tile, {', '.join(names)}, PRECISION: tl.constexpr):"]
            lines += [f"    {line}" for line in body]
            calls[name] += [f"    if arity == {arity}:", f"        {name}_{arity}(tile, {', '.join(names)}, PRECISION)"]
        first += num_learned(cell)
    for name, names in arguments.items():
        lines += ["", "", '@triton.jit(do_not_specialize=["first"])']
        lines += [f"def {name}({', '.join(names)}, PRECISION: tl.constexpr):"]
        lines += [f"    tile = tiles + (first + tl.program_id(0)) * {num_fields(formulas)}"]
        lines += ["    arity = tl.load(tile)", *calls[name]]
    return "\n".join([*lines, ""])


class _Values:
    """Lines that compute nodes.

    Args:
        lines: get what is needed, in order.
        prefix: of the names of values.
        load: what a place holds, as an expression.
        D: width of a vector.
    """

    def __init__(self, lines: list[str], prefix: str, load: Callable[[Place], str], D: int) -> None:
        self._lines, self._prefix, self._load, self._D = lines, prefix, load, D
        self._text: dict[Node, str] = {}

    def of(self, node: Node) -> str:
        """Return the name of a value, or a number."""
        for needed in in_order([node], stop=self._text):
            if needed not in self._text:
                self._text[needed] = self._value(needed)
        return self._text[node]

    def _value(self, node: Node) -> str:
        if not node.operands and node.op != "load":
            return _number(float(self._D) if node.value is None else node.value)
        text = self._load(node.args[0]) if node.op == "load" else self._expression(node)
        if text.isidentifier():
            return text
        self._lines.append(f"{self._prefix}{node.number} = {text}")
        return f"{self._prefix}{node.number}"

    def _expression(self, node: Node) -> str:
        operands = [self._text[operand] for operand in node.operands]
        if node.op == "sum":
            return f"tl.sum(tl.where(wide, {operands[0]}, 0.0), 1, keep_dims=True)"
        if node.op == "largest":
            return f'tl.max(tl.where(wide, {operands[0]}, float("-inf")), 1, keep_dims=True)'
        if node.op in ("running sum", "running sum backwards"):
            return f"tl.cumsum(tl.where(wide, {operands[0]}, 0.0), 1, reverse={node.op.endswith('backwards')})"
        if node.op == "power":
            return _power(operands[0], node.operands[1].value)
        expression = OPERATIONS[node.op].triton
        assert expression is not None
        return expression.format(*operands)


def _number(value: float) -> str:
    if not np.isfinite(value):
        return f'float("{value}")'
    if float(np.float32(value)) == value:
        return repr(value)
    return f"tl.full([1, 1], {value!r}, T)"  # which a choice between numbers does not round to float32


def _power(base: str, exponent: float | None) -> str:
    """Return a power as products and a root.

    Raises:
        StepError: the exponent is not a number of halves.
    """
    if exponent is None or not 0 < abs(exponent) <= 8 or (2 * exponent) % 1:
        raise StepError("Triton has powers of multiples of a half only, up to 8")
    factors = [base] * int(abs(exponent)) + [f"tl.sqrt({base})"] * bool(exponent % 1)
    product = " * ".join(factors)
    return f"({product})" if exponent > 0 else f"(1 / ({product}))"


class _Tile:
    """The body of a kernel for rows of one arity.

    Args:
        cell: what the rows compute.
        widths: of the states.
        D: width of a vector.
        first_learned, num_learned: where what the formula reads begins, among how many numbers of all arities.
    """

    def __init__(self, cell: PrintedCell, widths: Sequence[int], D: int, first_learned: int, num_learned: int) -> None:
        self._step, self._gathers = cell.step, cell.gathers
        self._shape = cell.step.shape
        self._widths, self._D, self._block = widths, D, max(16, 1 << (D - 1).bit_length())
        self._first_learned, self._num_learned = first_learned, num_learned
        self._states = [
            Rows.of("", 1, parts_of(D, width), D).parts[0] for width in widths
        ]  # places without their bases
        self._outputs = [
            Rows.of(f"product{at}", copies, sizes, D)
            for at, (copies, sizes) in enumerate(self._shape.products.values())
        ]
        self._inputs = [Rows.of("inputs", *gather.shape.inputs, D) for gather in self._gathers if gather.shape.inputs]
        blocks = sum(
            len(rows.parts[0]) * sum(gather.forward[part.place].value != 0 for row in inputs.parts for part in row)
            for gather, inputs, rows in zip(self._gathers, self._inputs, self._outputs, strict=True)
        )
        if blocks > _MOST_PRODUCTS:
            raise StepError(
                f"nodes of {self._shape.arity} children have {blocks} products of blocks, too many in Triton"
            )
        self._lines = self._head()

    def forward(self) -> list[str]:
        """The lines of the forward kernel."""
        known: dict[Place, str] = {}
        for at in range(len(self._gathers)):
            known |= self._multiplied(at, self._values(f"input{at}_", known))
        for place, node in self._step.kept.items():
            known[_kept(place)] = name = f"kept_{known[place]}"
            self._lines.append(f"{name} = {OPERATIONS[node.op].triton}".format(known[place]))
        places = [part.place for rows in self._outputs for row in rows.parts for part in row]
        kept = [(self._address(place), place, known.get(_kept(place), known[place])) for place in places]
        self._store_if("products", kept)
        values = self._values("v", known)
        for place, node in self._step.forward.items():
            self._store(self._address(place), place, values.of(node))
        return self._lines

    def backward(self) -> list[str]:
        """The lines of the backward kernel."""
        known = self._pulled()
        totals: dict[Place, str] = {}
        values = self._values("v", known)
        for place, node in self._step.backward.items():
            self._add(totals, place, values, node)
        for at in reversed(range(len(self._gathers))):
            gradients: dict[Place, str] = {}
            for copy, row in enumerate(self._outputs[at].parts):
                at_row = f"d_products + product{at} + (i * {len(self._outputs[at].parts)} + {copy}) * "
                at_row += f"{self._outputs[at].width}"
                stored = []
                for part in row:
                    place = part.place._replace(base=f"d_{part.place.base}")
                    if place in totals:
                        name = gradients[part.place] = f"gradient_{_name(part.place)}"
                        self._lines.append(f"{name} = tl.where({_owners(place)}, {totals[place]}, 0.0).to(T)")
                    stored.append((_at(at_row, part), place, gradients.get(part.place, "0.0")))
                self._store_if("d_products", stored)
            spread = self._values(f"spread{at}_", known | self._d_inputs(at, gradients))
            for place, node in self._gathers[at].backward.items():
                self._add(totals, place, spread, node)
        self._store_gradients(totals)
        return self._lines

    # What is in memory.

    def _head(self) -> list[str]:
        arity, products = self._shape.arity, range(len(self._outputs))
        lines = ["T: tl.constexpr = state0.dtype.element_ty"]
        lines += [f"{field} = tl.load(tile + {at})" for at, field in enumerate(ROW_FIELDS) if at]
        for at in products:
            begin = len(ROW_FIELDS) + at * len(PRODUCT_FIELDS)
            lines += [f"{field}{at} = tl.load(tile + {begin + place})" for place, field in enumerate(PRODUCT_FIELDS)]
        lines += [f"i = tl.arange(0, {ROWS})[:, None]", f"d = tl.arange(0, {self._block})[None, :]"]
        lines += [f"k = tl.arange(0, {self._block})[:, None]", "rows = i < count", f"wide = d < {self._D}"]
        lines += ["there = rows & wide", f"both = (k < {self._D}) & wide"]
        return lines + [f"child_{at} = tl.load(child + edge + i * {arity} + {at}, rows, 0)" for at in range(arity)]

    def _values(self, prefix: str, known: Mapping[Place, str]) -> _Values:
        """Values that read what is known, or else memory."""

        def load(place: Place) -> str:
            if place in known:
                return known[place]
            if place.base == "learned" and not place.is_vector:
                return f"tl.load({self._address(place)})"
            mask = "wide" if place.base == "learned" else _owners(place)
            return f"tl.load({self._address(place)}, {mask}, 0.0)"

        return _Values(self._lines, prefix, load, self._D)

    def _address(self, place: Place) -> str:
        base = place.base.removeprefix("kept_")
        if base.startswith("child"):
            state, child = base.removeprefix("child").split("_")
            row = f"state{state} + child_{child} * {self._widths[int(state)]}"
        elif base.startswith("state"):
            row = f"{base} + (row + i) * {self._widths[int(base.removeprefix('state'))]}"
        elif base.startswith("product"):
            row = f"products + {base} + i * {self._outputs[int(base.removeprefix('product'))].numbers}"
        elif base == "mask":
            row = f"factors + factor + i * {sum(width for _, width in self._step.dropouts)}"
        elif base == "features":
            row = f"features + (feature + i) * {self._shape.features}"
        else:
            assert base == "learned"
            row = f"learned + {self._first_learned}"
        return _at(row, Part(place, self._offset(place)))

    def _offset(self, place: Place) -> int:
        return place.vectors * self._D + place.numbers

    def _store(self, pointer: str, place: Place, value: str) -> None:
        self._lines.append(f"tl.store({pointer}, {value}, {_owners(place)})")

    def _store_if(self, memory: str, stored: Sequence[tuple[str, Place, str]]) -> None:
        """Store values if there is the memory."""
        if not stored:
            return
        begin = len(self._lines) + 1
        self._lines.append(f"if {memory} is not None:")
        for pointer, place, value in stored:
            self._store(pointer, place, value)
        self._lines[begin:] = [f"    {line}" for line in self._lines[begin:]]

    # Products.

    def _factor(self, node: Node, name: str) -> str:
        """A vector or number that is multiplied: 0 where there is no row and no position."""
        if node.op == "load" and node.args[0].base != "learned":
            return name
        factor = f"factor_{len(self._lines)}"
        mask = "there" if node.is_vector else "rows"
        self._lines.append(f"{factor} = tl.where({mask}, {name}, 0.0).to(T)")
        return factor

    def _multiplied(self, at: int, values: _Values) -> dict[Place, str]:
        """The results of a product. What is multiplied is stored if there is the memory.

        Each factor is used for all results before the next one: tensor cores read it in another layout, which takes
        more registers than the sums.
        """
        rows, outputs = self._inputs[at], self._outputs[at].parts
        for index, part in enumerate(outputs[0]):
            mask = ", wide, 0.0" if part.place.is_vector else ""
            self._lines.append(f"bias_{index} = tl.load({_at(f'weights + bias{at}', part)}{mask})")
        for copy, (inputs, targets) in enumerate(zip(rows.parts, outputs, strict=True)):
            for index, target in enumerate(targets):
                self._lines.append(f"{_name(target.place)} = bias_{index} + {self._zeros(target.place)}")
            for source in inputs:
                node = self._gathers[at].forward[source.place]
                factor = values.of(node) if node.value == 0 else self._factor(node, values.of(node))
                at_row = f"inputs + input{at} + (i * {len(outputs)} + {copy}) * {rows.width}"
                self._store_if("inputs", [(_at(at_row, source), source.place, factor)])
                for target in targets if node.value != 0 else ():
                    weight = self._weight(at, target, source, ("k", "d"))
                    self._add_product(_name(target.place), factor, weight, source, target)
        return {part.place: _name(part.place) for row in outputs for part in row}

    def _d_inputs(self, at: int, gradients: Mapping[Place, str]) -> dict[Place, str]:
        """The gradients of those parts of a product's inputs that are read, from those of its results."""
        read = {node.args[0] for node in in_order(self._gathers[at].backward.values()) if node.op == "load"}
        known: dict[Place, str] = {}
        for row, targets in zip(self._inputs[at].parts, self._outputs[at].parts, strict=True):
            of_row = {}
            for part in row:
                place = part.place._replace(base="d_inputs")
                if place in read:
                    of_row[part] = known[place] = f"d_input{at}_{_name(part.place)}"
                    self._lines.append(f"{known[place]} = {self._zeros(place)}")
            for target in targets:
                for part, name in of_row.items():
                    if target.place in gradients:
                        weight = self._weight(at, target, part, ("d", "k"))
                        self._add_product(name, gradients[target.place], weight, target, part)
        return known

    def _zeros(self, place: Place) -> str:
        return f"tl.zeros([{ROWS}, {self._block if place.is_vector else 1}], T)"

    def _weight(self, at: int, output: Part, source: Part, axes: tuple[str, str]) -> str:
        """A block of a weight.

        Args:
            at: the product.
            output, source: the part of the results, and of the inputs.
            axes: the numbers of the positions of inputs and of results: ``"k"`` along rows and ``"d"`` along columns.
        """
        both = output.place.is_vector and source.place.is_vector
        of_input, of_output = axes if both else ("d", "d")
        row = f"({output.offset} + {of_output})" if output.place.is_vector else f"{output.offset}"
        pointer = f"weights + weight{at} + {row} * {self._inputs[at].width} + {source.offset}"
        if source.place.is_vector:
            pointer += f" + {of_input}"
        if not (output.place.is_vector or source.place.is_vector):
            return f"tl.load({pointer})"
        return f"tl.load({pointer}, {'both' if both else 'wide'}, 0.0)"

    def _add_product(self, total: str, factor: str, weight: str, source: Part, target: Part) -> None:
        """Add the product of a part and a block of a weight."""
        if source.place.is_vector and target.place.is_vector:
            text = f"tl.dot({factor}, {weight}, {total}, input_precision=PRECISION, out_dtype=T)"
        elif source.place.is_vector:
            text = f"{total} + tl.sum({factor} * {weight}, 1, keep_dims=True)"
        else:
            text = f"{total} + {factor} * {weight}"
        self._lines.append(f"{total} = {text}")

    # Gradients.

    def _pulled(self) -> dict[Place, str]:
        """The gradients of the rows' states: what comes from outside, and from each parent."""
        known: dict[Place, str] = {}
        start, pull, offset = [], [], 0
        for at, parts in enumerate(self._states):
            from_outside = [f"if d_state{at} is not None:"]
            for part in parts:
                place = part.place._replace(base=f"d_state{at}")
                known[place] = name = _name(place)
                start.append(f"{name} = {self._zeros(place)}")
                outside = _at(f"d_state{at} + (row + i) * {self._widths[at]}", part)
                from_outside.append(f"    {name} += tl.load({outside}, {_owners(place)}, 0.0)")
                of_edge = _at("of_edge", Part(place, offset + part.offset))
                mask = "has_parent & wide" if place.is_vector else "has_parent"
                pull.append(f"    {name} += tl.load({of_edge}, {mask}, 0.0)")
            start += from_outside
            offset += self._widths[at]
        self._lines += [
            *start,
            "begin = tl.load(parent_begin + row + i, rows, 0)",
            "end = tl.load(parent_begin + row + i + 1, rows, 0)",
            "for parent in range(most):",
            "    has_parent = begin + parent < end",
            f"    of_edge = d_edges + tl.load(parent_edge + begin + parent, has_parent, 0) * {sum(self._widths)}",
            *pull,
        ]
        return known

    def _add(self, totals: dict[Place, str], place: Place, values: _Values, node: Node) -> None:
        if node.value == 0:
            return
        value = values.of(node)
        if place in totals:
            self._lines.append(f"{totals[place]} = {totals[place]} + {value}")
        else:
            totals[place] = f"total_{_name(place)}"
            self._lines.append(f"{totals[place]} = {value}")

    def _store_gradients(self, totals: Mapping[Place, str]) -> None:
        for child in range(self._shape.arity):
            offset = 0
            of_edge = f"d_edges + (edge + i * {self._shape.arity} + {child}) * {sum(self._widths)}"
            for at, parts in enumerate(self._states):
                for part in parts:
                    place = part.place._replace(base=f"d_child{at}_{child}")
                    self._store(_at(of_edge, Part(place, offset + part.offset)), place, totals.get(place, "0.0"))
                offset += self._widths[at]
        if self._shape.features:
            row = f"d_features + (feature + i) * {self._shape.features}"
            parts = Rows.of("d_features", 1, parts_of(self._D, self._shape.features), self._D).parts[0]
            stored = [(_at(row, part), part.place, totals.get(part.place, "0.0")) for part in parts]
            self._store_if("d_features", stored)
        learned = [place for place in totals if place.base == "d_learned"]
        if learned:
            row = f"d_learned + (first + tl.program_id(0)) * {self._num_learned} + {self._first_learned}"
            self._lines.append("if d_learned is not None:")
            for place in learned:
                pointer = _at(row, Part(place, self._offset(place)))
                axes, mask = ("0, keep_dims=True", ", wide") if place.is_vector else ("None", "")
                total = f"tl.sum(tl.where({_owners(place)}, {totals[place]}, 0.0), {axes})"
                self._lines.append(f"    tl.store({pointer}, {total}{mask})")


def _at(row: str, part: Part) -> str:
    """The pointer to a part of a row."""
    pointer = f"{row} + {part.offset}" if part.offset else row
    return f"{pointer} + d" if part.place.is_vector else pointer


def _owners(place: Place) -> str:
    """The mask of the rows, and the positions, that a place has."""
    return "there" if place.is_vector else "rows"


def _kept(place: Place) -> Place:
    return place._replace(base=f"kept_{place.base}")


def _name(place: Place) -> str:
    return f"{place.base}_{place.vectors}_{place.numbers}"
