"""The Gumbel Tree-LSTM over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.choices import Noise
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import LongestFirst
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.parsers.gumbel_tree_lstm.cuda import cuda_trees
from treemem.networks.parsers.gumbel_tree_lstm.equations import GumbelTreeWeights, naive_trees
from treemem.networks.parsers.gumbel_tree_lstm.native import native_trees
from treemem.networks.parsers.pair_by_pair import joining_steps


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
    engine: SequenceEngine = "auto",
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
        engine: ``"fused"`` (``"auto"``), in C++ or in kernels for CUDA where they can be used, or ``"naive"``. They
            give the same results.
        trace: whether to return ``joined``.
    """
    refuse_transforms_unless_naive(engine)
    order = LongestFirst(lengths, leaves.device)
    sequences, longest, width = leaves.shape
    inner = max(longest - 1, 0)
    if not order.sizes:
        nothing = leaves.new_zeros(sequences, inner, width)
        return GumbelTrees(leaves.new_zeros(sequences, width), nothing, nothing.new_zeros(leaves.shape[:2]))
    given = order.of(leaves), order, weights, temperature, noise
    result = None
    if engine != "naive":
        query = weights.query / weights.scale
        result = cuda_trees(given[0], order, weights.cell, query, temperature, noise) or native_trees(*given)
    roots, compositions, places = naive_trees(*given) if result is None else result
    joined = None
    if trace:
        steps = joining_steps(places, order.lengths_there).to(leaves.dtype)
        joined = order.back(steps.masked_fill(~roots.detach().isfinite().all(1)[:, None], torch.nan), longest)
    return GumbelTrees(order.back(roots), order.back(compositions, inner), joined)


def attend_to_nodes(
    leaves: torch.Tensor, compositions: torch.Tensor, lengths: torch.Tensor, count: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``sum_i softmax_i(h_i . mean(h)) h_i`` over the nodes of each tree.

    Args:
        leaves: ``h``, ``[sequences, longest, hidden_size]``.
        compositions: ``h``, ``[sequences, longest - 1, hidden_size]``.
        lengths: int64 ``[sequences]``, where the nodes are.
        count: by what the sum of the nodes is divided for the mean, ``[sequences]``; None: by their number. The
            authors' code takes the number of nodes of the longest sequence.

    Returns:
        ``[sequences, hidden_size]``; 0 for an empty sequence.
    """
    is_token = torch.arange(leaves.shape[1], device=leaves.device) < lengths[:, None]
    present = torch.cat([is_token, is_token[:, 1:]], 1)
    nodes = torch.cat([leaves, compositions], 1).masked_fill(~present[:, :, None], 0)
    if count is None:
        count = present.sum(1).clamp(min=1)
    mean = nodes.sum(1) / count[:, None]
    scores = torch.einsum("snd,sd->sn", nodes, mean).masked_fill(~present, -torch.inf)
    weight = scores.masked_fill(~present.any(1, keepdim=True), 0).softmax(1)
    return torch.einsum("sn,snd->sd", weight, nodes)
