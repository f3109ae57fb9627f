"""Writing a sequence symbol by symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treemem.networks.cell_states import take

Step = Callable[[torch.Tensor, Any], tuple[torch.Tensor, Any]]
"""From the last symbols ``[rows]`` and a state to logits ``[rows, symbols]`` and the next state."""


@torch.no_grad()
def beam_search(
    step: Step, state: Any, first: int, end: int, limits: torch.Tensor, beam_size: int = 1
) -> list[list[int]]:
    """Return the most probable sequences that a search with a beam finds, without their ends.

    At each step the ``beam_size`` most probable beginnings of each example stay (Sutskever et al. 2014), scored by the
    sum of their log-probabilities; one that has ended keeps its score. With a beam of 1 the search is greedy. A
    sequence that reaches its limit is cut there.

    Args:
        step: the network.
        state: where it begins, with one row for each example.
        first: the symbol that it reads first.
        end: the symbol that ends a sequence.
        limits: the most symbols that each sequence may have, its end included, ``[batch]``.
        beam_size: how many beginnings stay.
    """
    batch, device = len(limits), limits.device
    if not batch:
        return []
    state = take(state, torch.arange(batch, device=device).repeat_interleave(beam_size)) if beam_size > 1 else state
    offset = torch.arange(batch, device=device)[:, None] * beam_size
    score = torch.zeros(batch, beam_size, device=device)
    score[:, 1:] = -torch.inf  # all beginnings are the same at first
    written = torch.empty(batch, beam_size, 0, dtype=torch.int64, device=device)
    last = torch.full((batch * beam_size,), first, device=device)
    ended = torch.zeros(batch, beam_size, dtype=torch.bool, device=device)
    seen = _SeenFlags()
    for count in range(int(limits.max())):
        logits, state = step(last, state)
        of_next = logits.log_softmax(1).view(batch, beam_size, -1)
        closed = ended | (count >= limits)[:, None]
        of_next = of_next.masked_fill(closed[:, :, None], -torch.inf)
        of_next[:, :, end] = of_next[:, :, end].masked_fill(closed, 0.0)
        score, chosen = (score[:, :, None] + of_next).flatten(1).topk(beam_size, 1)
        beam, symbol = chosen // of_next.shape[2], chosen % of_next.shape[2]
        if beam_size > 1:
            written, ended = written.gather(1, beam[:, :, None].expand_as(written)), ended.gather(1, beam)
            state = take(state, (offset + beam).flatten())
        written, ended = torch.cat([written, symbol[:, :, None]], 2), ended | (symbol == end)
        last = symbol.flatten()
        if seen.any_is_set((ended | (count + 1 >= limits)[:, None]).all()):
            break  # more steps would only add the end again
    best = written[:, 0].tolist()
    return [symbols[: symbols.index(end)] if end in symbols else symbols for symbols in best]


class _SeenFlags:
    """Flags of steps, which the host sees when they arrive, so that it does not wait for the device at each step."""

    def __init__(self) -> None:
        self._coming: list[tuple[torch.Tensor, torch.Event]] = []

    def any_is_set(self, flag: torch.Tensor) -> bool:
        """Return whether this flag is true; on a device, whether one of those that have arrived is."""
        if flag.device.type == "cpu":
            return bool(flag)
        arrival = torch.Event(flag.device)
        self._coming.append((flag.to("cpu", non_blocking=True), arrival))
        arrival.record()
        while self._coming and self._coming[0][1].query():
            if bool(self._coming.pop(0)[0]):
                return True
        return False
