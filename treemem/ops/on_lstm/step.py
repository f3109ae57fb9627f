"""The step of an ON-LSTM, and what a run of many steps reads and gives."""

from __future__ import annotations

from typing import NamedTuple

import torch


class OnLSTMWeights(NamedTuple):
    """What maps the input and the previous ``h`` to the preactivations of a step.

    With ``m = hidden_size / chunk_size`` master units, a preactivation has ``2 * m + 4 * hidden_size`` entries: master
    input gate and master forget gate, ``m`` each, then output gate, update, input gate and forget gate.

    Attributes:
        input_weight: ``[2 * m + 4 * hidden_size, input_size]``.
        input_bias, hidden_bias: ``[2 * m + 4 * hidden_size]``; their sum counts.
        hidden_weight: ``[2 * m + 4 * hidden_size, hidden_size]``.
    """

    input_weight: torch.Tensor
    input_bias: torch.Tensor
    hidden_weight: torch.Tensor
    hidden_bias: torch.Tensor


class OnLSTMOutputs(NamedTuple):
    """What came of a run over sequences.

    Attributes:
        h: at every token, ``[sequences, longest, hidden_size]``, 0 at padding.
        hidden, cell: the last ``h`` and ``c`` of each sequence, ``[sequences, hidden_size]``; of an empty
            one the initial ones.
        masters: the master input and forget gates at every token, ``[sequences, longest, 2, m]``, 0 at padding, without
            gradients.
    """

    h: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor
    masters: torch.Tensor


def on_lstm_gates(preactivation: torch.Tensor, chunk_size: int) -> dict[str, torch.Tensor]:
    """The gates of a step (Shen et al. 2018, eq. 9-13), from the preactivations.

    ``master_forget = cumsum(softmax(.))``, ``master_input = 1 - cumsum(softmax(.))``, ``overlap = master_forget *
    master_input``, each repeated over the ``chunk_size`` units that share it; ``forget = sigmoid(.) * overlap +
    (master_forget - overlap)``, ``input = sigmoid(.) * overlap + (master_input - overlap)``.

    Args:
        preactivation: ``[sequences, 2 * m + 4 * hidden_size]``, in the order of :class:`OnLSTMWeights`.
        chunk_size: adjacent units that share a master unit.

    Returns:
        ``master_input`` and ``master_forget``, ``[sequences, m]``; ``output``, ``update``, ``input`` and ``forget``,
        ``[sequences, hidden_size]``.
    """
    num_masters = preactivation.shape[1] // (2 + 4 * chunk_size)
    hidden_size = num_masters * chunk_size
    masters, output, update, own = preactivation.split([2 * num_masters, hidden_size, hidden_size, 2 * hidden_size], 1)
    input_upwards, master_forget = masters.unflatten(1, (2, num_masters)).softmax(2).cumsum(2).unbind(1)
    master_input = 1 - input_upwards
    overlap = (master_forget * master_input)[:, None]
    rest = torch.stack([master_input, master_forget], 1) - overlap
    own = torch.sigmoid(own).unflatten(1, (2, num_masters, chunk_size))
    gates = own * overlap[..., None] + rest[..., None]
    of_input, of_forget = gates.flatten(2).unbind(1)
    return {
        "master_input": master_input,
        "master_forget": master_forget,
        "output": torch.sigmoid(output),
        "update": torch.tanh(update),
        "input": of_input,
        "forget": of_forget,
    }


def on_lstm_step(gates: dict[str, torch.Tensor], cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``c = forget * c + input * update``, ``h = output * tanh(c)`` (Shen et al. 2018, eq. 14).

    Args:
        gates: of :func:`on_lstm_gates`.
        cell: the previous ``c``, ``[sequences, hidden_size]``.

    Returns:
        ``h`` and ``c``.
    """
    cell = gates["forget"] * cell + gates["input"] * gates["update"]
    return gates["output"] * torch.tanh(cell), cell
