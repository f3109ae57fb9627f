"""Trees found with a beam over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import linear
from treemem.engines.choices import Noise
from treemem.engines.sequence_engine import SequenceEngine, checked_engine
from treemem.engines.sequence_lengths import LongestFirst, within
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.gated_cell.levels import gated_levels
from treemem.networks.parsers.beam_tree.cuda import cuda_search
from treemem.networks.parsers.beam_tree.equations import Beam, BeamTreeWeights, ChildrenScore, naive_beams
from treemem.networks.parsers.beam_tree.needed import every_node, needed
from treemem.networks.parsers.beam_tree.search import Beams, Search, SearchStep, search
from treemem.networks.parsers.beam_tree.soft import soft_search
from treemem.networks.parsers.pair_by_pair import joining_steps


class BeamTrees(NamedTuple):
    """What the beams say of each sequence.

    Attributes:
        encoding: the mean of the roots, weighted by the probabilities of the beams, ``[sequences, hidden_size]``; 0 for
            an empty sequence.
        joined: in the likeliest tree, the step, from 1, that joins the constituent that begins at a token with the
            constituent on its left; ``[sequences, longest]``, 0 at the first token and at padding, NaN if the
            probabilities are not finite. None unless it was asked for.
    """

    encoding: torch.Tensor
    joined: torch.Tensor | None


def beam_trees(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    soft: bool = False,
    noise: Noise | None = None,
    dropout: float = 0.0,
    engine: SequenceEngine = "auto",
    trace: bool = False,
) -> BeamTrees:
    """Search for the trees of sequences, each as if it were alone.

    Args:
        leaves: ``[sequences, longest, hidden_size]``, of the type of the weights; on the right of each sequence padding
            of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of cell and score.
        beam_size: number of beams.
        soft: whether the last beam is a mean of the rest (OneSoft); not with a score of the children.
        noise: of both choices; of a soft beam's, of the first one.
        dropout: of the hidden layer of the cell.
        engine: ``"fused"`` (``"auto"``) or ``"naive"``. They give the same results, but other dropout and noise.
        trace: whether to return ``joined``. With ``soft`` it comes from a search of its own, without a soft beam.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_engine("engine", engine)
    refuse_transforms_unless_naive(engine)
    if engine == "naive":
        return _naive(leaves, lengths, weights, beam_size, soft=soft, noise=noise, dropout=dropout, trace=trace)
    order = LongestFirst(lengths, leaves.device)
    if not order.sizes:
        return BeamTrees(
            leaves.new_zeros(len(lengths), leaves.shape[2]), leaves.new_zeros(leaves.shape[:2]) if trace else None
        )
    sorted_leaves = order.of(leaves)
    arguments = sorted_leaves[:, None], order.lengths_there, order.sizes, weights, beam_size
    if soft:
        roots, totals = soft_search(sorted_leaves, order.lengths, *arguments[2:], noise=noise, dropout=dropout)
    else:
        beams = last_beams(sorted_leaves[:, None], order, weights, beam_size, noise=noise, dropout=dropout)
        roots, totals = beams.roots, beams.totals
    encoding = (totals.softmax(1)[:, :, None] * roots).sum(1)
    joined = None
    if trace:
        if soft:
            found = _search(*arguments, noise=None, dropout=0.0)
            steps, totals = found.steps, found.totals
        else:
            steps = beams.steps
        joined = order.back(_joined(steps, totals.detach(), order), leaves.shape[1])
    return BeamTrees(order.back(encoding), joined)


def last_beams(
    leaves: torch.Tensor,
    order: LongestFirst,
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    noise: Noise | None,
    dropout: float,
    starts: torch.Tensor | None = None,
) -> Beams:
    """Return the last beams of sequences, with gradients where they are needed.

    What has gradients is computed again: on a CPU only what the last beams depend on, on other devices, where the host
    does not know what that is, all nodes.

    Args:
        leaves, weights, beam_size, noise, dropout, starts: see ``search``.
        order: of the sequences.
    """
    tensors = [leaves, *weights.cell.hidden, *weights.cell.gates, *weights.cell.norm, *_of_score(weights)]
    tensors += [] if starts is None else [starts]
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    arguments = leaves, order.lengths_there, order.sizes, weights, beam_size
    of_search = None if starts is None else starts.detach()
    result = _search(*arguments, noise=noise, dropout=dropout, starts=of_search)
    if not learns:
        return Beams(result.states[result.roots], result.totals, result.steps)
    return Beams(*_again(result, leaves, order, weights, starts), result.steps)


def _search(*arguments: Any, **options: Any) -> Search:
    """Return what ``search`` does, in kernels where they can be used."""
    return cuda_search(*arguments, **options) or search(*arguments, **options)


def _again(
    result: Search, leaves: torch.Tensor, order: LongestFirst, weights: BeamTreeWeights, starts: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute roots and totals of the last beams again, with gradients; see `Beams`."""
    num_starts, by_children = leaves.shape[1], isinstance(weights.score, ChildrenScore)
    if leaves.device.type == "cpu":
        plan = needed(result, order.lengths, num_starts, by_children)
    else:
        plan = every_node(result, order, num_starts, by_children)
    keep = None if result.keep is None else result.keep.index_select(0, plan.compositions)
    states = gated_levels(leaves.flatten(0, 2).index_select(0, plan.leaves), plan.schedule, weights.cell, keep)
    if isinstance(weights.score, ChildrenScore):
        scores = weights.score.of(states.index_select(0, plan.pairs.flatten()).unflatten(0, (-1, 2)))
    else:
        scores = linear(states.index_select(0, plan.composed), weights.score).squeeze(1)
    absent = scores.new_full((1,), -torch.inf)
    grouped = torch.cat([scores, absent])[plan.groups]  # -1 is the absent one
    chosen = functional.pad(grouped.log_softmax(1).flatten(), (0, 1))[plan.lineage].sum(1)
    total = chosen if starts is None else chosen + starts.flatten().index_select(0, plan.origins)
    return states[plan.roots], torch.cat([total, absent])[plan.beams]


def _of_score(weights: BeamTreeWeights) -> tuple[torch.Tensor, ...]:
    score = weights.score
    return (*score.hidden, *score.score) if isinstance(score, ChildrenScore) else tuple(score)


def places_of(steps: list[SearchStep], beams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which pairs led to last beams, and which first beams they come from.

    Args:
        steps: the choices.
        beams: which of the last beams, int64 ``[sequences, beams]``.

    Returns:
        int64 ``[sequences, beams, longest - 1]``, 0 after the last pair, and int64 ``[sequences, beams]``.
    """
    beams, longest = beams.clone(), len(steps) + 1
    places = torch.zeros(*beams.shape, longest - 1, dtype=torch.int64, device=beams.device)
    for number in range(longest - 2, -1, -1):
        step = steps[number]
        active = len(step.parent)
        beam = beams[:active].clamp(max=step.parent.shape[1] - 1)
        places[:active, :, number] = step.place.gather(1, beam)
        beams[:active] = step.parent.gather(1, beam)
    return places, beams


def _joined(steps: list[SearchStep], totals: torch.Tensor, order: LongestFirst) -> torch.Tensor:
    """Return ``joined`` of the likeliest tree of each sequence."""
    longest = len(steps) + 1
    total, best = totals.max(1, keepdim=True)
    places = places_of(steps, best)[0][:, 0]
    failed = ~total.isfinite()
    joined = joining_steps(places.masked_fill(failed, 0), order.lengths_there).to(total.dtype)
    return joined.masked_fill(within(order.lengths_there, longest) & failed, torch.nan)


def _naive(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    soft: bool,
    noise: Noise | None,
    dropout: float,
    trace: bool,
) -> BeamTrees:
    encodings = [leaves.new_zeros(0, leaves.shape[2])]
    joined = leaves.new_zeros(leaves.shape[:2])
    for sequence, length in enumerate(lengths.tolist()):
        if not length:
            encodings.append(leaves.new_zeros(1, leaves.shape[2]))
            continue
        tokens = leaves[sequence, :length]
        first = [Beam(tokens, tokens.new_zeros(()), [], list(range(length)))]
        beams = naive_beams(first, weights, beam_size, soft=soft, noise=noise, dropout=dropout)
        probability = torch.stack([beam.total for beam in beams]).softmax(0)
        encodings.append(probability[None] @ torch.cat([beam.nodes for beam in beams]))
        if trace:
            if soft:
                beams = naive_beams(first, weights, beam_size, soft=False, noise=None, dropout=0.0)
            best = max(beams, key=lambda beam: float(beam.total.detach()))
            joined[sequence, best.joins] = torch.arange(1, length, device=leaves.device).to(leaves.dtype)
            joined[sequence, :length].masked_fill_(~best.total.isfinite(), torch.nan)
    return BeamTrees(torch.cat(encodings), joined if trace else None)
