"""The Ordered Memory over packed sequences, with few calls a step."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.ops.ordered_memory.naive import dropped, layer_norm, linear
from treemem.ops.ordered_memory.weights import THRESHOLD, Affine, Dropouts, GatedCellWeights, OrderedMemoryWeights

_BELOW_THRESHOLD = math.nextafter(THRESHOLD, 0.0)  # `threshold` keeps what is above, the equations what is not below


class PackedSteps(NamedTuple):
    """What :func:`stepwise` returns, in the order of its inputs.

    Attributes:
        outputs: ``[tokens, hidden_size]``.
        pointers, cumulative: ``p`` and ``cp``, ``[tokens, slots]``; None unless they were asked for.
    """

    outputs: torch.Tensor
    pointers: torch.Tensor | None
    cumulative: torch.Tensor | None


def stepwise(
    inputs: torch.Tensor,
    sizes: list[int],
    begins_empty: torch.Tensor,
    weights: OrderedMemoryWeights,
    slots: int,
    dropouts: Dropouts,
    trace: bool,
) -> PackedSteps:
    """The equations of :func:`treemem.ops.ordered_memory.naive.naive_steps`, arranged for speed.

    Inputs, queries, and the scores of slots that hold nothing but the last element, are computed for all steps at once;
    the half of the cell's first product that reads the memory, for all slots of a step. Sequences that have ended are
    no longer there. Slots whose ``cp`` is exactly 0 in every sequence are not composed: their candidate is the element.

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending, none 0.
        begins_empty: bool ``[sequences]``: which attend with their first element to an empty last slot.
        weights: of all maps.
        slots: how many there are.
        dropouts: draws anew at each step and slot.
        trace: whether to return pointers.
    """
    projected = layer_norm(linear(inputs, weights.input), weights.input_norm)
    composer, news = _Composer(weights, dropouts), projected.split(sizes)
    attention = _Attention(weights, dropouts, projected, sizes)
    memory = candidates = projected.new_zeros(slots, sizes[0], projected.shape[1])
    pointers = projected.new_zeros(slots, sizes[0])
    pointers[-1] = begins_empty
    cumulative, composed, outputs, traced = pointers, 0, [], []
    for step, (new, size) in enumerate(zip(news, sizes, strict=True)):
        if step:
            if size < cumulative.shape[1]:
                cumulative, memory, candidates = cumulative[:, :size], memory[:, :size], candidates[:, :size]
            pointers = attention(step, cumulative, candidates[slots - composed :])
            cumulative = pointers.cumsum(0)
            onward = cumulative[-1] - cumulative + pointers
            memory = torch.lerp(memory, candidates, onward[:, :, None])
        reached = int(torch.count_nonzero(cumulative.detach().amax(1)))  # `cp` ascends: the last so many slots
        composed = max(reached, 1) if step or reached else 0
        below = slots - composed
        states = composer(new, memory[below:], cumulative[below:])
        candidates = torch.cat([new.expand(below, *new.shape), *(state[None] for state in states)])
        outputs.append(states[-1] if states else new)
        if trace:
            traced.append((pointers, cumulative))
    return PackedSteps(
        torch.cat(outputs),
        torch.cat([pointers for pointers, _ in traced], 1).t() if trace else None,
        torch.cat([cumulative for _, cumulative in traced], 1).t() if trace else None,
    )


class _Attention:
    """Pointers of one step after another.

    Args:
        weights, dropouts: as for :func:`stepwise`.
        projected: the elements of all steps, ``[tokens, hidden_size]``.
        sizes: of the steps.
    """

    def __init__(
        self, weights: OrderedMemoryWeights, dropouts: Dropouts, projected: torch.Tensor, sizes: list[int]
    ) -> None:
        self.weights, self.dropouts = weights, dropouts
        scale = 1 / math.sqrt(projected.shape[1])
        self.score = Affine(weights.score.weight * scale, weights.score.bias * scale)
        read = dropped(projected, dropouts.memory)[sizes[0] :]
        queries = layer_norm(linear(read, weights.query), weights.query_norm)
        self.queries = queries.split(sizes[1:])
        before = torch.cat(
            [part[:size] for part, size in zip(projected.split(sizes), sizes[1:], strict=False)] or [read]
        )
        self.untouched = self.scores(queries, before).split(sizes[1:])

    def scores(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """``[...]`` of candidates ``[..., hidden_size]``."""
        key = layer_norm(linear(dropped(candidates, self.dropouts.memory), self.weights.key), self.weights.key_norm)
        return linear(dropped((key + queries).relu_(), self.dropouts.memory), self.score).squeeze(-1)

    def __call__(self, step: int, cumulative: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """``p`` of a step, ``[slots, sequences]``.

        Args:
            step: its number, from 1.
            cumulative: ``cp`` of the step before, ``[slots, sequences]``.
            candidates: of the slots that were composed in the step before, ``[composed, sequences, hidden_size]``.
        """
        untouched, below = self.untouched[step - 1], len(cumulative) - len(candidates)
        scores = untouched.expand(below, -1)
        if len(candidates):
            composed = self.scores(self.queries[step - 1], candidates)
            scores = torch.cat([scores, composed]) if below else composed
        reach = torch.cat([cumulative[1:], torch.ones_like(cumulative[:1])])
        within = torch.exp(scores - scores.amax(0)) * functional.threshold(reach, _BELOW_THRESHOLD, 0.0)
        return within / within.sum(0).clamp(min=1e-12)


class _Composer:
    """The candidates of some slots, from their memory."""

    def __init__(self, weights: OrderedMemoryWeights, dropouts: Dropouts) -> None:
        self.weights, self.rate = weights.cell, dropouts.cell
        first = weights.cell[0]
        size = first.weight.shape[1] // 2
        self.of_vertical = first.weight[:, :size].t()
        self.of_horizontal = Affine(first.weight[:, size:], first.bias)

    def __call__(self, new: torch.Tensor, memory: torch.Tensor, cumulative: torch.Tensor) -> list[torch.Tensor]:
        """``C``, from the first of these slots to the last, each ``[sequences, hidden_size]``.

        Args:
            new: ``x``, ``[sequences, hidden_size]``.
            memory: ``M``, ``[composed, sequences, hidden_size]``.
            cumulative: ``cp``, ``[composed, sequences]``.
        """
        if not len(memory):
            return []
        from_memory = functional.linear(dropped(memory, self.rate), *self.of_horizontal)
        state, states = new, []
        for product, horizontal, share in zip(
            from_memory.unbind(), memory.unbind(), cumulative[:, :, None].unbind(), strict=True
        ):
            first = torch.addmm(product, dropped(state, self.rate), self.of_vertical)
            state = torch.lerp(new, self._second(first, state, horizontal), share)
            states.append(state)
        return states

    def _second(self, first: torch.Tensor, vertical: torch.Tensor, horizontal: torch.Tensor) -> torch.Tensor:
        """The cell, from the product with ``[vertical; horizontal]`` on."""
        if not isinstance(self.weights, GatedCellWeights):
            return torch.tanh(first.to(vertical.dtype))
        size = vertical.shape[1]
        second = linear(dropped(first.relu_(), self.rate), self.weights.gates)
        gates, candidate = second.split([3 * size, size], 1)
        of_vertical, of_horizontal, of_candidate = gates.sigmoid().chunk(3, 1)
        mixed = torch.addcmul(of_vertical * vertical, of_horizontal, horizontal)
        return layer_norm(torch.addcmul(mixed, of_candidate, candidate), self.weights.norm)
