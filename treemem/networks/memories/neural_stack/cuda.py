"""A neural stack, queue or deque in Triton."""

from __future__ import annotations

from collections.abc import Sequence

from treemem.engines.level_library import NotNative
from treemem.engines.printer.triton_layout import power_of_2
from treemem.networks.memories.controllers.cuda import KernelMemory, Placed
from treemem.networks.memories.neural_stack.equations import End, StrengthState

_MOST_PLACES = 8192
_WIDEST = 512


def strengths_in_kernels(state: StrengthState, steps: int, ends: Sequence[End], read_strength: float) -> KernelMemory:
    """Return the memory that is controlled by values and by logits of pushes and pops.

    Args:
        state: before the first step.
        steps: how many there are.
        ends: where the memory pops and is read. With two, it pushes at both.
        read_strength: how much strength is read.

    Raises:
        NotNative: it is too large.
    """
    _, filled, size = state.items.shape
    below = steps if len(ends) == 2 else 0
    room = below + filled + steps
    if room > _MOST_PLACES or size > _WIDEST:
        raise NotNative(
            f"its kernels take up to {_MOST_PLACES} items of {_WIDEST} numbers, and this memory gets {room} of {size}"
        )
    return KernelMemory(
        module="treemem.networks.memories.neural_stack.kernels",
        control_size=len(ends) * (size + 2),
        read_size=len(ends) * size,
        state=Placed(state.strength, (room,), below),
        changed=(Placed(state.items, (room, size), below * size),),
        fixed=(),
        others=(room, below, filled),
        sizes=(size, power_of_2(size), power_of_2(room), "top" in ends, "bottom" in ends, read_strength),
        after=lambda strength, items: StrengthState(strength, items, below=state.below + below),
    )
