"""Stacks and buffers of numbers of nodes."""

from __future__ import annotations

import torch

from treemem.ops.spinn.weights import REDUCE, SHIFT


class ThinStack:
    """A stack and a buffer for each sequence, which hold numbers of nodes (Bowman et al. 2016).

    The first nodes are the leaves of all sequences, ``longest`` of each. The next one is the empty node, which stands
    where there is nothing.

    Args:
        lengths: of the sequences, int64 ``[sequences]``, where the nodes are.
        longest: leaves of each.
    """

    def __init__(self, lengths: torch.Tensor, longest: int) -> None:
        sequences, device = len(lengths), lengths.device
        self._lengths, self._longest = lengths, longest
        self._empty = sequences * longest
        self._number = torch.arange(sequences, device=device)
        self._stack = torch.full((sequences, longest + 2), self._empty, device=device)
        self._depth = torch.full_like(self._number, 2)  # two empty nodes lie at the bottom
        self._taken = torch.zeros_like(self._number)

    def tops(self, active: int) -> torch.Tensor:
        """Return the tops of buffer and stack and the node under that of the first sequences, int64 ``[active, 3]``."""
        taken, depth = self._taken[:active], self._depth[:active]
        top = torch.where(self._left_over(active), self._number[:active] * self._longest + taken, self._empty)
        first, second = (self._stack[:active].gather(1, (depth - k)[:, None]) for k in (1, 2))
        return torch.cat([top[:, None], first, second], 1)

    def possible(self, choice: torch.Tensor) -> torch.Tensor:
        """Return the choices of the first sequences, where they are possible, and elsewhere the other transition."""
        left_over = self._left_over(len(choice))
        return torch.where(self._depth[: len(choice)] < 4, SHIFT, torch.where(left_over, choice, REDUCE))

    def reducing(
        self, action: torch.Tensor, tops: torch.Tensor, *, waits: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sequences that reduce, and their left and right nodes, int64 ``[rows]`` and ``[rows, 2]``.

        Off the CPU these are all sequences, unless the host ``waits`` for the device. Those that shift have two empty
        nodes.
        """
        pairs = tops[: len(action), 1:].flip(1)
        if waits or action.device.type == "cpu":
            rows = (action == REDUCE).nonzero().squeeze(1)
            return rows, pairs.index_select(0, rows)
        return self._number[: len(action)], pairs.masked_fill((action != REDUCE)[:, None], self._empty)

    def move(self, action: torch.Tensor, tops: torch.Tensor, created: int) -> None:
        """Do the transitions of the first sequences; what the first one composes has the number ``created``."""
        own = slice(len(action))
        reduces, depth = action == REDUCE, self._depth[own]
        place = torch.where(reduces, depth - 2, depth)[:, None]
        node = torch.where(reduces, created + self._number[own], tops[:, 0])
        self._stack[own] = self._stack[own].scatter(1, place, node[:, None])
        self._depth[own] += 1 - 2 * reduces.long()
        self._taken[own] += ~reduces

    def roots(self) -> torch.Tensor:
        """Return the lowest node of each sequence, int64 ``[sequences]``."""
        return self._stack[:, 2].clone()

    def _left_over(self, active: int) -> torch.Tensor:
        return self._taken[:active] < self._lengths[:active]
