"""The pointwise step of a Tree-LSTM with a stack."""

from __future__ import annotations

import torch
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from treemem.ops.activation import activation
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions


def stack_tree_lstm_step(
    preactivation: torch.Tensor, child_stacks: torch.Tensor, options: StackTreeLSTMOptions, dropout: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A Tree-LSTM whose cell is a stack, read out into ``h`` (eq. 15-28 of Arabshahi et al. 2020).

    With ``f_k = sigmoid(U_f x + b_f)`` and ``S_c[i] = sum_k f_k * S_k[i]``, the same gate for each row, and
    ``u = act(U_u x + b_u)``::

        S[0] = a_push * u          + a_pop * S_c[1]     + a_no_op * S_c[0]
        S[i] = a_push * S_c[i - 1] + a_pop * S_c[i + 1] + a_no_op * S_c[i]      (S_c[stack_size] = 0)
        h = o * act2(S[0]),  or with top_k > 1:  h = o * act2(sum_{j < top_k} P_j S[j]),  P = sigmoid(U_p x + b_p)

    where ``x`` holds the children's ``h`` one after the other. The actions are those of the published code:
    sigmoid gates, normalized as ``options`` say. The row pushed out at the bottom is lost. A queue pushes ``u`` into
    the last row and moves all others up: ``S[i] = (a_push + a_pop) * S_c[i + 1] + a_no_op * S_c[i]``.

    Args:
        preactivation: blocks as ``options.blocks`` says, ``[m, outputs]``.
        child_stacks: ``[m, arity, stack_size, hidden_size]``; ``arity`` may be 0, as for leaves with features.
        options: which variant.
        dropout: probability that an entry of ``u`` is dropped.

    Returns:
        ``h``, ``[m, hidden_size]``, and ``S``, ``[m, stack_size, hidden_size]``.
    """
    arity, hidden_size = child_stacks.shape[1], child_stacks.shape[3]
    parts = {name: preactivation[:, block] for name, block in options.blocks(arity, hidden_size).items()}
    forget = torch.sigmoid(parts["forget"]).unflatten(1, (arity, 1, hidden_size))
    merged = (forget * child_stacks).sum(1)
    update = activation(options.activation).function(parts["update"])
    if dropout:
        update = drop(update, dropout)
    if options.input_gate:
        update = torch.sigmoid(parts["input"]) * update
    actions = dict(zip(options.action_names, _actions(parts["actions"], options, hidden_size), strict=True))
    below = pad(merged[:, 1:], (0, 0, 0, 1))
    if options.queue:
        pushed = torch.cat([merged[:, 1:], update[:, None]], dim=1)
    else:
        pushed = torch.cat([update[:, None], merged[:, :-1]], dim=1)
    stack = actions["push"] * pushed
    if "pop" in actions:
        stack = stack + actions["pop"] * below
    if "no_op" in actions:
        stack = stack + actions["no_op"] * merged
    reading = stack[:, 0]
    if options.top_k > 1:
        weights = torch.sigmoid(parts["reading"]).unflatten(1, (options.top_k, -1))
        reading = (weights * stack[:, : options.top_k]).sum(1)
    hidden = torch.sigmoid(parts["output"]) * activation(options.output_activation).function(reading)
    return hidden, stack


def _actions(logits: torch.Tensor, options: StackTreeLSTMOptions, hidden_size: int) -> tuple[torch.Tensor, ...]:
    """The weight of each action, ``[m, 1, hidden_size]``, or ``[m, 1, 1]`` where actions are scalar."""
    num_actions = len(options.action_names)
    logits = logits.unflatten(1, (num_actions, -1))  # [m, actions, hidden_size or 1]
    if options.actions == "scalar" or options.normalize == "softmax":
        weights = torch.softmax(logits, dim=1)
    else:
        weights = torch.sigmoid(logits)
        if options.normalize == "softmax_of_gates":
            weights = torch.softmax(weights, dim=1)
        elif options.normalize == "divide":
            weights = weights / weights.sum(1, keepdim=True)
    return weights[:, :, None].unbind(1)
