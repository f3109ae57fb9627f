"""The search for trees with a beam on CUDA: a kernel makes the choices of a step, another takes that of the cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import linear
from treemem.engines.choices import ROUNDING, Noise
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import WIDEST, block_of, power_of_2
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore
from treemem.networks.parsers.beam_tree.search import Lineage, Search, SearchStep, counts, keep_ended

_CELL = RowStep(gated_of_two)
_NUMBERS = 8192  # of a block of all beams of a sequence


@torch.no_grad()
def cuda_search(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    noise: Noise | None,
    dropout: float,
    starts: torch.Tensor | None = None,
) -> Search | None:
    """Return what ``search`` does, or None if kernels cannot be used. The order of its beams does not depend on the
    batch."""
    tensors = [leaves, *weights.cell.hidden, *weights.cell.gates, *weights.cell.norm]
    longest, size = leaves.shape[2:]
    beams = power_of_2(beam_size)
    fits = beams * max(beams, power_of_2(longest), block_of(size)) <= _NUMBERS and size <= WIDEST
    if longest < 2 or not fits or not runs_kernels(tensors):
        return None
    return _Search(leaves, lengths, sizes, weights, beam_size, noise, dropout, starts).run()


class _Step(NamedTuple):
    """Numbers of a step: sequences, beams, proposals of a beam, new beams."""

    active: int
    beams: int
    picks: int
    new_beams: int


class _Search:
    """Memory of a search; see ``kernels.py``."""

    def __init__(
        self,
        leaves: torch.Tensor,
        lengths: torch.Tensor,
        sizes: list[int],
        weights: BeamTreeWeights,
        beam_size: int,
        noise: Noise | None,
        dropout: float,
        starts: torch.Tensor | None,
    ) -> None:
        self._weights, self._lengths, self._sizes, self._most = weights, lengths, sizes, beam_size
        self._leaves = leaves.contiguous()
        self._sequences, self._num_starts, self._longest, size = leaves.shape
        self._width, self._num_leaves = self._longest - 1, self._leaves[..., 0].numel()
        self._by_children = isinstance(weights.score, ChildrenScore)
        self._plan: list[_Step] = []
        beams = self._num_starts
        for num_pairs, active in zip(range(self._width, 0, -1), sizes[1:], strict=True):
            picks = min(beam_size, num_pairs)
            self._plan.append(_Step(active, beams, picks, min(beam_size, beams * picks)))
            beams = self._plan[-1].new_beams
        num_chosen, num_pairs = counts(sizes, self._num_starts, beam_size)
        compositions = num_chosen if self._by_children else num_pairs
        new = lengths.new_empty
        self._states = leaves.new_empty(self._num_leaves + compositions, size)
        self._states[: self._num_leaves] = self._leaves.flatten(0, 2)
        self._children = new(compositions, 2)
        self._pairs = new(num_pairs, 2) if self._by_children else self._children
        self._inputs, self._scores = leaves.new_empty(compositions, 2 * size), leaves.new_empty(num_pairs)
        self._keep = None
        if dropout:
            self._keep = functional.dropout(leaves.new_ones(compositions, len(weights.cell.hidden.bias)), dropout)
        groups = sum(step.active * step.beams for step in self._plan)
        self._groups = new(groups, self._width)
        of_beams = self._sequences, self._most
        beam = torch.arange(self._most, device=leaves.device).expand(of_beams)
        nodes = torch.arange(self._num_leaves, device=leaves.device).view(self._leaves.shape[:3])
        self._nodes, self._lineage = new(2, *of_beams, self._longest), new(2, *of_beams, self._width)
        self._totals, self._origins = leaves.new_zeros(2, *of_beams), new(2, *of_beams)
        self._nodes[0, :, : self._num_starts], self._origins[0] = nodes, beam
        self._roots = nodes[:, 0, :1].repeat(1, self._most)
        self._last_totals = leaves.new_full(of_beams, -torch.inf)
        self._last_lineage = self._lengths.new_full((*of_beams, self._width), groups * self._width)
        self._last_origins = beam.clamp(max=self._num_starts - 1).clone()
        if starts is not None:
            self._totals[0, :, : self._num_starts] = starts
        if sizes[1] < self._sequences:
            keep_ended(self._roots, self._last_totals, nodes, self._totals[0, :, : self._num_starts], sizes[1])
        self._noises = self._drawn(noise)
        self._begin(nodes)

    def _drawn(self, noise: Noise | None) -> list[torch.Tensor | None]:
        """Noise of the pairs and of the candidates of each step, in turn."""
        sizes: list[int] = []
        for number, step in enumerate(self._plan):
            num_pairs, candidates = self._width - number, step.beams * step.picks
            sizes.append(step.active * step.beams * num_pairs if num_pairs > 1 else 0)
            sizes.append(step.active * candidates if candidates > self._most else 0)
        if noise is None:
            return [None] * len(sizes)
        drawn = noise((sum(sizes),)).split(sizes)
        return [part if size else None for part, size in zip(drawn, sizes, strict=True)]

    def _begin(self, nodes: torch.Tensor) -> None:
        """Score the pairs of leaves."""
        pair = torch.arange(self._num_leaves - self._num_leaves // self._longest, device=nodes.device)
        self._pairs[: len(pair)] = torch.stack([nodes[..., :-1], nodes[..., 1:]], -1).flatten(0, -2)
        active = self._sizes[1]
        absent = torch.arange(self._width, device=nodes.device) >= self._lengths[:active, None] - 1
        of_beams = pair.view(*nodes.shape[:2], self._width)[:active].masked_fill(absent[:, None], -1)
        self._groups[: active * self._num_starts] = of_beams.flatten(0, 1)
        left, right = self._leaves[:, :, :-1], self._leaves[:, :, 1:]
        if isinstance(self._weights.score, ChildrenScore):
            self._scores[: len(pair)] = self._weights.score.of(torch.stack([left, right], -2)).flatten()
        else:
            self._inputs[: len(pair)] = torch.cat([left, right], -1).flatten(0, -2)
            self._compose(0, len(pair), None)

    def run(self) -> Search:
        """Take all steps."""
        steps: list[SearchStep] = []
        first_group = 0
        first_pair = self._num_leaves - self._num_leaves // self._longest
        composed = 0 if self._by_children else first_pair
        new_beams = [step.active * step.new_beams for step in self._plan]
        parents, places = (self._lengths.new_empty(sum(new_beams)).split(new_beams) for _ in range(2))
        for number, step in enumerate(self._plan):
            num_pairs, next_group = self._width - number, first_group + step.active * step.beams
            going_on = self._sizes[number + 2] if num_pairs > 1 else 0
            first_node = self._num_leaves + composed
            numbers = number, *step[1:], going_on, first_group, next_group, first_node, first_pair
            self._choose(number, numbers, (parents[number], places[number]), step.active)
            pairs = self._groups[first_group:next_group].view(step.active, step.beams, -1)[..., :num_pairs]
            shape = step.active, step.new_beams
            steps.append(SearchStep(pairs, parents[number].view(shape), places[number].view(shape), first_node))
            count = new_beams[number] if self._by_children else 2 * new_beams[number] * (num_pairs > 1)
            self._compose(composed, count, first_pair if self._by_children and num_pairs > 1 else None)
            composed, first_group = composed + count, next_group
            first_pair += 2 * new_beams[number] * (num_pairs > 1)
        sequence = torch.arange(self._sequences, device=self._roots.device)[:, None]
        origins = (sequence * self._num_starts + self._last_origins).flatten()
        lineage = Lineage(self._groups, self._last_lineage.flatten(0, 1), origins)
        found = self._states, self._children, self._pairs, self._keep
        return Search(*found, steps, self._roots, self._last_totals, lineage)

    def _choose(self, number: int, numbers: tuple[int, ...], chosen: tuple[torch.Tensor, ...], active: int) -> None:
        from treemem.networks.parsers.beam_tree.kernels import choose

        here, after = number % 2, (number + 1) % 2
        of_beams = self._nodes[here], self._nodes[after], self._groups, self._scores
        noises = self._noises[2 * number : 2 * number + 2]
        totals = self._totals[here], self._totals[after], *noises
        memory = self._children, self._pairs, self._states, self._inputs
        history = self._lineage[here], self._lineage[after], self._origins[here], self._origins[after]
        last = self._roots, self._last_totals, self._last_lineage, self._last_origins
        arguments = *numbers, self._num_leaves, self._longest, self._lengths, *of_beams, *totals, *chosen
        size, dtype = self._states.shape[1], self._states.dtype
        known = choice_constants(size, self._longest, self._most, self._by_children, dtype)
        launcher().launch(choose, (active,), *arguments, *memory, *history, *last, **known)

    def _compose(self, first: int, count: int, first_pair: int | None) -> None:
        """Compute states of compositions, and the scores of their pairs from ``first_pair`` on, if there are any."""
        from treemem.networks.parsers.beam_tree.kernels import compose

        if not count:
            return
        cell, score, size = self._weights.cell, self._weights.score, self._states.shape[1]
        part = slice(first, first + count)
        hidden = functional.gelu(linear(self._inputs[part], cell.hidden))
        gates = linear(hidden if self._keep is None else hidden * self._keep[part], cell.gates)
        read = 0
        scored: Any = None
        weight_and_bias: Any = (None, None)
        if not isinstance(score, ChildrenScore):
            weight_and_bias = score.weight, score.bias
        elif first_pair is not None:
            read = score.hidden.weight.shape[1] // 2
            scored = gates.new_empty(2 * count, 2, read)
        memory = gates, self._children, self._states, *cell.norm, self._pairs, scored, *weight_and_bias, self._scores
        known = composition_constants(size, read)
        launcher().launch(compose, (count,), first, first_pair or 0, self._num_leaves, *memory, **known)
        if isinstance(score, ChildrenScore) and first_pair is not None:
            self._scores[first_pair : first_pair + 2 * count] = score.of(scored)


def choice_constants(size: int, longest: int, beams: int, by_children: bool, dtype: torch.dtype) -> dict[str, Any]:
    """Return what is known when the kernel of choices is compiled."""
    blocks = {"BEAMS": power_of_2(beams), "LONGEST": power_of_2(longest), "H": size, "BLOCK": block_of(size)}
    rounding = ROUNDING * torch.finfo(dtype).eps
    return {"BY_CHILDREN": by_children, "MOST": beams, "ROUNDING": rounding, **blocks, "maxnreg": 255}


def composition_constants(size: int, scored: int) -> dict[str, Any]:
    """Return what is known when the kernel of compositions is compiled; scores read ``scored`` entries of a child."""
    return {"H": size, "BLOCK": block_of(size), "SCORED": scored, "STEP": _CELL.step}
