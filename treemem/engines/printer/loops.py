"""Which loop over the positions of a vector computes, stores and reads what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from treemem.engines.printer.operations import ACROSS, OPERATIONS, REDUCTIONS
from treemem.engines.printer.program import Node, Place, in_order

OVER = (*ACROSS, "fold")
_MOST_REPEATED = 3  # operations that are computed again rather than kept from one loop to the next


@dataclass
class Loop:
    """One pass over the positions, and what comes before it.

    Attributes:
        numbers: computed for the row, before the loop.
        running: running sums, each a loop of its own, before the loop.
        vectors: computed in the loop, operands first.
        reductions: added up in the loop.
        stores: what is stored where, in the loop; numbers after it.
        saved: vectors that later loops read.
    """

    numbers: list[Node] = field(default_factory=list)
    running: list[Node] = field(default_factory=list)
    vectors: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    stores: list[tuple[Place, Node]] = field(default_factory=list)
    saved: list[Node] = field(default_factory=list)


def loops_of(stored: dict[Place, Node]) -> list[Loop]:
    """Return the loops that compute what is stored.

    A reduction or running sum ends a loop. A product's gradient overwrites the product, so it is stored by the last
    loop that reads the product.
    """
    nodes = in_order(stored.values())
    stage: dict[Node, int] = {}
    for node in nodes:
        stage[node] = max((stage[operand] for operand in node.operands), default=0) + (node.op in OVER)
    last = max(stage.values(), default=0)
    loops = [Loop() for _ in range(last + 1)]
    for node in nodes:
        if node.op in REDUCTIONS:
            loops[stage[node] - 1].reductions.append(node)
        elif node.op in OVER:
            loops[stage[node]].running.append(node)
        elif not node.is_vector and node.op not in ("constant", "D"):
            loops[stage[node]].numbers.append(node)
    read_until = _read_until(nodes, stage, last)
    for place, node in stored.items():
        overwritten = read_until.get(place._replace(base=place.base.removeprefix("d_")), 0)
        loops[max(stage[node], overwritten if "product" in place.base else 0)].stores.append((place, node))
    saved: dict[Node, None] = {}
    for at in range(last, -1, -1):
        loop = loops[at]
        loop.saved = [kept for kept in saved if stage[kept] == at and kept.op not in OVER]
        roots = [*(node for _, node in loop.stores), *(fold.operands[0] for fold in loop.reductions), *loop.saved]
        loop.vectors, read = _vectors(roots, stage, at)
        saved |= dict.fromkeys([*read, *(fold.operands[0] for fold in loop.running if fold.operands[0].op != "load")])
    return loops


def _read_until(nodes: Iterable[Node], stage: dict[Node, int], last: int) -> dict[Place, int]:
    """The last loop that may read each place; what a loop needs of an earlier one, it may compute again."""
    last_read: dict[Place, int] = {}
    for node in nodes:
        for operand in node.operands:
            if operand.op == "load":
                place = operand.args[0]._replace(base=operand.args[0].base.removeprefix("kept_"))
                until = stage[node] - (node.op in REDUCTIONS)
                last_read[place] = max(last_read.get(place, 0), last if until < last else until)
    return last_read


def _vectors(roots: Iterable[Node], stage: dict[Node, int], at: int) -> tuple[list[Node], list[Node]]:
    """The vectors that loop ``at`` computes, and those that it reads from earlier ones."""
    vectors: dict[Node, None] = {}
    read: list[Node] = []
    waiting = [(node, False) for node in reversed(list(roots))]
    while waiting:
        node, is_ready = waiting.pop()
        if node in vectors or not node.is_vector:
            continue
        is_here = node.op == "load" or (stage[node] == at and node.op not in OVER) or _cost(node) <= _MOST_REPEATED
        if is_ready or not is_here:
            vectors[node] = None
            read += [] if is_ready else [node]
        else:
            waiting += [(node, True), *((operand, False) for operand in reversed(node.operands))]
    return list(vectors), read


def _cost(node: Node) -> int:
    """How many operations compute a vector from what is in memory."""
    if node.op == "load" or not node.is_vector:
        return 0
    cheap = node.op in OPERATIONS and OPERATIONS[node.op].cheap
    return 1 + sum(map(_cost, node.operands)) if cheap else 99
