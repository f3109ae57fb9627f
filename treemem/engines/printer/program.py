"""Straight-line programs over the rows of a level: nodes that are merged, folded and rewritten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from treemem.engines.printer.operations import ACROSS, OPERATIONS, REDUCTIONS


class Place(NamedTuple):
    """Where a value is in memory: the numbers from ``base[vectors * D + numbers]`` on.

    Attributes:
        base: what it belongs to, such as ``"product0"``.
        vectors, numbers: how many vectors of D numbers, and how many single numbers, come before it.
        is_vector: whether it has D numbers, or one.
    """

    base: str
    vectors: int
    numbers: int
    is_vector: bool


class Node:
    """An operation, a value in memory (``load``), a ``constant``, or the width of a state, ``D``.

    Attributes:
        op, args: the operation and its operands; of a load its :class:`Place`, of a constant the number.
        is_vector: whether it has a value for each of the D positions of a state, or one for the row.
        number: nodes are numbered as they are made.
    """

    __slots__ = ("args", "is_vector", "number", "op")

    def __init__(self, op: str, args: tuple, is_vector: bool, number: int) -> None:
        self.op, self.args, self.is_vector, self.number = op, args, is_vector, number

    @property
    def operands(self) -> tuple[Node, ...]:
        return tuple(arg for arg in self.args if isinstance(arg, Node))

    @property
    def value(self) -> float | None:
        """Of a constant."""
        return self.args[0] if self.op == "constant" else None


class Program:
    """Makes nodes; equal ones are made once, and what is constant is computed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[tuple, Node] = {}
        self.width = self._node("D", (), False)

    def constant(self, value: float) -> Node:
        return self._node("constant", (float(value),), False)

    def load(self, place: Place) -> Node:
        return self._node("load", (place,), place.is_vector)

    def of(self, op: str, *args: Node) -> Node:
        """Return the node of an operation of ``OPERATIONS`` or ``ACROSS``."""
        values = [arg.value for arg in args]
        if op in OPERATIONS and None not in values:
            return self.constant(float(OPERATIONS[op].torch(*(torch.tensor(v, dtype=torch.float64) for v in values))))
        a, b = (*args, *args)[:2]
        if (op == "add" and values[0] == 0) or (op == "mul" and values[0] == 1):
            return b
        if (op in ("add", "sub") and values[1] == 0) or (op in ("mul", "div") and values[1] == 1):
            return a
        if (op == "mul" and 0 in values) or (op == "div" and values[0] == 0):
            return self.constant(0)
        if op == "sub" and values[0] == 0:
            return self.of("neg", b)
        if op == "neg" and a.op == "neg":
            return a.operands[0]
        if op == "where" and (a.value is not None or args[1] is args[2]):
            return args[1] if a.value is None or a.value else args[2]
        if op in ("add", "mul") and a.number > b.number:
            args = (b, a)
        return self._node(op, args, op not in REDUCTIONS and any(arg.is_vector for arg in args))

    def rewritten(self, outputs: Iterable[Node], replaced: dict[Node, Node]) -> list[Node]:
        """Return the outputs, with some nodes in the place of others."""
        outputs, by = list(outputs), dict(replaced)
        for node in in_order(outputs, stop=replaced):
            if node not in by:
                by[node] = self.of(node.op, *(by[operand] for operand in node.operands)) if node.operands else node
        return [by[node] for node in outputs]

    def _node(self, op: str, args: tuple, is_vector: bool) -> Node:
        key = (op, *args)
        if key not in self._known:
            self._known[key] = Node(op, args, is_vector, len(self.nodes))
            self.nodes.append(self._known[key])
        return self._known[key]


def in_order(outputs: Iterable[Node], stop: Iterable[Node] = ()) -> list[Node]:
    """Return all nodes that the outputs need, operands first; those of ``stop`` need none."""
    ordered: dict[Node, None] = {}
    waiting = [(node, False) for node in reversed(list(outputs))]
    while waiting:
        node, is_ready = waiting.pop()
        if node in ordered:
            continue
        if is_ready:
            ordered[node] = None
            continue
        waiting.append((node, True))
        if node not in stop:
            waiting += [(operand, False) for operand in reversed(node.operands)]
    return list(ordered)


def bases_read(outputs: Iterable[Node]) -> set[str]:
    """Return what the outputs read, such as ``"product0"``."""
    return {node.args[0].base for node in in_order(outputs) if node.op == "load"}


def evaluated(outputs: Iterable[Node], memory: dict[Place, torch.Tensor], D: int) -> dict[Node, torch.Tensor]:
    """Return the values of the outputs and of all that they need, ``[rows, D or 1]``, as torch computes them."""
    values: dict[Node, torch.Tensor] = {}
    for node in in_order(outputs):
        operands = [values[operand] for operand in node.operands]
        if node.op == "load":
            values[node] = memory[node.args[0]]
        elif not operands:
            values[node] = torch.tensor([[D if node.value is None else node.value]], dtype=torch.float64)
        elif node.op in ACROSS:
            values[node] = ACROSS[node.op](operands[0])
        else:
            values[node] = OPERATIONS[node.op].torch(*operands).to(torch.float64)
    return values
