"""Parser and composition over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice
from treemem.device_copy import to_device
from treemem.ops.affine import Affine
from treemem.ops.choices import Noise
from treemem.ops.disjoint_tree_lstm.levels import compose_levels
from treemem.ops.disjoint_tree_lstm.naive import naive_composition, naive_parse
from treemem.ops.disjoint_tree_lstm.plan import TreePlan
from treemem.ops.disjoint_tree_lstm.weights import ParserWeights, compose
from treemem.ops.native_pairs import native_pairs
from treemem.ops.pair_by_pair import PairMemory, choose_pairs, count_pairs

DisjointTreeEngine = Literal["auto", "fused", "naive"]


class Choices(NamedTuple):
    """The steps of the parser, each ``[sequences, longest - 1]`` and 0 where there is no step.

    Attributes:
        log_probability: of the pair that was chosen.
        entropy: of the distribution over the pairs.
    """

    log_probability: torch.Tensor
    entropy: torch.Tensor


def choose_trees(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: ParserWeights,
    *,
    noise: Noise | None = None,
    engine: DisjointTreeEngine = "auto",
) -> torch.Tensor:
    """Return the places of the pairs that the parser chooses, int64 ``[sequences, longest - 1]``.

    Choices have no gradients. A place counts the pairs of a step from 0; after the last step it is 0.

    Args:
        leaves: of the parser, ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``, on the right of each sequence
            padding of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of the parser.
        noise: is added to the scores: Gumbel noise gives a sample. Of a step and the sequences that still have a pair.
        engine: ``"fused"`` (``"auto"``) or ``"naive"``. They give the same results, but draw other noise.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_choice("engine", engine, get_args(DisjointTreeEngine))
    sequences, longest, width = leaves.shape
    places = torch.zeros(sequences, max(longest - 1, 0), dtype=torch.int64, device=leaves.device)
    order = lengths.argsort(descending=True, stable=True)[: int((lengths > 1).sum())]
    if not len(order):
        return places
    own = lengths[order]
    most = int(own[0])
    order_there, own_there = (to_device(each, leaves.device) for each in (order, own))
    with torch.no_grad():
        if engine == "naive":
            chosen = torch.zeros(len(own), most - 1, dtype=torch.int64)
            for number, (row, length) in enumerate(zip(order.tolist(), own.tolist(), strict=True)):
                chosen[number, : length - 1] = torch.tensor(naive_parse(leaves[row, :length], weights, noise)[0])
            found = to_device(chosen, leaves.device)
        else:
            sizes = (own[:, None] > torch.arange(most)).sum(0).tolist()
            there = torch.arange(most, device=leaves.device) < own_there[:, None]
            own_leaves = leaves.index_select(0, order_there)[:, :most].masked_fill(~there[:, :, None], 0)
            given = own_leaves, own_there, sizes, weights.cell, weights.query
            native = native_pairs(*given, temperature=None, noise=noise, bounded=True)
            if native is not None:
                found = native.tensors.places
            else:
                flat = own_leaves.reshape(len(own) * most, width)
                cell = partial(compose, cell=weights.cell)
                memory = PairMemory(flat, count_pairs(sizes), cell, weights.query)
                found = choose_pairs(memory, own_there, sizes, None, noise).places
    return places.index_copy(0, order_there, functional.pad(found, (0, longest - most)))


def choices_of(
    leaves: torch.Tensor, plan: TreePlan, weights: ParserWeights, *, engine: DisjointTreeEngine = "auto"
) -> Choices:
    """Return the log probabilities of the choices that make given trees, with gradients.

    Args:
        leaves, weights, engine: see :func:`choose_trees`.
        plan: the trees.
    """
    checked_choice("engine", engine, get_args(DisjointTreeEngine))
    sequences, steps = plan.places.shape
    if not steps:
        return Choices(*leaves.new_zeros(2, sequences, 0))
    if engine == "naive":
        rows = zip(leaves, plan.lengths.tolist(), plan.places_on_cpu.tolist(), strict=True)
        alone = [
            naive_parse(own[:length], weights, given=places)[1:] if length else (own.new_zeros(0),) * 2
            for own, length, places in rows
        ]
        padded = [torch.stack([_padded(each[part], steps) for each in alone]) for part in (0, 1)] if alone else []
        return Choices(*padded) if padded else Choices(*leaves.new_zeros(2, sequences, steps))
    flat = leaves.reshape(-1, leaves.shape[2])
    hidden = compose_levels(flat, plan.pairs, weights.cell)["h"]
    scores = functional.pad(hidden @ weights.query, (0, 1), value=-torch.inf)
    log_probability = scores[plan.candidates].log_softmax(1)
    chosen = log_probability.gather(1, plan.places.take(plan.choices)[:, None]).squeeze(1)
    log_probability = log_probability.masked_fill(plan.candidates == len(hidden), 0)
    entropy = -(log_probability.exp() * log_probability).sum(1)
    nothing = leaves.new_zeros(sequences * steps)
    return Choices(*(nothing.index_copy(0, plan.choices, each).view(sequences, steps) for each in (chosen, entropy)))


def compose_trees(
    leaves: torch.Tensor, plan: TreePlan, cell: Affine, *, engine: DisjointTreeEngine = "auto"
) -> torch.Tensor:
    """Return the roots ``[h; c]`` of given trees, ``[sequences, 2 * hidden_size]``; 0 for an empty sequence.

    Args:
        leaves: of the composition, ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``.
        plan: the trees.
        cell: of the composition.
        engine: see :func:`choose_trees`.
    """
    checked_choice("engine", engine, get_args(DisjointTreeEngine))
    if not leaves.shape[0] or not leaves.shape[1]:
        return leaves.new_zeros(leaves.shape[0], leaves.shape[2])
    if engine == "naive":
        rows = zip(leaves, plan.lengths.tolist(), plan.places_on_cpu.tolist(), strict=True)
        roots = torch.stack(
            [naive_composition(own, cell, places[: max(length - 1, 0)]) for own, length, places in rows]
        )
    else:
        states = compose_levels(leaves.reshape(-1, leaves.shape[2]), plan.trees, cell)
        roots = torch.cat([states[name].index_select(0, plan.trees.row_of_root) for name in ("h", "c")], 1)
    is_empty = to_device(plan.lengths == 0, leaves.device)
    return roots.masked_fill(is_empty[:, None], 0)


def _padded(values: torch.Tensor, steps: int) -> torch.Tensor:
    return functional.pad(values, (0, steps - len(values)))
