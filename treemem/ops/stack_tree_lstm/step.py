"""The pointwise step of a Tree-LSTM with a stack."""

from __future__ import annotations

import torch
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from treemem.ops.activation import activation
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions


def stack_tree_lstm_gates(
    preactivation: torch.Tensor, arity: int, hidden_size: int, options: StackTreeLSTMOptions, dropout: float = 0.0
) -> dict[str, torch.Tensor]:
    """The gates of :func:`stack_tree_lstm_step`.

    Args:
        preactivation: blocks as ``options.blocks`` says, ``[m, outputs]``.
        arity: number of children.
        hidden_size: width of a state.
        options: which variant.
        dropout: probability that an entry of ``update`` is dropped.

    Returns:
        ``forget``, ``[m, arity, hidden_size]``; the actions by their names, normalized as ``options`` say,
        ``[m, hidden_size]``, or ``[m, 1]`` where they are scalar; ``output`` and ``update``, ``[m, hidden_size]``;
        with an input gate, ``input``, ``[m, hidden_size]``; and with ``top_k`` over 1, ``readout``,
        ``[m, top_k, hidden_size]``, or ``[m, top_k, 1]`` where rows have weights.
    """
    parts = {name: preactivation[:, block] for name, block in options.blocks(arity, hidden_size).items()}
    gates = {
        "forget": torch.sigmoid(parts["forget"]).unflatten(1, (arity, hidden_size)),
        "output": torch.sigmoid(parts["output"]),
        "update": activation(options.activation)(parts["update"]),
    }
    if dropout:
        gates["update"] = drop(gates["update"], dropout)
    if options.input_gate:
        gates["input"] = torch.sigmoid(parts["input"])
    if options.top_k > 1:
        gates["readout"] = torch.sigmoid(parts["readout"]).unflatten(1, (options.top_k, -1))
    num_actions = len(options.action_names)
    actions = _normalized(parts["actions"].unflatten(1, (num_actions, -1)), options)
    return {**gates, **dict(zip(options.action_names, actions.unbind(1), strict=True))}


def _normalized(logits: torch.Tensor, options: StackTreeLSTMOptions) -> torch.Tensor:
    """The weight of each action, ``[m, actions, hidden_size or 1]``."""
    if options.actions == "scalar" or options.normalize == "softmax":
        return torch.softmax(logits, dim=1)
    weights = torch.sigmoid(logits)
    if options.normalize == "softmax_of_gates":
        return torch.softmax(weights, dim=1)
    if options.normalize == "divide":
        return weights / weights.sum(1, keepdim=True)
    return weights


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
    gates = stack_tree_lstm_gates(preactivation, child_stacks.shape[1], child_stacks.shape[3], options, dropout)
    merged = (gates["forget"][:, :, None] * child_stacks).sum(1)
    update = gates["update"] * gates["input"] if options.input_gate else gates["update"]
    popped = pad(merged[:, 1:], (0, 0, 0, 1))
    pushed = [merged[:, 1:], update[:, None]] if options.queue else [update[:, None], merged[:, :-1]]
    stack = gates["push"][:, None] * torch.cat(pushed, dim=1)
    if "pop" in gates:
        stack = stack + gates["pop"][:, None] * popped
    if "no_op" in gates:
        stack = stack + gates["no_op"][:, None] * merged
    readout = stack[:, 0]
    if options.top_k > 1:
        readout = (gates["readout"] * stack[:, : options.top_k]).sum(1)
    return gates["output"] * activation(options.output_activation)(readout), stack
