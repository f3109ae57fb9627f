"""The pointwise step of an n-ary Tree-LSTM: ordered children, one forget gate for each."""

from __future__ import annotations

import torch

from treemem.engines.printer.driven import DrivenStep

State = dict[str, torch.Tensor]

GATES = ("input", "forget", "output", "update")
"""Blocks of the preactivation, in order; ``forget`` is as many blocks as there are children."""


def tree_lstm_gates(
    preactivation: torch.Tensor, arity: int, hidden_size: int, dropout: float = 0.0
) -> dict[str, torch.Tensor]:
    """The gates of :func:`tree_lstm_step` by the names in :data:`GATES`.

    Returns:
        ``forget``, ``[m, arity, hidden_size]``, and the others, ``[m, hidden_size]``; ``update`` after its dropout.
    """
    sizes = [hidden_size, arity * hidden_size, hidden_size, hidden_size]
    input_gate, forget, output, update = preactivation.split(sizes, dim=1)
    update = torch.tanh(update)
    return {
        "input": torch.sigmoid(input_gate),
        "forget": torch.sigmoid(forget).unflatten(1, (arity, hidden_size)),
        "output": torch.sigmoid(output),
        "update": torch.nn.functional.dropout(update, dropout) if dropout else update,
    }


def tree_lstm_step(
    preactivation: torch.Tensor, child_cells: torch.Tensor, dropout: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The n-ary Tree-LSTM of Tai et al. 2015 (eq. 9-14), every gate with cross terms from all children.

    ``i, f_k, o = sigmoid(U x + b)``, ``u = tanh(U_u x + b_u)``, ``c = i * u + sum_k f_k * c_k``, ``h = o * tanh(c)``,
    where ``x`` holds the children's ``h`` one after the other. Each ``f_k`` has a bias of its own, as in the
    code published with Arabshahi et al. 2020.

    Args:
        preactivation: blocks in the order of :data:`GATES`, ``[m, (arity + 3) * hidden_size]``.
        child_cells: ``[m, arity, hidden_size]``; ``arity`` may be 0, as for leaves with features.
        dropout: probability that an entry of ``u`` is dropped.

    Returns:
        ``h`` and ``c``, each ``[m, hidden_size]``.
    """
    gates = tree_lstm_gates(preactivation, child_cells.shape[1], child_cells.shape[2], dropout)
    cell = gates["input"] * gates["update"] + (gates["forget"] * child_cells).sum(1)
    return gates["output"] * torch.tanh(cell), cell


def _step(products: State, children: State) -> State:
    return dict(zip("hc", tree_lstm_step(products["gates"], children["c"]), strict=True))


tree_lstm_of_two = DrivenStep("TREE_LSTM_STEP", _step, {"gates": 5}, "hc", 2)
"""Of two children, for loops in C++ and in kernels."""


def bounded_tree_lstm_step(products: State, children: State) -> State:
    """The step of a node that hands ``tanh(c)`` to its parent instead of ``c``, from its product ``gates``."""
    hidden, cell = tree_lstm_step(products["gates"], children["c"])
    return {"h": hidden, "c": cell.tanh()}


bounded_tree_lstm_of_two = DrivenStep("TREE_LSTM_STEP", bounded_tree_lstm_step, {"gates": 5}, "hc", 2)
"""The same of such nodes."""
