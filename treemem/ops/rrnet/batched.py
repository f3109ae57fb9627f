"""The Recurrent-Recursive Network over all sequences at once, on a thin stack."""

from __future__ import annotations

import torch

from treemem.ops.affine import linear
from treemem.ops.row_table import RowTable
from treemem.ops.rrnet.weights import RRNetWeights
from treemem.ops.spinn import Policy, SortedRun
from treemem.ops.spinn.thin_stack import ThinStack


def batched_rrnet(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    given: torch.Tensor | None,
    weights: RRNetWeights,
    policy: Policy,
) -> SortedRun:
    """Return what :func:`naive_rrnet` does, for all sequences.

    Args:
        inputs: the tokens' vectors, ``[sequences, longest, hidden_size]``, 0 at padding.
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the inputs are.
        sizes: how many sequences have more than 0, 1, 2, ... steps.
        given: int64 ``[sequences, steps]``; None: the policy chooses.
        weights: see :class:`RRNetWeights`.
        policy: how it chooses.
    """
    sequences, longest, size = inputs.shape
    steps, empty = len(sizes), sequences * longest
    of_tokens = linear(inputs.flatten(0, 1), weights.inputs)
    # h, c and what the gates read of it, of leaves, an empty node, and those of each step
    nodes = RowTable(empty + 1 + steps * sequences, 6 * size, inputs)
    nodes.write(slice(empty), torch.cat([_lstm(of_tokens, inputs.new_zeros(empty, size)), of_tokens], 1))
    stack = ThinStack(lengths, longest)
    actions, chosen = (lengths.new_zeros(sequences, steps) for _ in range(2))
    tops = torch.full((sequences, steps, 3), empty, device=inputs.device)
    tokens = torch.cat([inputs.flatten(0, 1), inputs.new_zeros(1, size)])

    def logits(own: torch.Tensor) -> torch.Tensor:
        """Return the logits of the policy from the next token and the two topmost nodes, ``[..., 3]``."""
        if weights.policy is None:
            raise ValueError("without a policy transitions must be given")
        next_token = tokens.index_select(0, own[..., 0].flatten()).view(*own.shape[:-1], size)
        hidden = nodes.read(own[..., 1:])[..., :size].flatten(-2)
        return weights.policy.logits(torch.cat([next_token, hidden], -1))

    for step, active in enumerate(sizes):
        top = tops[:active, step] = stack.tops(active)
        if given is None:
            with torch.no_grad():
                choice = policy.choose(logits(top))
        else:
            choice = given[:active, step]
        action = stack.possible(choice)
        actions[:active, step], chosen[:active, step] = action, choice
        created = empty + 1 + step * sequences
        rows, pairs = stack.reducing(action, top)
        if len(rows):
            under, right = nodes.read(pairs).unbind(1)
            gates = right[:, 2 * size :] + under[:, :size] @ weights.hidden.t()
            after = _lstm(gates, under[:, size : 2 * size])
            nodes.write(created + rows, torch.cat([after, linear(after[:, :size], weights.inputs)], 1))
        stack.move(action, top, created)
    return SortedRun(
        nodes.read(stack.roots())[:, : 2 * size], logits(tops) if weights.policy is not None else None, actions, chosen
    )


def _lstm(gates: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
    """Return ``[h; c]`` from preactivations in blocks input, forget, update, output, and the last ``c``."""
    input_gate, forget_gate, update, output_gate = gates.chunk(4, 1)
    cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
    return torch.cat([output_gate.sigmoid() * cell.tanh(), cell], 1)
