"""A superposition stack in Triton."""

from __future__ import annotations

import torch

from treemem.networks.memories.controllers.cuda import KernelMemory, Placed


def stack_in_kernels(stacks: torch.Tensor, top_k: int, actions: int, empty: float) -> KernelMemory:
    """Return the stack that is controlled by a value, and by logits of push, pop and perhaps no_op.

    Args:
        stacks: before the first step, ``[sequences, depth, value_size]``.
        top_k: number of rows that are read.
        actions: how many there are: 2, or 3 with no_op.
        empty: what an empty row holds.
    """
    _, depth, size = stacks.shape
    return KernelMemory(
        module="treemem.networks.memories.superposition.kernels",
        control_size=size + actions,
        read_size=top_k * size,
        state=Placed(stacks, (depth, size)),
        changed=(),
        fixed=(),
        others=(),
        sizes=(size, depth, top_k, actions, empty),
        after=lambda last: last,
    )
