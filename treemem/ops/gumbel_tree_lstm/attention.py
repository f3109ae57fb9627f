"""Attention to all nodes of a tree, with their mean as the query."""

from __future__ import annotations

import torch


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
    own = torch.arange(leaves.shape[1], device=leaves.device) < lengths[:, None]
    present = torch.cat([own, own[:, 1:]], 1)
    nodes = torch.cat([leaves, compositions], 1).masked_fill(~present[:, :, None], 0)
    if count is None:
        count = present.sum(1).clamp(min=1)
    mean = nodes.sum(1) / count[:, None]
    scores = torch.einsum("snd,sd->sn", nodes, mean).masked_fill(~present, -torch.inf)
    weight = scores.masked_fill(~present.any(1, keepdim=True), 0).softmax(1)
    return torch.einsum("sn,snd->sd", weight, nodes)
