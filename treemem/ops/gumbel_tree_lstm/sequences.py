"""The Gumbel Tree-LSTM over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.device_copy import to_device
from treemem.ops.choices import Noise
from treemem.ops.gumbel_tree_lstm.fused import Problem, fused_trees
from treemem.ops.gumbel_tree_lstm.naive import naive_tree
from treemem.ops.gumbel_tree_lstm.weights import GumbelTreeWeights
from treemem.ops.pair_by_pair import joining_steps, joins_of
from treemem.ops.second_derivative import refuse_transforms_unless_naive

GumbelTreeEngine = Literal["auto", "fused", "naive"]


class GumbelTrees(NamedTuple):
    """The tree of each sequence.

    Attributes:
        roots: ``[h; c]``, ``[sequences, 2 * hidden_size]``; 0 for an empty sequence.
        compositions: ``[h; c]`` of the inner nodes in the order in which they were composed,
            ``[sequences, longest - 1, 2 * hidden_size]``; 0 after the last one.
        joined: the step, from 1, that joins the constituent that begins at a token with the constituent on its left;
            ``[sequences, longest]``, 0 at the first token and at padding, NaN if the root is not finite. None unless it
            was asked for.
    """

    roots: torch.Tensor
    compositions: torch.Tensor
    joined: torch.Tensor | None


def gumbel_trees(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: GumbelTreeWeights,
    *,
    temperature: float | None = None,
    noise: Noise | None = None,
    engine: GumbelTreeEngine = "auto",
    trace: bool = False,
) -> GumbelTrees:
    """Compose sequences, each as if it were alone.

    Args:
        leaves: ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``, on the right of each sequence padding of any
            content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of cell and score.
        temperature: of the softmax through which choices have gradients; None: they have none.
        noise: of the choices, which is added to the scores; of a step and the sequences that still have a pair.
        engine: ``"fused"`` (``"auto"``) or ``"naive"``. They give the same results, but other noise.
        trace: whether to return ``joined``.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_choice("engine", engine, get_args(GumbelTreeEngine))
    refuse_transforms_unless_naive(engine)
    order = lengths.argsort(descending=True, stable=True)[: int((lengths > 0).sum())]
    sequences, longest, width = leaves.shape
    roots = leaves.new_zeros(sequences, width)
    compositions = leaves.new_zeros(sequences, max(longest - 1, 0), width)
    if not len(order):
        return GumbelTrees(roots, compositions, leaves.new_zeros(sequences, longest) if trace else None)
    own = lengths[order]
    most = int(own[0])
    order_there, own_there = (to_device(each, leaves.device) for each in (order, own))
    if engine == "naive":
        every = [
            naive_tree(leaves[row, :length], weights, temperature, noise)
            for row, length in zip(order.tolist(), own.tolist(), strict=True)
        ]
        of_trees = torch.stack([root for root, _, _ in every])
        inner = torch.nn.utils.rnn.pad_sequence([nodes for _, nodes, _ in every], batch_first=True)
        places = None
        joins = [each for _, _, each in every]
    else:
        sizes = (own[:, None] > torch.arange(most)).sum(0).tolist()
        there = torch.arange(most, device=leaves.device) < own_there[:, None]
        sorted_leaves = leaves.index_select(0, order_there)[:, :most].masked_fill(~there[:, :, None], 0)
        problem = Problem(own_there, sizes, weights.scale, temperature, noise)
        of_trees, inner, places = fused_trees(sorted_leaves, weights, problem)
    roots = roots.index_copy(0, order_there, of_trees)
    if most > 1:
        inner = torch.nn.functional.pad(inner, (0, 0, 0, longest - most))
        compositions = compositions.index_copy(0, order_there, inner)
    if not trace:
        return GumbelTrees(roots, compositions, None)
    if places is not None:
        joins = joins_of(places, own)
    joined = to_device(joining_steps(joins, order, (sequences, longest)).to(leaves.dtype), leaves.device)
    finite = roots.detach().isfinite().all(1)[:, None]
    return GumbelTrees(roots, compositions, joined.masked_fill(~finite, torch.nan))
