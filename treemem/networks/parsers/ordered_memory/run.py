"""The Ordered Memory over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import NamedTuple, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import Packing, checked_lengths
from treemem.networks.parsers.ordered_memory.cuda import kernel_steps
from treemem.networks.parsers.ordered_memory.equations import (
    NO_DROPOUT,
    Dropouts,
    OrderedMemoryWeights,
    Problem,
    naive,
    naive_steps,
)
from treemem.networks.parsers.ordered_memory.native import fused

_FORMER = {"stepwise": "naive"}  # engines by the names that they once had


def checked_engine(name: str, engine: SequenceEngine) -> SequenceEngine:
    """Return ``engine``, or the present name of a former one; raise :class:`RecipeError` if it is none."""
    return checked_choice(name, _FORMER.get(str(engine), engine), get_args(SequenceEngine))


class OrderedMemorySteps(NamedTuple):
    """What came of every element; 0 after the end of shorter sequences.

    Attributes:
        outputs: ``[sequences, longest, hidden_size]``.
        pointers, cumulative: ``p`` and ``cp``, ``[sequences, longest, slots]``; None unless they were asked for.
    """

    outputs: torch.Tensor
    pointers: torch.Tensor | None
    cumulative: torch.Tensor | None


def ordered_memory(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    weights: OrderedMemoryWeights,
    slots: int,
    *,
    dropouts: Dropouts = NO_DROPOUT,
    begins_empty: torch.Tensor | None = None,
    engine: SequenceEngine = "auto",
    trace: bool = False,
    skip: float = 0.0,
) -> OrderedMemorySteps:
    """Run the Ordered Memory of Shen et al. 2019 over sequences, each as if it were alone.

    Args:
        inputs: ``[sequences, longest, input_size]``, on the right of each sequence padding of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``.
        weights: of all maps.
        slots: how many there are.
        dropouts: draws anew at each step and slot.
        begins_empty: bool ``[sequences]``, which sequences begin with ``cell(x, 0)`` in the last slot; none by default.
        engine: ``"fused"`` (``"auto"``) or ``"naive"``. They give the same results, but other dropout masks.
            ``"fused"`` is ``"naive"`` where neither C++ nor kernels for CUDA can be used.
        trace: whether to return pointers.
        skip: a slot with a smaller ``cp`` keeps the element as its candidate.

    Raises:
        GraphError: inputs of another width, or lengths that do not fit them.
        RecipeError: an unknown engine.
    """
    engine = checked_engine("engine", engine)
    packing, empty = _packed(inputs, lengths, weights, begins_empty)
    if not packing.sizes:
        nothing = inputs.new_zeros(*inputs.shape[:2], slots) if trace else None
        return OrderedMemorySteps(inputs.new_zeros(*inputs.shape[:2], len(weights.input.bias)), nothing, nothing)
    problem = Problem(packing.packed(inputs), packing.sizes, empty, weights, slots, dropouts, skip)
    packed = None if engine == "naive" else kernel_steps(problem, trace) or fused(problem, trace)
    packed = packed or naive(problem, trace)
    return OrderedMemorySteps(*(None if values is None else packing.padded(values) for values in packed))  # type: ignore[arg-type]


def slot_contents(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    weights: OrderedMemoryWeights,
    slots: int,
    *,
    begins_empty: torch.Tensor | None = None,
) -> torch.Tensor:
    """What each slot has composed after each element, ``C``, ``[sequences, longest, slots, hidden_size]``.

    0 at padding. It is computed by the naive engine, without dropout. Arguments and errors as of
    :func:`ordered_memory`.
    """
    packing, empty = _packed(inputs, lengths, weights, begins_empty)
    if not packing.sizes:
        return inputs.new_zeros(*inputs.shape[:2], slots, len(weights.input.bias))
    steps = naive_steps(Problem(packing.packed(inputs), packing.sizes, empty, weights, slots))
    return packing.padded(torch.cat([step.candidates for step in steps], 1).transpose(0, 1))


def _packed(
    inputs: torch.Tensor, lengths: torch.Tensor, weights: OrderedMemoryWeights, begins_empty: torch.Tensor | None
) -> tuple[Packing, torch.Tensor]:
    """Return how sequences are packed, and which of those that have elements begin empty, in that order."""
    on_cpu = checked_lengths(lengths, inputs, weights.input.weight.shape[1])
    empty = torch.zeros_like(on_cpu, dtype=torch.bool) if begins_empty is None else begins_empty.cpu()
    packing = Packing(on_cpu, inputs.shape[1], inputs.device)
    return packing, to_device(empty[packing.order[: packing.sizes[0] if packing.sizes else 0]], inputs.device)
