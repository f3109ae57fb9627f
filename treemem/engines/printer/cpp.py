"""Programs as C++ for ``native/step.h``: the step of one row, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence

from treemem.engines.printer.loops import OVER, Loop, loops_of
from treemem.engines.printer.operations import OPERATIONS
from treemem.engines.printer.program import Node, Place, in_order
from treemem.engines.printer.runs import NEXT, Run, Step, runs_of, with_sums
from treemem.engines.printer.trace import ADDED, StepProgram

_LONGEST = 90  # characters of an expression within another one
_START = {"sum": "0", "largest": "std::numeric_limits<T>::lowest()"}


def cpp_source(step: StepProgram, gathers: Sequence[StepProgram] = ()) -> str:
    """Return the source of a cell: the functions ``forward`` and ``backward`` of its step, and ``gather0`` and
    ``spread0`` of the inputs of its first product."""
    functions = {"forward": _Function(step.forward, step.kept, ADDED), "backward": _Function(step.backward, {}, ADDED)}
    for at, gather in enumerate(gathers):
        functions[f"gather{at}"] = _Function(gather.forward, {}, ADDED, least=2)
        functions[f"spread{at}"] = _Function(gather.backward, {}, (*ADDED, "d_product"), least=2)
    lines = ["// Printed from the formula of a cell.", "", '#include "step.h"', ""]
    for name, function in functions.items():
        lines += [*function.definition(name), "", f"EXPORT({name})", ""]
    return "\n".join([*lines, f"SCRATCH({max(program.saved_vectors for program in functions.values())})", ""])


def cpp_macro(macro: str, step: StepProgram) -> str:
    """Return a step as a macro for the compiler: ``forward_step``, ``backward_step`` and ``kScratch``."""
    forward, backward = _Function(step.forward, step.kept, ADDED), _Function(step.backward, {}, ADDED)
    lines = [*forward.definition("forward_step"), *backward.definition("backward_step")]
    return " ".join(
        [f"{macro}=constexpr int64_t kScratch = {max(forward.saved_vectors, backward.saved_vectors)};", *lines]
    )


class _Function:
    """A function that stores what a program says; first it replaces products by the values that are kept of them.

    At least so many stores, or terms of sums, that are alike share a loop.
    """

    def __init__(
        self, stored: dict[Place, Node], kept: dict[Place, Node], adds: tuple[str, ...], least: int = 8
    ) -> None:
        self._adds = adds
        self._lines = _in_place(kept)
        runs, stored = runs_of(with_sums(stored, 8), least)
        loops = loops_of(stored)
        nodes = in_order(stored.values())
        self._uses: dict[Node, int] = {}
        for used in [*(operand for node in nodes for operand in node.operands), *stored.values()]:
            self._uses[used] = self._uses.get(used, 0) + 1
        saved = dict.fromkeys(node for loop in loops for node in (*loop.saved, *loop.running))
        self._slot = {node: f"scratch[{at} * D + i]" for at, node in enumerate(saved)}
        self._first_shared = len(saved)
        self.saved_vectors = len(saved) + sum(place.base == "shared" for place in stored)
        for loop in loops:
            self._print(loop)
        for run in runs:
            self._run(run, "")
        places = {*stored, *kept, *(node.args[0] for node in nodes if node.op == "load")}
        text = "\n".join(self._lines)
        self._bases = sorted(base for base in {_pointer(place) for place in places} if f"{base}[" in text)

    def definition(self, name: str) -> list[str]:
        """The lines of the function."""
        scratch = ["T* const scratch = row.scratch;"] if self._slot else []
        lines = [*(f"T* const {base} = {self._member(base)};" for base in self._bases), *scratch, *self._lines]
        return [
            "template <typename T>",
            f"void {name}(const Row<T>& row, int64_t D) {{",
            *(f"  {x}" for x in lines),
            "}",
        ]

    def _print(self, loop: Loop) -> None:
        self._text: dict[Node, str] = {}
        for node in loop.running:
            self._running(node)
        for node in loop.numbers:
            self._lines.append(f"const T s{node.number} = {self._expression(node)};")
        vectors = [(place, node) for place, node in loop.stores if place.is_vector]
        if loop.vectors or vectors or loop.reductions:
            self._loop(loop, vectors)
        for place, node in loop.stores:
            if not place.is_vector:
                self._lines.append(f"{_at(place)} {self._assigns(place)} {self._value(node)};")

    def _loop(self, loop: Loop, stores: list[tuple[Place, Node]]) -> None:
        clauses = []
        for op, clause in (("sum", "+"), ("largest", "max")):
            names = ", ".join(f"s{fold.number}" for fold in loop.reductions if fold.op == op)
            if names:
                self._lines += [f"T s{fold.number} = {_START[op]};" for fold in loop.reductions if fold.op == op]
                clauses.append(f"reduction({clause} : {names})")
        self._lines += [f"PRAGMA(omp simd {' '.join(clauses)})", "for (int64_t i = 0; i < D; ++i) {"]
        first = len(self._lines)
        pending: dict[Node, list[Place]] = {}
        for place, node in stores:
            pending.setdefault(node, []).append(place)
        self._overwritten = {_memory(place) for place, _ in stores if place.base.startswith("d_product")}
        for node in loop.vectors:
            self._vector(node, loop, node in pending)
            for fold in loop.reductions:
                if fold.operands[0] is node:
                    name, value = f"s{fold.number}", self._text[node]
                    self._lines.append(
                        f"{name} += {value};" if fold.op == "sum" else f"{name} = larger({name}, {value});"
                    )
        # What is read is in variables by now, so that the order of stores does not matter.
        for node, places in pending.items():
            self._lines += [f"{_at(place)} {self._assigns(place)} {self._value(node)};" for place in places]
        self._lines[first:] = [f"  {line}" for line in self._lines[first:]]
        self._lines.append("}")

    def _vector(self, node: Node, loop: Loop, is_stored: bool) -> None:
        if node in self._slot and node not in loop.saved:  # of an earlier loop
            self._text[node] = self._slot[node]
            return
        text = self._expression(node)
        is_overwritten = node.op == "load" and _memory(node.args[0]) in self._overwritten
        often = self._uses.get(node, 0) > 1 or node in loop.saved or is_stored or is_overwritten
        if often or len(text) > _LONGEST:
            self._lines.append(f"const T v{node.number} = {text};")
            text = f"v{node.number}"
        self._text[node] = text
        if node in loop.saved:
            self._lines.append(f"{self._slot[node]} = {text};")

    def _run(self, run: Run, target: str) -> None:
        """Adds the values to a vector, or stores them: in one loop if all are neighbours in memory, or in two."""
        places = list(run.steps)
        is_vector = not run.stores or run.stores[0].is_vector
        is_flat = bool(run.stores) and all(step == NEXT for step in run.steps.values())
        names = {place: f"a{at}[{'i' if place.is_vector else 0}]" for at, place in enumerate(places)}
        pointers = [
            f"T* const a{at} = {self._pointer_of(place, (0, 0, 0) if is_flat else run.steps[place])};"
            for at, place in enumerate(places)
        ]

        def text(node: Node) -> str:
            if node.op == "load":
                return names[node.args[0]]
            return OPERATIONS[node.op].cpp.format(*map(text, node.operands)) if node.operands else self._value(node)

        left = f"{names[run.stores[0]]} {self._assigns(run.stores[0])}" if run.stores else f"{target} +="
        size = (f"{len(run.values)} * " if is_flat else "") + "D"
        loop = ["SIMD", f"for (int64_t i = 0; i < {size}; ++i)"] if is_vector else []
        begin = "{" if is_flat else f"for (int64_t k = 0; k < {len(run.values)}; ++k) {{"
        self._lines += [begin, *(f"  {line}" for line in (*pointers, *loop, f"{left} {text(run.node)};")), "}"]

    def _pointer_of(self, place: Place, step: Step) -> str:
        """Where a place is that moves on by so many children, vectors and numbers for each ``k``."""
        children, vectors, numbers = step
        member = self._member(_pointer(place))
        terms = [member.removesuffix("]") + f" + {children} * k]" if children else member]
        for start, offset, unit in ((place.vectors, vectors, " * D"), (place.numbers, numbers, "")):
            terms += [f"{start}{unit}"] if start else []
            terms += [f"{offset} * k{unit}"] if offset else []
        return " + ".join(terms)

    def _member(self, base: str) -> str:
        return f"row.scratch + {self._first_shared} * D" if base == "shared" else _member(base)

    def _running(self, node: Node) -> None:
        target = self._slot[node]
        if node.op == "fold":
            self._lines += ["SIMD", f"for (int64_t i = 0; i < D; ++i) {target} = 0;"]
            self._run(node.args[0], target)
            return
        (of,) = node.operands
        source = _at(of.args[0]) if of.op == "load" else self._slot[of]
        order = "int64_t i = 0; i < D; ++i" if node.op == "running sum" else "int64_t i = D - 1; i >= 0; --i"
        total = f"t{node.number}"
        self._lines += [f"T {total} = 0;", f"for ({order}) {target} = {total} += {source};"]

    def _assigns(self, place: Place) -> str:
        return "+=" if place.base.startswith(self._adds) else "="

    def _value(self, node: Node) -> str:
        if node.op in ("constant", "D"):
            return "T(D)" if node.value is None else _number(node.value)
        return self._text[node] if node.is_vector else f"s{node.number}"

    def _expression(self, node: Node) -> str:
        if node.op == "load":
            return _at(node.args[0])
        assert node.op not in OVER
        return OPERATIONS[node.op].cpp.format(*map(self._value, node.operands))


def _number(value: float) -> str:
    if math.isnan(value):
        return "std::numeric_limits<T>::quiet_NaN()"
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}std::numeric_limits<T>::infinity())"
    return f"T({value!r})"


def _memory(place: Place) -> Place:
    """The place without what it is to the program: a product, its kept value and its gradient may share memory."""
    return place._replace(base=_pointer(place).removeprefix("d_"))


def _pointer(place: Place) -> str:
    return place.base.removeprefix("kept_")


def _member(base: str) -> str:
    """Where ``Row`` has the pointer."""
    for name in ("d_product", "product", "d_state", "state"):
        if base.startswith(name):
            return f"row.{name}s[{base.removeprefix(name)}]"
    for name in ("d_child", "child"):
        if base.startswith(name):
            state, k = base.removeprefix(name).split("_")
            return f"row.{name}ren[{state}][{k}]"
    return f"row.{base}"


def _at(place: Place) -> str:
    terms = [f"{place.vectors} * D"] if place.vectors else []
    terms += [str(place.numbers)] if place.numbers else []
    terms += ["i"] if place.is_vector else []
    return f"{_pointer(place)}[{' + '.join(terms) or 0}]"


def _in_place(kept: dict[Place, Node]) -> list[str]:
    """Loops that replace products by their values, one for all neighbours with the same function."""
    runs: list[tuple[str, Place, int]] = []
    for place, node in sorted(kept.items()):
        if runs and place.is_vector:
            op, first, count = runs[-1]
            if op == node.op and first._replace(vectors=first.vectors + count) == place:
                runs[-1] = op, first, count + 1
                continue
        runs.append((node.op, place, 1))
    lines = []
    for op, place, count in runs:
        text = f"{_at(place)} = {OPERATIONS[op].cpp.format(_at(place))};"
        if place.is_vector:
            lines.append("SIMD")
            text = f"for (int64_t i = 0; i < {count} * D; ++i) {text}"
        lines.append(text)
    return lines
