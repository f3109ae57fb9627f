"""Stores and terms of sums that are alike, such as those of each child: they are printed as loops."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from treemem.engines.printer.operations import ACROSS
from treemem.engines.printer.program import Node, Place, in_order

NEXT = (0, 1, 0)  # the step to the next vector
Step = tuple[int, int, int]
_TERM = Place("term", 0, 0, True)  # in the place where a value would be stored


class Run(NamedTuple):
    """Values that are alike, of what lies in memory with equal steps in between.

    Attributes:
        node: the first value.
        stores: where each value is stored; empty for terms of a sum.
        values: all of them.
        steps: for each place, what lies between it and that of the next value: children, vectors and numbers.
    """

    node: Node
    stores: list[Place]
    values: list[Node]
    steps: dict[Place, Step]


def runs_of(stored: dict[Place, Node], least: int) -> tuple[list[Run], dict[Place, Node]]:
    """Return runs of at least so many stores, which come last, in order; and the other stores.

    What the values of a run share is stored at a place ``shared``.
    """
    runs: list[Run] = []
    common: dict[Node, Node] = {}
    rest = dict(stored)
    for group in _alike(sorted(stored.items(), key=lambda item: _key(item[0])), least):
        steps, matched = _match(group[0], group[1]) or ({}, [])
        for node in matched:
            place = Place("shared", len(common), 0, node.is_vector)
            common.setdefault(node, Node("load", (place,), node.is_vector, node.number))
        steps |= {common[node].args[0]: (0, 0, 0) for node in matched}
        node = _rewritten(group[0][1], common)
        runs.append(Run(node, [place for place, _ in group], [value for _, value in group], steps))
        for place, _ in group:
            del rest[place]
    runs.sort(key=lambda run: _overwrites(run.stores[0]))
    if not _are_last(runs, common, rest):
        return [], stored
    return runs, rest | {load.args[0]: node for node, load in common.items()}


def _are_last(runs: list[Run], common: dict[Node, Node], rest: dict[Place, Node]) -> bool:
    """Whether runs may come last: nothing that they read is overwritten before."""
    for run in runs:
        written = [*rest, *(place for other in runs if other is not run for place in other.stores)]
        if not _overwrites(run.stores[0]):
            written = [*rest]
        before = {_memory(place) for place in written if _overwrites(place)}
        overwritten = {_memory(place) for place in run.stores if _overwrites(place)}
        for place, value in zip(run.stores, run.values, strict=True):
            nodes = in_order([value], stop=common)
            read = {_memory(node.args[0]) for node in nodes if node.op == "load"}
            if read & before or (read - {_memory(place)}) & overwritten:
                return False
    return True


def _overwrites(place: Place) -> bool:
    return place.base.startswith("d_product")


def with_sums(stored: dict[Place, Node], least: int) -> dict[Place, Node]:
    """Return the same, with sums of at least so many terms that are alike as nodes ``fold``."""
    nodes = in_order(stored.values())
    uses: dict[Node, int] = {}
    for used in [*(operand for node in nodes for operand in node.operands), *stored.values()]:
        uses[used] = uses.get(used, 0) + 1
    sums = [node for node in nodes if node.op == "add"]
    inner = {operand for node in sums for operand in node.operands if operand.op == "add" and uses[operand] == 1}
    by: dict[Node, Node] = {}
    number = count(1 + max((member.number for member in nodes), default=0))
    for node in nodes:
        if node.op == "add" and node.is_vector and node not in inner:
            terms = [by.get(term, term) for term in _terms(node, inner)]
            if len(set(terms)) < len(terms):  # the same one twice
                by[node] = _with_operands(node, by)
                continue
            pairs = sorted(((_TERM, term) for term in terms if term.is_vector), key=lambda item: _key_of(item[1]))
            rest = dict.fromkeys(terms)
            folds = []
            for group in _alike(pairs, least):
                steps, common = _match(group[0], group[1]) or ({}, [])
                if common:
                    continue
                values = [term for _, term in group]
                run = Run(values[0], [], values, steps)
                loads = [load for load in in_order(values) if load.op == "load"]
                folds.append(Node("fold", (run, *loads), True, next(number)))
                for used in values:
                    del rest[used]
            if folds:
                total, *others = [*folds, *rest]
                for used in others:
                    total = Node("add", (total, used), True, next(number))
                by[node] = total
                continue
        by[node] = _with_operands(node, by)
    return {place: by[node] for place, node in stored.items()}


def _terms(node: Node, inner: set[Node]) -> list[Node]:
    terms, waiting = [], [*node.operands]
    while waiting:
        term = waiting.pop()
        if term in inner:
            waiting += term.operands
        else:
            terms.append(term)
    return terms


def _alike(pairs: Iterable[tuple[Place, Node]], least: int) -> list[list[tuple[Place, Node]]]:
    """Neighbours that are alike with equal steps, in groups."""
    groups: list[list[tuple[Place, Node]]] = []
    last: object = None
    for pair in pairs:
        if groups and (matched := _match(groups[-1][-1], pair)) is not None:
            alike = list(matched[0].values()), matched[1]
            if len(groups[-1]) == 1 or alike == last:
                groups[-1].append(pair)
                last = alike
                continue
        groups.append([pair])
    return [group for group in groups if len(group) >= least]


def _match(first: tuple[Place, Node], second: tuple[Place, Node]) -> tuple[dict[Place, Step], list[Node]] | None:
    """The steps between the places of two values, and what they share; None if they are not alike."""
    steps: dict[Place, Step] = {}
    common: list[Node] = []

    def places(a: Place, b: Place) -> bool:
        (base, *before), (other, *after) = _address(a), _address(b)
        step = after[2] - before[2], after[0] - before[0], after[1] - before[1]
        return base == other and a.is_vector == b.is_vector and steps.setdefault(a, step) == step

    waiting = [(first[1], second[1])]
    while waiting:
        a, b = waiting.pop()
        if a.op == b.op == "load":
            if not places(a.args[0], b.args[0]):
                return None
        elif a is b:
            common += [a] if a.operands and a not in common else []
        elif a.op != b.op or a.op in (*ACROSS, "fold", "constant") or a.is_vector != b.is_vector:
            return None
        else:
            waiting += zip(a.operands, b.operands, strict=True)
    if not places(first[0], second[0]):
        return None
    steps.pop(_TERM, None)
    return steps, common


def _rewritten(node: Node, by: dict[Node, Node]) -> Node:
    if node in by:
        return by[node]
    return _with_operands(node, {operand: _rewritten(operand, by) for operand in node.operands})


def _with_operands(node: Node, by: dict[Node, Node]) -> Node:
    operands = [by.get(operand, operand) for operand in node.operands]
    return node if operands == [*node.operands] else Node(node.op, tuple(operands), node.is_vector, node.number)


def _key(place: Place) -> tuple[object, ...]:
    base, *numbers = _address(place)
    return base, place.is_vector, *numbers


def _key_of(node: Node) -> list[tuple[object, ...]]:
    return [_key(load.args[0]) for load in in_order([node]) if load.op == "load"]


def _address(place: Place) -> tuple[str, int, int, int]:
    """What the place belongs to, and the vectors, numbers and children before it."""
    base, _, child = place.base.rpartition("_") if "child" in place.base else (place.base, "", "")
    return base, place.vectors, place.numbers, int(child or 0)


def _memory(place: Place) -> Place:
    """The place without what it is to the program: a product, its kept value and its gradient may share memory."""
    return place._replace(base=place.base.removeprefix("kept_").removeprefix("d_"))
