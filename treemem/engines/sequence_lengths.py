"""Lengths and packing of padded sequences."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch.nn import functional

from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.errors import GraphError

_SHOWN = 8


def checked_lengths(lengths: torch.Tensor, inputs: torch.Tensor, input_size: int) -> torch.Tensor:
    """``lengths`` on the CPU, int64, if they are those of ``inputs``.

    Args:
        lengths: whole numbers ``[sequences]``.
        inputs: ``[sequences, longest, input_size]``.
        input_size: how wide they must be.

    Raises:
        GraphError: inputs of another shape; another number of lengths, or one below 0 or above ``longest``.
    """
    if inputs.ndim != 3 or inputs.shape[2] != input_size:
        raise GraphError(f"inputs must be [sequences, longest, {input_size}], not {list(inputs.shape)}")
    sequences, longest = inputs.shape[:2]
    on_cpu = whole_numbers("lengths", lengths.cpu())
    if on_cpu.shape != (sequences,) or (sequences and not 0 <= int(on_cpu.min()) <= int(on_cpu.max()) <= longest):
        shown = str(on_cpu.flatten().tolist()[:_SHOWN]) + "..." * (on_cpu.numel() > _SHOWN)
        raise GraphError(
            f"{sequences} sequences of at most {longest} elements need as many lengths from 0 to {longest}, not "
            f"{on_cpu.numel()}: {shown}"
        )
    return on_cpu


def within(lengths: torch.Tensor, longest: int) -> torch.Tensor:
    """Where sequences have elements, bool ``[sequences, longest]``.

    Args:
        lengths: int64 ``[sequences]``, on any device; so is the result.
        longest: the most elements that one may have.
    """
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class LongestFirst:
    """The sequences that are not empty, the longest first.

    Args:
        lengths: int64 ``[sequences]``, on the CPU.
        device: where the elements are.

    Attributes:
        rows: which these are, int64, where the elements are.
        lengths: of these sequences, on the CPU.
        lengths_there: the same, where the elements are.
        sizes: how many sequences are longer than 0, 1, 2, ... elements; empty if all sequences are.
    """

    def __init__(self, lengths: torch.Tensor, device: torch.device) -> None:
        order = lengths.argsort(descending=True, stable=True)[: int((lengths > 0).sum())]
        self._sequences, self.rows = len(lengths), to_device(order, device)
        self.lengths = lengths[order]
        self.lengths_there = to_device(self.lengths, device)
        self.sizes = within(self.lengths, int(self.lengths[0]) if len(order) else 0).sum(0).tolist()

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values [sequences, longest, ...]`` of these sequences, up to the longest, and 0 after their ends."""
        sorted_values = values.index_select(0, self.rows)[:, : len(self.sizes)]
        there = within(self.lengths_there, sorted_values.shape[1])
        return sorted_values.masked_fill(~there.view(*there.shape, *[1] * (sorted_values.dim() - 2)), 0)

    def back(self, values: torch.Tensor, longest: int | None = None) -> torch.Tensor:
        """Return what there is of each of these sequences for all, 0 for empty ones.

        Args:
            values: ``[these sequences, ...]``.
            longest: to which the second dimension is padded with 0.
        """
        if longest is not None:
            values = functional.pad(values, [0, 0] * (values.dim() - 2) + [0, longest - values.shape[1]])
        return values.new_zeros(self._sequences, *values.shape[1:]).index_copy(0, self.rows, values)


class Packing:
    """Sequences packed, longest first: step after step the elements of those that have not ended.

    Args:
        lengths: int64 ``[sequences]``, on the CPU.
        longest: the most elements that one may have.
        device: where the elements are.

    Attributes:
        order: the sequences, longest first, int64 ``[sequences]`` on the CPU.
        sizes: how many elements each step has, none of them 0.
    """

    def __init__(self, lengths: torch.Tensor, longest: int, device: torch.device) -> None:
        self.order = lengths.argsort(descending=True, stable=True)
        present = within(lengths[self.order], longest).t()
        self.sizes = [size for size in present.sum(1).tolist() if size]
        self._shape = (len(lengths), longest)
        self._place = to_device((torch.arange(longest)[:, None] + self.order * longest)[present], device)

    def packed(self, values: torch.Tensor) -> torch.Tensor:
        """The elements ``[elements, ...]`` of values ``[sequences, longest, ...]``."""
        return values.flatten(0, 1).index_select(0, self._place)

    def padded(self, values: torch.Tensor) -> torch.Tensor:
        """Elements ``[elements, ...]`` at their places in ``[sequences, longest, ...]``, and 0 elsewhere."""
        whole = values.new_zeros(math.prod(self._shape), *values.shape[1:])
        return whole.index_copy(0, self._place, values).unflatten(0, self._shape)


Kernel = Callable[[torch.Tensor, list[int], list[torch.Tensor]], tuple[torch.Tensor, ...]]
"""Takes packed elements, how many each step has, and what each sequence has from the beginning, longest first.

It returns the outputs, packed as well, and of the first entries what they have become."""


def run_packed(
    kernel: Kernel, inputs: torch.Tensor, lengths: torch.Tensor, of_each: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the outputs of a kernel, 0 at padding, and what each sequence has after its last element.

    Args:
        kernel: runs over the sequences that are not empty.
        inputs: ``[sequences, longest, ...]``.
        lengths: int64 ``[sequences]``, on the CPU.
        of_each: what each sequence has from the beginning, ``[sequences, ...]``; empty ones keep it. The first is as
            wide as the outputs. A kernel may return more; of this, empty sequences have 0.
    """
    packing = Packing(lengths, inputs.shape[1], inputs.device)
    if not packing.sizes:
        return of_each[0].new_zeros(*inputs.shape[:2], of_each[0].shape[1]), [*of_each]
    order = to_device(packing.order, inputs.device)
    present, empty = order.split([packing.sizes[0], len(order) - packing.sizes[0]])
    outputs, *last = kernel(packing.packed(inputs), packing.sizes, [tensor[present] for tensor in of_each])
    kept = [tensor[empty] for tensor in of_each] + [
        tensor.new_zeros(len(empty), *tensor.shape[1:]) for tensor in last[len(of_each) :]
    ]
    back = order.argsort()
    ends = [torch.cat([end, tensor.to(end.dtype)])[back] for end, tensor in zip(last, kept, strict=False)]
    return packing.padded(outputs), ends


def of_step_before(first: torch.Tensor, values: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """What each element of packed sequences has from the step before, as ``values``.

    Args:
        first: what each sequence has at its beginning, ``[sequences, ...]``.
        values: of each element, ``[elements, ...]``.
        sizes: how many elements each step has.
    """
    before = zip([first, *values.split(sizes)], sizes, strict=False)
    return torch.cat([part[:size] for part, size in before] or [values])


def shares_of_threads(sizes: list[int], threads: int) -> list[int]:
    """Where the sequences of each thread begin, and the end of all, so that threads have about as many elements each.

    Args:
        sizes: how many elements each step of packed sequences has.
        threads: how many there are.
    """
    lengths: list[int] = []
    for step in range(len(sizes), 0, -1):  # sequences that end later come first
        lengths += [step] * (sizes[step - 1] - len(lengths))
    elements = [0, *accumulate(lengths)]
    return [bisect.bisect_left(elements, elements[-1] * thread / threads) for thread in range(threads)] + [len(lengths)]


def entry_of_each(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """What stands at one place of each sequence, ``[sequences, width]``.

    Args:
        values: ``[sequences, longest, width]``.
        places: int64 ``[sequences]``; -1 stands for none, where 0 is given.
    """
    if not values.shape[1]:
        return values.new_zeros(len(values), values.shape[2])
    places = to_device(places, values.device)
    entries = values[torch.arange(len(values), device=values.device), places.clamp(min=0)]
    return entries.masked_fill(places[:, None] < 0, 0)


def reversed_within(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return ``values [sequences, longest, width]`` with each sequence from its end to its beginning; padding stays."""
    place = torch.arange(values.shape[1], device=lengths.device)
    mirrored = lengths[:, None] - 1 - place
    places = to_device(torch.where(mirrored < 0, place, mirrored), values.device)
    return values.gather(1, places[:, :, None].expand_as(values))
