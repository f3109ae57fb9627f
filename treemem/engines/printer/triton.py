"""Programs as Triton kernels: all rows of a level, forwards and backwards.

A program of a kernel takes a tile of rows of one arity and kind. It gathers what the products multiply, multiplies, and
takes the step; if these do not fit into registers together, each of the three leaves its results to the next in memory.
The backward kernel pulls the gradients of its rows from the edges to their parents, so no two programs write to one
place, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treemem.engines.printer.compiled_formula import PrintedCell, parts_of
from treemem.engines.printer.operations import OPERATIONS
from treemem.engines.printer.program import Node, Place, in_order
from treemem.engines.printer.triton_layout import (
    BACKWARD,
    COMMON,
    PRODUCT_FIELDS,
    ROW_FIELDS,
    Part,
    Rows,
    Tiling,
    block_of,
    kept_place,
    name_of,
    num_fields,
    num_learned,
    owners_of,
    place_in,
)
from treemem.engines.printer.triton_values import HEAD, Values

BARRIER = "tl.debug_barrier()"
"""What a program has stored, all its threads may read afterwards."""


def triton_source(formulas: Mapping[int, PrintedCell], widths: Sequence[int], D: int, tiling: Tiling) -> str:
    """Return a module with the kernels of a level, ``forward`` and ``backward``.

    Args:
        formulas: of the rows, by arity.
        widths: of each state of a row, in numbers.
        D: width of a vector.
        tiling: of the rows.

    Raises:
        StepError: a formula has an operation that Triton has not.
    """
    states = [f"state{at}" for at in range(len(widths))]
    forward = [*COMMON, "inputs", *states]
    backward = [*COMMON, *BACKWARD, *states, *(f"d_{state}" for state in states)]
    lines = [*HEAD.splitlines(), "from treemem.engines.cuda.kernels import multiply, multiply_backward"]
    calls: dict[str, list[str]] = {}
    first, total = 0, sum(map(num_learned, formulas.values()))
    for arity, cell in formulas.items():
        for name in ("forward", "backward"):
            body = _Tile(cell, widths, D, tiling, first, total).kernel(name)
            names = ", ".join(forward if name == "forward" else backward)
            lines += ["", "", "@triton.jit", f"def {name}_{arity}(tile, {names}, PRECISION: tl.constexpr):"]
            lines += [f"    {line}" for line in body]
            head = ["", "", '@triton.jit(do_not_specialize=["first"])']
            head += [f"def {name}({names}, PRECISION: tl.constexpr):"]
            head += [
                f"    tile = tiles + (first + tl.program_id(0)) * {num_fields(formulas)}",
                "    arity = tl.load(tile)",
            ]
            call = [f"    if arity == {arity}:", f"        {name}_{arity}(tile, {names}, PRECISION)"]
            calls[name] = [*calls.get(name, head), *call]
        first += num_learned(cell)
    for of_kernel in calls.values():
        lines += of_kernel
    return "\n".join([*lines, ""])


class _Tile:
    """The body of a kernel for rows of one arity.

    Args:
        cell: what the rows compute.
        widths: of the states.
        D: width of a vector.
        tiling: of the rows.
        first_learned, num_learned: where what the formula reads begins, among how many numbers of all arities.
    """

    def __init__(
        self,
        cell: PrintedCell,
        widths: Sequence[int],
        D: int,
        tiling: Tiling,
        first_learned: int,
        num_learned: int,
    ) -> None:
        self._step, self._gathers = cell.step, cell.gathers
        self._shape = cell.step.shape
        self._widths, self._D, self._block, self._tiling = widths, D, block_of(D), tiling
        self._first_learned, self._num_learned = first_learned, num_learned
        self._states = [
            Rows.of("", 1, parts_of(D, width), D).parts[0] for width in widths
        ]  # places without their bases
        self._outputs = [
            Rows.of(f"product{at}", copies, sizes, D)
            for at, (copies, sizes) in enumerate(self._shape.products.values())
        ]
        self._inputs = [Rows.of("inputs", *gather.shape.inputs, D) for gather in self._gathers if gather.shape.inputs]
        self._lines = self._head()

    def kernel(self, name: str) -> list[str]:
        """Return the lines of a kernel; see :func:`triton_source`."""
        getattr(self, f"_print_{name}" if self._tiling.fused else f"_print_wide_{name}")()
        return self._lines

    def _print_forward(self) -> None:
        known: dict[Place, str] = {}
        for at in range(len(self._gathers)):
            known |= self._multiplied(at, self._values(f"input{at}_", known))
        for place, node in self._step.kept.items():
            known[kept_place(place)] = name = f"kept_{known[place]}"
            self._lines.append(f"{name} = {OPERATIONS[node.op].triton}".format(known[place]))
        places = [part.place for rows in self._outputs for row in rows.parts for part in row]
        kept = [(self._address(place), place, known.get(kept_place(place), known[place])) for place in places]
        self._store_if("products", kept)
        self._store_states(known)

    def _print_wide_forward(self) -> None:
        for at, (inputs, outputs) in enumerate(zip(self._inputs, self._outputs, strict=True)):
            values = self._values(f"v{at}_", {})
            for copy, row in enumerate(inputs.parts):
                for part in row:
                    value = values.of(self._gathers[at].forward[part.place])
                    self._store(place_in(self._input_row("inputs", at, copy), part), part.place, value)
            memory = f"inputs + input{at}, weights + weight{at}, weights + bias{at}, products + product{at}"
            sizes = f"count * {len(inputs.parts)}, {outputs.width}, {inputs.width}"
            self._lines += [BARRIER, f"multiply({memory}, {sizes}, PRECISION)", BARRIER]
        self._print_step()

    def _print_step(self) -> None:
        known: dict[Place, str] = {}
        for place in self._step.kept:
            known[place] = name_of(place)
            self._lines.append(f"{known[place]} = tl.load({self._address(place)}, {owners_of(place)}, 0.0)")
        self._lines += [BARRIER] if known else []  # all threads have read what is stored over
        for place, node in self._step.kept.items():
            kept = known[kept_place(place)] = f"kept_{known[place]}"
            self._lines.append(f"{kept} = {OPERATIONS[node.op].triton}".format(known[place]))
            self._store(self._address(place), place, kept)
        self._store_states(known)

    def _store_states(self, known: Mapping[Place, str]) -> None:
        values = self._values("v", known)
        for place, node in self._step.forward.items():
            self._store(self._address(place), place, values.of(node))

    def _print_wide_backward(self) -> None:
        totals = self._step_gradients()
        for rows in self._outputs:
            for part in (part for row in rows.parts for part in row):
                place = part.place._replace(base=f"d_{part.place.base}")
                self._store(self._gradient_address(place), place, totals.get(place, "0.0"))
        self._store_gradients(totals)
        for at, (inputs, outputs) in reversed([*enumerate(zip(self._inputs, self._outputs, strict=True))]):
            memory = f"d_products + product{at}, weights + weight{at}, d_inputs + input{at}"
            sizes = f"count * {len(inputs.parts)}, {outputs.width}, {inputs.width}"
            self._lines += [BARRIER, f"multiply_backward({memory}, {sizes}, PRECISION)", BARRIER]
            self._spread(at)

    def _spread(self, at: int) -> None:
        """Add the gradients of a product's inputs to those of what they are made of."""
        values, totals = self._values(f"v{at}_", self._loaded_d_inputs(at)), dict[Place, str]()
        for place, node in self._gathers[at].backward.items():
            self._add(totals, place, values, node)
        for place, total in totals.items():
            if place.base == "d_learned":
                continue
            pointer = self._gradient_address(place)
            memory = "d_features" if place.base == "d_features" else "d_edges"  # all others are always there
            self._store_if(memory, [(pointer, place, f"{total} + tl.load({pointer}, {owners_of(place)}, 0.0)")])
        self._store_learned(totals, adds=True)

    def _loaded_d_inputs(self, at: int) -> dict[Place, str]:
        """The gradients of a product's inputs, from memory."""
        known: dict[Place, str] = {}
        for copy, row in enumerate(self._inputs[at].parts):
            for part in row:
                place = part.place._replace(base="d_inputs")
                if place in self._read_of_inputs(at):
                    known[place] = f"d_input{at}_{name_of(part.place)}"
                    pointer = place_in(self._input_row("d_inputs", at, copy), part)
                    self._lines.append(f"{known[place]} = tl.load({pointer}, {owners_of(place)}, 0.0)")
        return known

    def _step_gradients(self) -> dict[Place, str]:
        """What the step adds to the gradients of all that it reads."""
        values, totals = self._values("v", self._pulled()), dict[Place, str]()
        for place, node in self._step.backward.items():
            self._add(totals, place, values, node)
        return totals

    def _read_of_inputs(self, at: int) -> set[Place]:
        """The gradients of a product's inputs that are read."""
        return {node.args[0] for node in in_order(self._gathers[at].backward.values()) if node.op == "load"}

    def _print_backward(self) -> None:
        totals = self._step_gradients()
        for at in reversed(range(len(self._gathers))):
            gradients: dict[Place, str] = {}
            stored = []
            for part in (part for row in self._outputs[at].parts for part in row):
                place = part.place._replace(base=f"d_{part.place.base}")
                if place in totals:
                    name = gradients[part.place] = f"gradient_{name_of(part.place)}"
                    self._lines.append(f"{name} = tl.where({owners_of(place)}, {totals[place]}, 0.0).to(T)")
                stored.append((self._gradient_address(place), place, gradients.get(part.place, "0.0")))
            self._store_if("d_products", stored)
            spread = self._values(f"spread{at}_", self._d_inputs(at, gradients))
            for place, node in self._gathers[at].backward.items():
                self._add(totals, place, spread, node)
        self._store_gradients(totals)

    # What is in memory.

    def _head(self) -> list[str]:
        arity, products = self._shape.arity, range(len(self._outputs))
        lines = ["T: tl.constexpr = state0.dtype.element_ty"]
        lines += [f"{field} = tl.load(tile + {at})" for at, field in enumerate(ROW_FIELDS) if at]
        for at in products:
            begin = len(ROW_FIELDS) + at * len(PRODUCT_FIELDS)
            lines += [f"{field}{at} = tl.load(tile + {begin + place})" for place, field in enumerate(PRODUCT_FIELDS)]
        lines += [f"i = tl.arange(0, {self._tiling.rows})[:, None]", f"d = tl.arange(0, {self._block})[None, :]"]
        lines += ["rows = i < count", f"wide = d < {self._D}", "there = rows & wide"]
        if self._tiling.fused:
            lines += [f"k = tl.arange(0, {self._block})[:, None]", f"both = (k < {self._D}) & wide"]
        return lines + [f"child_{at} = tl.load(child + edge + i * {arity} + {at}, rows, 0)" for at in range(arity)]

    def _values(self, prefix: str, known: Mapping[Place, str]) -> Values:
        """Values that read what is known, or else memory."""

        def load(place: Place) -> str:
            if place in known:
                return known[place]
            if place.base == "learned" and not place.is_vector:
                return f"tl.load({self._address(place)})"
            mask = "wide" if place.base == "learned" else owners_of(place)
            return f"tl.load({self._address(place)}, {mask}, 0.0)"

        return Values(self._lines, prefix, load, self._D)

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
        return place_in(row, Part(place, self._offset(place)))

    def _offset(self, place: Place) -> int:
        return place.vectors * self._D + place.numbers

    def _store(self, pointer: str, place: Place, value: str) -> None:
        self._lines.append(f"tl.store({pointer}, {value}, {owners_of(place)})")

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

    def _multiplied(self, at: int, values: Values) -> dict[Place, str]:
        """The results of a product. What is multiplied is stored if there is the memory.

        Each factor is used for all results before the next one: tensor cores read it in another layout, which takes
        more registers than the sums.
        """
        rows, outputs = self._inputs[at], self._outputs[at].parts
        for index, part in enumerate(outputs[0]):
            mask = ", wide, 0.0" if part.place.is_vector else ""
            self._lines.append(f"bias_{index} = tl.load({place_in(f'weights + bias{at}', part)}{mask})")
        for copy, (inputs, targets) in enumerate(zip(rows.parts, outputs, strict=True)):
            for index, target in enumerate(targets):
                self._lines.append(f"{name_of(target.place)} = bias_{index} + {self._zeros(target.place)}")
            for source in inputs:
                node = self._gathers[at].forward[source.place]
                factor = values.of(node) if node.value == 0 else self._factor(node, values.of(node))
                self._store_if(
                    "inputs", [(place_in(self._input_row("inputs", at, copy), source), source.place, factor)]
                )
                for target in targets if node.value != 0 else ():
                    weight = self._weight(at, target, source, ("k", "d"))
                    self._add_product(name_of(target.place), factor, weight, source, target)
        return {part.place: name_of(part.place) for row in outputs for part in row}

    def _d_inputs(self, at: int, gradients: Mapping[Place, str]) -> dict[Place, str]:
        """The gradients of those parts of a product's inputs that are read, from those of its results."""
        read = self._read_of_inputs(at)
        known: dict[Place, str] = {}
        for row, targets in zip(self._inputs[at].parts, self._outputs[at].parts, strict=True):
            of_row = {}
            for part in row:
                place = part.place._replace(base="d_inputs")
                if place in read:
                    of_row[part] = known[place] = f"d_input{at}_{name_of(part.place)}"
                    self._lines.append(f"{known[place]} = {self._zeros(place)}")
            for target in targets:
                for part, name in of_row.items():
                    if target.place in gradients:
                        weight = self._weight(at, target, part, ("d", "k"))
                        self._add_product(name, gradients[target.place], weight, target, part)
        return known

    def _zeros(self, place: Place) -> str:
        return f"tl.zeros([{self._tiling.rows}, {self._block if place.is_vector else 1}], T)"

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
                known[place] = name = name_of(place)
                start.append(f"{name} = {self._zeros(place)}")
                outside = place_in(f"d_state{at} + (row + i) * {self._widths[at]}", part)
                from_outside.append(f"    {name} += tl.load({outside}, {owners_of(place)}, 0.0)")
                of_edge = place_in("of_edge", Part(place, offset + part.offset))
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

    def _add(self, totals: dict[Place, str], place: Place, values: Values, node: Node) -> None:
        if node.value == 0:
            return
        value = values.of(node)
        if place in totals:
            self._lines.append(f"{totals[place]} = {totals[place]} + {value}")
        else:
            totals[place] = f"total_{name_of(place)}"
            self._lines.append(f"{totals[place]} = {value}")

    def _gradient_address(self, place: Place) -> str:
        """Where the gradient of what belongs to a row is."""
        base, offset = place.base.removeprefix("d_"), self._offset(place)
        if base.startswith("child"):
            state, child = map(int, base.removeprefix("child").split("_"))
            row = f"d_edges + (edge + i * {self._shape.arity} + {child}) * {sum(self._widths)}"
            offset += sum(self._widths[:state])
        elif base == "features":
            row = f"d_features + (feature + i) * {self._shape.features}"
        else:
            row = f"d_products + {base} + i * {self._outputs[int(base.removeprefix('product'))].numbers}"
        return place_in(row, Part(place, offset))

    def _input_row(self, memory: str, at: int, copy: int) -> str:
        rows = self._inputs[at]
        return f"{memory} + input{at} + (i * {len(rows.parts)} + {copy}) * {rows.width}"

    def _store_gradients(self, totals: Mapping[Place, str]) -> None:
        for child in range(self._shape.arity):
            for at, parts in enumerate(self._states):
                for part in parts:
                    place = part.place._replace(base=f"d_child{at}_{child}")
                    self._store(self._gradient_address(place), place, totals.get(place, "0.0"))
        features = Rows.of("d_features", 1, parts_of(self._D, self._shape.features or 0), self._D).parts[0]
        places = [part.place for part in features]
        self._store_if("d_features", [(self._gradient_address(x), x, totals.get(x, "0.0")) for x in places])
        self._store_learned(totals)

    def _store_learned(self, totals: Mapping[Place, str], adds: bool = False) -> None:
        """Store, or add to what is there, the gradients of what all rows read; each tile has a row for them."""
        learned = [place for place in totals if place.base == "d_learned"]
        row = f"d_learned + (first + tl.program_id(0)) * {self._num_learned} + {self._first_learned}"
        self._lines += ["if d_learned is not None:"] if learned else []
        for place in learned:
            pointer = place_in(row, Part(place, self._offset(place)))
            axes, mask = ("0, keep_dims=True", ", wide") if place.is_vector else ("None", "")
            total = f"tl.sum(tl.where({owners_of(place)}, {totals[place]}, 0.0), {axes})"
            before = f"tl.load({pointer}{mask}) + " if adds else ""
            self._lines.append(f"    tl.store({pointer}, {before}{total}{mask})")
