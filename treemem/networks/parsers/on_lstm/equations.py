"""The step of an ON-LSTM, what a run of many steps reads and gives, and the run as a plain loop under autograd."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.engines.printer.driven import DrivenStep


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
    masters, others = preactivation.split([2 * num_masters, 4 * hidden_size], 1)
    master_input, master_forget = _master_gates(masters)
    output, update, enter, forget = others.unflatten(1, (4, num_masters, chunk_size)).unbind(1)
    gates = _unit_gates(output, update, enter, forget, master_input[:, :, None], master_forget[:, :, None])
    of_units = {name: gate.flatten(1) for name, gate in gates.items()}
    return {"master_input": master_input, "master_forget": master_forget, **of_units}


def _master_gates(preactivation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    input_upwards, forget = preactivation.unflatten(1, (2, -1)).softmax(2).cumsum(2).unbind(1)
    return 1 - input_upwards, forget


def _unit_gates(
    output: torch.Tensor,
    update: torch.Tensor,
    enter: torch.Tensor,
    forget: torch.Tensor,
    master_input: torch.Tensor,
    master_forget: torch.Tensor,
) -> dict[str, torch.Tensor]:
    overlap = master_forget * master_input
    return {
        "output": torch.sigmoid(output),
        "update": torch.tanh(update),
        "input": torch.sigmoid(enter) * overlap + (master_input - overlap),
        "forget": torch.sigmoid(forget) * overlap + (master_forget - overlap),
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


State = dict[str, torch.Tensor]


def _masters(products: State, children: State) -> State:
    return dict(zip(("input", "forget"), _master_gates(products["masters"]), strict=True))


def _units(products: State, children: State) -> State:
    gates = _unit_gates(*products["gates"].chunk(4, 1), *products["masters"].chunk(2, 1))
    return dict(zip("hc", on_lstm_step(gates, children["c"].squeeze(1)), strict=True))


PRINTED = (
    DrivenStep("MASTERS_STEP", _masters, {"masters": 2}, ("input", "forget"), 0),
    DrivenStep("UNITS_STEP", _units, {"gates": 4, "masters": 2}, "hc", 1),
)
"""The master gates, and the rest of the step of a row whose master gates are repeated for each unit, for C++."""


def naive_steps(
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    input_weight: torch.Tensor,
    bias: torch.Tensor,
    hidden_weight: torch.Tensor,
    sizes: list[int],
    chunk_size: int,
) -> tuple[torch.Tensor, ...]:
    """Run over packed sequences, longest first; see :class:`treemem.engines.sequence_lengths.Packing`.

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        hidden, cell: where to begin, ``[sequences, hidden_size]``.
        input_weight, bias, hidden_weight: see ``OnLSTMWeights``; ``bias`` is the sum of
            both.
        sizes: how many sequences each step has.
        chunk_size: adjacent units that share a master unit.

    Returns:
        ``h`` of all tokens, ``[tokens, hidden_size]``; their master input and forget gates, ``[tokens, 2, m]``, without
        gradients; the last ``h`` and ``c`` of each sequence.
    """
    states = [inputs.new_zeros(0, hidden.shape[1])]
    masters = [inputs.new_zeros(0, 2, hidden.shape[1] // chunk_size)]
    ended: list[tuple[torch.Tensor, torch.Tensor]] = []
    recurrent = hidden_weight.t()
    for of_inputs in functional.linear(inputs, input_weight, bias).split(sizes):
        going = len(of_inputs)
        if going < len(hidden):
            (hidden, ended_hidden), (cell, ended_cell) = (
                state.split([going, len(state) - going]) for state in (hidden, cell)
            )
            ended.append((ended_hidden, ended_cell))
        gates = on_lstm_gates(torch.addmm(of_inputs, hidden, recurrent), chunk_size)
        hidden, cell = on_lstm_step(gates, cell)
        states.append(hidden)
        masters.append(torch.stack([gates["master_input"], gates["master_forget"]], 1).detach())
    ended.append((hidden, cell))
    last_hidden, last_cell = (torch.cat(parts[::-1]) for parts in zip(*ended, strict=True))
    return torch.cat(states), torch.cat(masters), last_hidden, last_cell
