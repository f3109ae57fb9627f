"""A GRU as a plain loop over packed sequences: the readable definition that the fast one must equal."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.ops.attention import attend, dot_scores
from treemem.ops.sequence_lengths import within


class GRUWeights(NamedTuple):
    """What maps the input and the previous ``h`` to the preactivations, as in :class:`torch.nn.GRU`.

    Attributes:
        input_weight: blocks reset gate, update gate, candidate, ``[3 * hidden_size, input_size]``.
        hidden_weight: ``[3 * hidden_size, hidden_size]``.
        input_bias, hidden_bias: ``[3 * hidden_size]``.
    """

    input_weight: torch.Tensor
    hidden_weight: torch.Tensor
    input_bias: torch.Tensor
    hidden_bias: torch.Tensor


class Attention(NamedTuple):
    """Rows that the state attends to; what is read is part of the next input (Bahdanau et al. 2015).

    Attributes:
        rows: of each sequence, ``[sequences, most, size]``.
        lengths: how many rows each sequence has, int64 ``[sequences]`` on the device of the rows.
        query_weight, query_bias: of the linear map from ``h`` to the query, ``[size, hidden_size]`` and ``[size]``.
        read: what was read before the first step, ``[sequences, size]``.
    """

    rows: torch.Tensor
    lengths: torch.Tensor
    query_weight: torch.Tensor
    query_bias: torch.Tensor
    read: torch.Tensor


def naive_gru(
    inputs: torch.Tensor,
    sizes: list[int],
    hidden: torch.Tensor,
    weights: GRUWeights,
    attention: Attention | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run over packed sequences, longest first.

    ``r, z = sigmoid(W e + b + U h + c)``, ``n = tanh(W_n e + b_n + r * (U_n h + c_n))``, ``h = (1 - z) * n + z * h``
    (Cho et al. 2014, with the reset gate after the product, as in torch). With attention, ``e`` is the input followed
    by what was read at the step before, ``sum_i softmax(q . m_i) m_i`` with ``q = Q h + d`` (Luong et al. 2015).

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending.
        hidden: where each sequence begins, ``[sequences, hidden_size]``; those beyond the first size have no tokens.
        weights: see :class:`GRUWeights`; with attention the input weight has ``input_size + size`` columns.
        attention: see :class:`Attention`.

    Returns:
        ``h`` at every token, ``[tokens, hidden_size]``, and after the last token of each sequence, as ``hidden``.
    """
    outputs: list[torch.Tensor] = []
    ended: list[torch.Tensor] = []
    now, read = hidden, None if attention is None else attention.read
    for e in inputs.split(sizes):
        ended.append(now[len(e) :])
        now = now[: len(e)]
        if read is not None:
            e = torch.cat([e, read[: len(e)]], 1)
        of_input = functional.linear(e, weights.input_weight, weights.input_bias).chunk(3, 1)
        of_state = functional.linear(now, weights.hidden_weight, weights.hidden_bias).chunk(3, 1)
        reset, update = torch.sigmoid(of_input[0] + of_state[0]), torch.sigmoid(of_input[1] + of_state[1])
        candidate = torch.tanh(of_input[2] + reset * of_state[2])
        now = (1 - update) * candidate + update * now
        outputs.append(now)
        if attention is not None:
            rows = attention.rows[: len(e)]
            query = functional.linear(now, attention.query_weight, attention.query_bias)
            present = within(attention.lengths[: len(e)], rows.shape[1])
            read, _ = attend(dot_scores(query, rows), rows, present)
    return torch.cat(outputs), torch.cat([now, *reversed(ended)])
