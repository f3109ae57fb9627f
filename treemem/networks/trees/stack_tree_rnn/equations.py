"""The pointwise steps of a Tree-RNN with a stack."""

from __future__ import annotations

import torch

from treemem.engines.activation import activation


def stack_candidates(
    control: torch.Tensor, rows: torch.Tensor, hidden_size: int, no_op: bool, pop_zero_before_map: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The weights of the actions, and the stack that each would leave (eq. 3-9 of Arabshahi et al. 2020).

    ``a = softmax(A x + b_A)``; ``sigma`` after eq. 3 is the sigmoid. With ``S_c`` the children's stacks side by side:
    pushing puts ``sigmoid(U_u x + b_u)`` on top and ``sigmoid(U_push S_c[i - 1] + b_push)`` below; popping puts
    ``sigmoid(U_pop S_c[i + 1] + b_pop)`` into row ``i``; no-op is ``sigmoid(U_noop S_c[i] + b_noop)``.

    Args:
        control: ``U_u x + b_u`` followed by ``A x + b_A``, ``[m, hidden_size + actions]``.
        rows: ``U S_c[i] + b`` for push, pop and no-op side by side, ``[m, rows, actions * hidden_size]``; with
            ``pop_zero_before_map`` one more row, that of a row of zeros below ``S_c``.
        hidden_size: width of a stack row.
        no_op: whether there is a third action.
        pop_zero_before_map: whether the row of zeros that pops in at the bottom goes through the map as well, so that
            it becomes ``sigmoid(b_pop)`` (as in the published code), or is zero after it (as in the paper's eq. 9).

    Returns:
        ``a``, ``[m, actions]``, and for push, pop and no-op the stack, ``[m, stack_size, hidden_size]``.
    """
    update, action = torch.sigmoid(control[:, :hidden_size]), torch.softmax(control[:, hidden_size:], dim=1)
    mapped = torch.sigmoid(rows).unflatten(2, (-1, hidden_size))  # [m, rows, actions, hidden_size]
    stack_size = rows.shape[1] - pop_zero_before_map
    pushed = torch.cat([update[:, None], mapped[:, : stack_size - 1, 0]], dim=1)
    popped = mapped[:, 1:, 1]
    if not pop_zero_before_map:
        popped = torch.nn.functional.pad(popped, (0, 0, 0, 1))
    return action, [pushed, popped, *([mapped[:, :stack_size, 2]] if no_op else [])]


def stack_update(
    control: torch.Tensor, rows: torch.Tensor, hidden_size: int, no_op: bool, pop_zero_before_map: bool
) -> torch.Tensor:
    """The new stack of a node, ``[m, stack_size, hidden_size]``: what :func:`stack_candidates` says, weighed."""
    action, (pushed, *others) = stack_candidates(control, rows, hidden_size, no_op, pop_zero_before_map)
    stack = action[:, 0, None, None] * pushed
    for position, candidate in enumerate(others, start=1):
        stack = stack + action[:, position, None, None] * candidate
    return stack


def stack_tree_rnn_step(
    preactivation: torch.Tensor,
    control: torch.Tensor,
    rows: torch.Tensor,
    *,
    activation_name: str = "sigmoid",
    no_op: bool = False,
    pop_zero_before_map: bool = True,
    dropout: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A Tree-RNN with a stack that reads the tops of its children's stacks, as the published code does.

    ``h = f(W x + b + W_mem [S_1[0]; ...] + b_mem)``: the node's own new stack reaches only its parent.

    Args:
        preactivation: the argument of ``f``, ``[m, hidden_size]``.
        control, rows, no_op, pop_zero_before_map: see :func:`stack_candidates`.
        activation_name: ``f``.
        dropout: probability that an entry of ``h`` is dropped.

    Returns:
        ``h``, ``[m, hidden_size]``, and ``S``, ``[m, stack_size, hidden_size]``.
    """
    hidden = activation(activation_name)(preactivation)
    if dropout:
        hidden = torch.nn.functional.dropout(hidden, dropout)
    return hidden, stack_update(control, rows, preactivation.shape[1], no_op, pop_zero_before_map)


def own_stack_readout(stack: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What a node reads from its own new stack: ``sum_j p_j S[j]`` over the first rows (eq. 10-11).

    Args:
        stack: ``[m, stack_size, hidden_size]``.
        weights: preactivations of ``p``, ``[m, top_k]``.

    Returns:
        ``[m, hidden_size]``.
    """
    return (torch.sigmoid(weights)[:, :, None] * stack[:, : weights.shape[1]]).sum(1)
