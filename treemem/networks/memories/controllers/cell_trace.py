"""What a cell with memories did at each step of a sequence, for someone to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from treemem.networks.memories.controllers.cells import StepCell, run_cell
from treemem.networks.memories.controllers.memory_cell import MemoryCell

TRACE_AXES: Mapping[str, tuple[str, ...]] = {
    "strength": ("sequences", "tokens", "items"),
    "attention": ("sequences", "tokens", "places"),
    "read_weights": ("sequences", "tokens", "places"),
    "write_weights": ("sequences", "tokens", "places"),
    **dict.fromkeys(("push", "pop", "no_op", "insert", "left", "right"), ("sequences", "tokens", "ends")),
    "readout": ("sequences", "tokens", "rows", "hidden"),
    "value": ("sequences", "tokens", "rows", "hidden"),
    "memory": ("sequences", "tokens", "slots", "hidden"),
    "top": ("sequences", "tokens", "states", "hidden"),
}
"""What a trace may hold, and its axes: the strengths of the items in memory from the bottom to the top; the weights of
attention, and of reading and writing registers; strengths and weights of actions (of a deque the top's first); what was
read and pushed; the rows of a memory that has rows; the probability of each top symbol in each state of an
automaton."""


@torch.no_grad()
def traced_run(
    cell: StepCell, inputs: torch.Tensor, state: Any = None
) -> tuple[torch.Tensor, Any, list[dict[str, torch.Tensor]]]:
    """Run a cell over one sequence. Return the outputs, the last state, and what it did at each step by name.

    Args:
        cell: the cell.
        inputs: ``[1, time, input_size]``.
        state: where to begin; by default the initial one.
    """
    state = cell.initial(1) if state is None else state
    outputs, did = [], []
    for x in inputs.split(1, 1):
        output, following = run_cell(cell, x, state)
        did.append(_did(cell, x[:, 0], state, following) if isinstance(cell, MemoryCell) else {})
        outputs.append(output)
        state = following
    return torch.cat(outputs, 1), state, did


def _did(cell: MemoryCell, x: torch.Tensor, before: Any, after: Any) -> dict[str, torch.Tensor]:
    traced: dict[str, torch.Tensor] = {}
    arguments = cell.arguments(cell.controlled(x, before)[0])
    sizes = [memory.readout_size(cell.memory_size) for memory in cell.all_memories()]
    readouts = after.read.split(sizes, 1)
    for memory, given, state, read in zip(cell.all_memories(), arguments, after.memories, readouts, strict=True):
        names = [name for control in memory.controls(cell.memory_size) for name in control.names]
        traced |= memory.trace(cell.memory_size, dict(zip(names, given, strict=True)), state, read)
    return {name: value[0] for name, value in traced.items()}


def stacked_traces(sequences: list[list[dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """Return the traces of sequences by name, ``[sequences, tokens, ...]``, with NaN where there is nothing."""
    names = {name: None for steps in sequences for did in steps for name in did}
    longest = max(map(len, sequences))
    stacked = {}
    for name in names:
        of_name = [
            (row, step, did[name])
            for row, steps in enumerate(sequences)
            for step, did in enumerate(steps)
            if name in did
        ]
        sizes = torch.tensor([value.shape for _, _, value in of_name]).amax(0).tolist()
        stacked[name] = of_name[0][2].new_full((len(sequences), longest, *sizes), torch.nan)
        for row, step, value in of_name:
            place: tuple[Any, ...] = (row, step, *[slice(size) for size in value.shape])
            stacked[name][place] = value
    return stacked
