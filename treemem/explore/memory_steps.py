"""What the slots of an Ordered Memory hold, step by step, as figure 1 of Shen et al. 2019."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treemem.errors import GraphError
from treemem.explore.tables import markdown_table


class MemoryStep(NamedTuple):
    """What an Ordered Memory holds after a token, if it attends to one slot only. Slots count from 1.

    Attributes:
        token: the token.
        slot: the attended slot; None at the first token, which attends to nothing.
        memory: by slot, what ``M`` holds, for the attended slot and those above.
        candidates: by slot, what ``C`` holds: the token composed with the memory, slot after slot.
    """

    token: str
    slot: int | None
    memory: dict[int, str]
    candidates: dict[int, str]


def memory_steps(tokens: Sequence[str], pointers: Sequence[int], slots: int) -> list[MemoryStep]:
    """Return what an Ordered Memory holds after each token.

    Args:
        tokens: at least one.
        pointers: the attended slot of each token, from 1; that of the first has no effect. A slot is at most one below
            the slot before.
        slots: the number of slots.

    Raises:
        GraphError: other numbers of tokens and pointers, or a pointer that the memory cannot have.

    Example:
        >>> [step.candidates[3] for step in memory_steps(["a", "b", "c", "d"], [0, 3, 2, 3], 3)]
        ['a', '(a b)', '(a (b c))', '((a (b c)) d)']
    """
    if not tokens or len(tokens) != len(pointers):
        raise GraphError(f"{len(tokens)} tokens and {len(pointers)} pointers; give one pointer for each token")
    first, *others = tokens
    memory: dict[int, str] = {}
    candidates = dict.fromkeys(range(1, slots + 1), first)
    steps = [MemoryStep(first, None, {}, candidates)]
    lowest = slots
    for place, (token, slot) in enumerate(zip(others, pointers[1:], strict=True), start=1):
        if not lowest <= slot <= slots:
            raise GraphError(f"token {place} ({token!r}) attends to slot {slot}; it can attend to {lowest} to {slots}")
        memory = {**{at: content for at, content in memory.items() if at > slot}, slot: candidates[slot]}
        candidates = dict.fromkeys(range(1, slot), token)
        below = token
        for at in range(slot, slots + 1):
            below = candidates[at] = f"({memory[at]} {below})"
        steps.append(MemoryStep(token, slot, memory, candidates))
        lowest = max(1, slot - 1)
    return steps


def memory_table(
    tokens: Sequence[str], pointers: Sequence[int], slots: int, probabilities: Sequence[float] | None = None
) -> str:
    """Return :func:`memory_steps` as a Markdown table, with the slots that are used.

    Args:
        tokens, pointers, slots: as of :func:`memory_steps`.
        probabilities: of the attended slots, for a column of their own.

    Raises:
        GraphError: as :func:`memory_steps`.
    """
    steps = memory_steps(tokens, pointers, slots)
    used = range(min([step.slot for step in steps if step.slot is not None], default=slots), slots + 1)
    shown = ["p"] * (probabilities is not None)
    lines = [["token", "slot", *shown, *(f"M{slot}" for slot in used), *(f"C{slot}" for slot in used)]]
    for place, step in enumerate(steps):
        known = [f"{probabilities[place]:.3f}" if place else ""] if probabilities is not None else []
        cells = [contents.get(slot, "") for contents in (step.memory, step.candidates) for slot in used]
        lines.append([step.token, "" if step.slot is None else str(step.slot), *known, *cells])
    return markdown_table(lines)


def attended(record: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Return the slots, from 1, that a recorded run attends to most, and their probabilities."""
    table = np.asarray(record["probabilities"], np.float64)
    return (table.argmax(1) + 1).tolist(), table.max(1).tolist()


def table_of_record(record: Mapping[str, Any]) -> str:
    """Return the Markdown table of a record of :func:`memory_run_record`."""
    slots, probabilities = attended(record)
    return memory_table(record["tokens"], slots, len(record["probabilities"][0]), probabilities)
