"""A run of an Ordered Memory, step by step: the attended slot of each token, and what the slots hold.

As figure 1 of Shen et al. 2019. ``python -m treemem.explore.memory_run MODEL TEXT`` prints the table of a trained one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from treemem.errors import GraphError, RecipeError, TreememError, for_commands
from treemem.explore.tables import markdown_table
from treemem.trees.induced import tree_from_pointer_probabilities

if TYPE_CHECKING:
    from treemem.model import Model

_DIGITS = 4


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
        memory = {**{at: held for at, held in memory.items() if at > slot}, slot: candidates[slot]}
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
        cells = [held.get(slot, "") for held in (step.memory, step.candidates) for slot in used]
        lines.append([step.token, "" if step.slot is None else str(step.slot), *known, *cells])
    return markdown_table(lines)


def memory_run_record(model: Model, text: str) -> dict[str, Any]:
    """Return what a trained Ordered Memory does on a text, to record it.

    Returns:
        ``text``; ``tokens``; ``probabilities``, ``[tokens, slots]``, the pointers ``p``; ``predicted``, the likeliest
        class; ``tree``, the induced one, in brackets.

    Raises:
        RecipeError: the model is no Ordered Memory that classifies single sequences.
        TreememError: the text cannot be read.
    """
    from treemem.networks.parsers.ordered_memory.layer import OrderedMemory
    from treemem.schedule.tree_batch import TreeBatch

    encoder, task = model.encoder, model.task
    names = getattr(task, "class_names", ())
    if not isinstance(encoder, OrderedMemory) or not names or encoder.backward_memory is not None:
        raise RecipeError("this shows runs of an Ordered Memory that classifies sequences; give a model of this kind")
    batch = TreeBatch.from_trees([task.parse(text)], model.vocabulary)
    model.eval()
    with torch.no_grad():
        states = encoder(batch, trace=True)
        predicted = int(model.head(states.root).reshape(-1, len(names)).argmax(-1)[0])
    table = np.round(states.trace["pointers"][0].double().numpy(), _DIGITS)
    words = [leaf.label for leaf in encoder.induced_trees(batch)[0].leaves()]
    return {
        "text": text,
        "tokens": words,
        "probabilities": table.tolist(),
        "predicted": names[predicted],
        "tree": str(tree_from_pointer_probabilities(table, words)),
    }


def attended(record: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Return the slots, from 1, that a recorded run attends to most, and their probabilities."""
    table = np.asarray(record["probabilities"], np.float64)
    return (table.argmax(1) + 1).tolist(), table.max(1).tolist()


def table_of_record(record: Mapping[str, Any]) -> str:
    """Return the Markdown table of a record of :func:`memory_run_record`."""
    slots, probabilities = attended(record)
    return memory_table(record["tokens"], slots, len(record["probabilities"][0]), probabilities)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a run and, if asked, draw and record it. Return 2 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m treemem.explore.memory_run", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="folder of a run or checkpoint of an Ordered Memory")
    parser.add_argument("text", metavar="TEXT", help="what it reads, such as '[MAX 2 9 [MIN 4 7 ] 0 ]'")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the run, as PNG or SVG")
    parser.add_argument(
        "--record", metavar="FILE", type=Path, help="write the run to a JSONL file, in place of another"
    )
    options = parser.parse_args(arguments)
    from treemem.checkpoint import load
    from treemem.explore.plots import plot_memory_run
    from treemem.model_digest import weights_digest
    from treemem.records import write_records

    try:
        model = load(options.model)
        record = memory_run_record(model, options.text)
        print(table_of_record(record))
        print(f"\npredicted: {record['predicted']}; induced tree: {record['tree']}")
        if options.plot is not None:
            plot_memory_run(record, options.plot)
        if options.record is not None:
            size = sum(parameter.numel() for parameter in model.parameters())
            full_record = {**record, "parameters": size, "weights": weights_digest(model)}
            write_records(options.record, [full_record], overwrite=True)
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
