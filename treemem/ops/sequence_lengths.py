"""How long the sequences of a padded batch are, and what stands at one place of each."""

from __future__ import annotations

import torch

from treemem.errors import GraphError

_SHOWN = 8


def checked_lengths(lengths: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """``lengths`` on the CPU, if they are those of ``inputs``.

    Args:
        lengths: int64 ``[sequences]``.
        inputs: ``[sequences, longest, ...]``.

    Raises:
        GraphError: no whole numbers, another number of lengths, or one below 0 or above ``longest``.
    """
    sequences, longest = inputs.shape[:2]
    on_cpu = lengths.cpu()
    if on_cpu.is_floating_point() or on_cpu.is_complex() or on_cpu.dtype == torch.bool:
        raise GraphError(f"lengths must be whole numbers, torch.int64, not {on_cpu.dtype}")
    if on_cpu.shape != (sequences,) or (sequences and not 0 <= int(on_cpu.min()) <= int(on_cpu.max()) <= longest):
        shown = str(on_cpu.flatten().tolist()[:_SHOWN]) + "..." * (on_cpu.numel() > _SHOWN)
        raise GraphError(
            f"{sequences} sequences of at most {longest} elements need as many lengths from 0 to {longest}, not "
            f"{on_cpu.numel()}: {shown}"
        )
    return on_cpu


def entry_of_each(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """What stands at one place of each sequence, ``[sequences, width]``.

    Args:
        values: ``[sequences, longest, width]``.
        places: int64 ``[sequences]``; -1 stands for none, where 0 is given.
    """
    if not values.shape[1]:
        return values.new_zeros(len(values), values.shape[2])
    places = places.to(values.device)
    found = values[torch.arange(len(values), device=values.device), places.clamp(min=0)]
    return found.masked_fill(places[:, None] < 0, 0)
