"""The Ordered Memory over packed sequences, with few calls a step."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.ops.affine import Affine, layer_norm, linear
from treemem.ops.gated_recursive import GatedCellWeights
from treemem.ops.ordered_memory.dropout import dropped_by_bits
from treemem.ops.ordered_memory.weights import THRESHOLD, Dropouts, OrderedMemoryWeights

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
    skip: float = 0.0,
) -> PackedSteps:
    """The equations of :func:`treemem.ops.ordered_memory.naive.naive_steps`, arranged for speed.

    Inputs, queries, and the scores of slots that hold nothing but the last element, are computed for all steps at once;
    keys, and the half of the cell's first product that reads the memory, for all slots of a step. Sequences that have
    ended are no longer there. Slots whose ``cp`` is 0 in a sequence are not composed: their candidate is the element.
    Other devices than the CPU compose all slots that this many elements may have reached, because looking would wait.

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending, none 0.
        begins_empty: bool ``[sequences]``: which attend with their first element to an empty last slot.
        weights: of all maps.
        slots: how many there are.
        dropouts: draws anew at each step and slot.
        trace: whether to return pointers.
        skip: slots with a smaller ``cp`` are not composed either.
    """
    projected = layer_norm(linear(inputs, weights.input), weights.input_norm)
    attention = _Attention(weights, dropouts, projected, sizes)
    composer = _Composer(weights, dropouts)
    pointers = projected.new_zeros(slots, sizes[0])
    pointers[-1] = begins_empty
    cumulative = pointers
    memory = candidates = projected.new_zeros(slots, sizes[0], projected.shape[1])
    chosen: ChosenSlots | LastSlots | None = None
    composed = None
    outputs, places, traced, done = [], [], [], 0
    for step, (new, size) in enumerate(zip(projected.split(sizes), sizes, strict=True)):
        if chosen is not None and composed is not None:
            pointers = attention(step, cumulative, composed, chosen)
            cumulative = pointers.cumsum(0)
            onward = cumulative[-1] - cumulative + pointers
            memory = torch.lerp(memory[:, :size], candidates[:, :size], onward[:, :, None])
        if projected.device.type == "cpu":
            chosen, shares = choose(cumulative, skip), cumulative
        else:
            chosen, shares = LastSlots.after(step + 1, cumulative), _without_skipped(cumulative, skip)
        composed = composer(new, memory, shares, chosen)
        candidates = chosen.spread(composed, new.expand(slots, *new.shape))
        outputs.append(composed[-size:])
        places.append(chosen.order + done)
        done += size
        if trace:
            traced.append((pointers, cumulative))
    in_order = torch.empty_like(place := torch.cat(places))
    in_order[place] = torch.arange(done, device=place.device)
    return PackedSteps(
        torch.cat(outputs).index_select(0, in_order),
        torch.cat([pointers for pointers, _ in traced], 1).t() if trace else None,
        torch.cat([cumulative for _, cumulative in traced], 1).t() if trace else None,
    )


class Hoisted(NamedTuple):
    """What the attention computes for all steps at once, from the second step on.

    Attributes:
        score: the map of the scores, divided by the root of ``hidden_size``.
        queries: ``[tokens - sizes[0], hidden_size]``.
        untouched: scores of slots that hold nothing but the element before, ``[tokens - sizes[0]]``.
    """

    score: Affine
    queries: torch.Tensor
    untouched: torch.Tensor


def hoisted(weights: OrderedMemoryWeights, dropouts: Dropouts, projected: torch.Tensor, sizes: list[int]) -> Hoisted:
    """Return queries and scores of the elements ``[tokens, hidden_size]`` of steps of these sizes."""
    scale = 1 / math.sqrt(projected.shape[1])
    score = Affine(weights.score.weight * scale, weights.score.bias * scale)
    queries = linear(dropped_by_bits(projected[sizes[0] :], dropouts.memory), weights.query)
    queries = layer_norm(queries, weights.query_norm)
    before = [part[:size] for part, size in zip(projected.split(sizes), [*sizes[1:], 0], strict=True)]
    return Hoisted(score, queries, scores_of(queries, torch.cat(before), weights, score, dropouts.memory))


def scores_of(
    queries: torch.Tensor, candidates: torch.Tensor, weights: OrderedMemoryWeights, score: Affine, rate: float
) -> torch.Tensor:
    """Return scores, ``[count]``, of candidates and their queries, each ``[count, hidden_size]``."""
    key = layer_norm(linear(dropped_by_bits(candidates, rate), weights.key), weights.key_norm)
    return linear(dropped_by_bits((key + queries).relu_(), rate), score).squeeze(1)


class ChosenSlots(NamedTuple):
    """Which slots of which sequences are composed: slot after slot, in each the first so many sequences of an order.

    Attributes:
        order: of the sequences, those with most slots first, int64 ``[sequences]``.
        sizes: how many sequences each slot has; ascending, all of them in the last slot.
        place: ``slot * sequences + sequence`` of each, int64 ``[composed]``.
        sequence: int64 ``[composed]``.
    """

    order: torch.Tensor
    sizes: list[int]
    place: torch.Tensor
    sequence: torch.Tensor

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The chosen ones of ``values [slots, sequences, ...]``, ``[composed, ...]``."""
        return values.flatten(0, 1).index_select(0, self.place)

    def spread(self, chosen: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """``others [slots, sequences, ...]`` with the chosen ones, ``[composed, ...]``, in their places."""
        return others.flatten(0, 1).index_copy(0, self.place, chosen).view(others.shape)


def choose(cumulative: torch.Tensor, skip: float = 0.0) -> ChosenSlots:
    """The slots that something reaches, and the last one of each sequence; ``cumulative``, ``[slots, sequences]``."""
    slots, size = cumulative.shape
    reached = (cumulative.detach() > 0) & (cumulative.detach() >= skip)
    reached[-1] = True
    order = reached.sum(0).argsort(descending=True)
    reached = reached.index_select(1, order)
    first = torch.arange(0, slots * size, size, device=order.device)
    place = (order + first[:, None])[reached]
    return ChosenSlots(order, reached.sum(1).tolist(), place, place % size)


class LastSlots(NamedTuple):
    """The last slots of all sequences, as :class:`ChosenSlots`, without looking at any number.

    Attributes:
        order: of the sequences, int64 ``[sequences]``.
        sizes: how many sequences each slot has: 0 or all.
        sequence: int64 ``[composed]``.
        first: the first of the slots.
    """

    order: torch.Tensor
    sizes: list[int]
    sequence: torch.Tensor
    first: int

    @classmethod
    def after(cls, elements: int, cumulative: torch.Tensor) -> LastSlots:
        """The slots that so many elements may have reached, one more with each; ``cumulative [slots, sequences]``."""
        slots, size = cumulative.shape
        order, count = torch.arange(size, device=cumulative.device), min(slots, elements)
        return cls(order, [size] * count, order.repeat(count), slots - count)

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """See :class:`ChosenSlots`."""
        return values[self.first :].flatten(0, 1)

    def spread(self, chosen: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """See :class:`ChosenSlots`."""
        own = chosen.view(len(others) - self.first, *others.shape[1:])
        return torch.cat([others[: self.first], own]) if self.first else own


def _without_skipped(cumulative: torch.Tensor, skip: float) -> torch.Tensor:
    """``cumulative [slots, sequences]`` with 0, for the element alone, where a slot but the last is skipped."""
    if not skip:
        return cumulative
    return torch.cat([cumulative[:-1].masked_fill(cumulative[:-1] < skip, 0), cumulative[-1:]])


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
        self.weights, self.rate = weights, dropouts.memory
        self.score, queries, untouched = hoisted(weights, dropouts, projected, sizes)
        self.queries, self.untouched = queries.split(sizes[1:]), untouched.split(sizes[1:])

    def __call__(
        self, step: int, cumulative: torch.Tensor, composed: torch.Tensor, chosen: ChosenSlots | LastSlots
    ) -> torch.Tensor:
        """``p`` of a step, ``[slots, sequences]``.

        Args:
            step: its number, from 1.
            cumulative: ``cp`` of the step before, with the sequences that have ended since.
            composed, chosen: the candidates of the step before that are not just its element, and where they were.
        """
        (slots, before), queries, untouched = cumulative.shape, self.queries[step - 1], self.untouched[step - 1]
        size = len(queries)
        if size < before:  # those that have ended get any score
            queries = queries.index_select(0, chosen.sequence.clamp(max=size - 1))
            untouched = torch.cat([untouched, untouched.new_zeros(before - size)])
        else:
            queries = queries.index_select(0, chosen.sequence)
        own = scores_of(queries, composed, self.weights, self.score, self.rate)
        scores = chosen.spread(own, untouched.expand(slots, before))[:, :size]
        reach = torch.cat([cumulative[1:, :size], scores.new_ones(1, size)])
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

    def __call__(
        self, new: torch.Tensor, memory: torch.Tensor, cumulative: torch.Tensor, chosen: ChosenSlots | LastSlots
    ) -> torch.Tensor:
        """``C`` of the chosen slots, ``[composed, hidden_size]``.

        Args:
            new: ``x``, ``[sequences, hidden_size]``.
            memory: ``M``, ``[slots, sequences, hidden_size]``.
            cumulative: ``cp``, ``[slots, sequences]``.
            chosen: which slots.
        """
        held, shares = chosen.of(memory), chosen.of(cumulative)[:, None]
        from_memory = functional.linear(dropped_by_bits(held, self.rate), *self.of_horizontal)
        news = new.index_select(0, chosen.sequence)
        sizes = [size for size in chosen.sizes if size]
        state, states = news[:0], []
        for product, horizontal, share, own in zip(
            *(values.split(sizes) for values in (from_memory, held, shares, news)), strict=True
        ):
            if len(own) > len(state):  # sequences whose first slot this is
                state = torch.cat([state, own[len(state) :]])
            first = torch.addmm(product, dropped_by_bits(state, self.rate), self.of_vertical)
            state = torch.lerp(own, self._second(first, state, horizontal), share)
            states.append(state)
        return torch.cat(states)

    def _second(self, first: torch.Tensor, vertical: torch.Tensor, horizontal: torch.Tensor) -> torch.Tensor:
        """The cell, from the product with ``[vertical; horizontal]`` on."""
        if not isinstance(self.weights, GatedCellWeights):
            return torch.tanh(first.to(vertical.dtype))
        size = vertical.shape[1]
        second = linear(dropped_by_bits(first.relu_(), self.rate), self.weights.gates)
        gates, candidate = second.split([3 * size, size], 1)
        of_vertical, of_horizontal, of_candidate = gates.sigmoid().chunk(3, 1)
        mixed = torch.addcmul(of_vertical * vertical, of_horizontal, horizontal)
        return layer_norm(torch.addcmul(mixed, of_candidate, candidate), self.weights.norm)
