"""Continuous recursion on CUDA: three products of torch's BLAS a step, and a kernel before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from treemem.device_copy import to_device
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher, product_precision
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import block_of
from treemem.native.run import NativeRun, Tensors, own_gradient, run_native
from treemem.native.second_derivative import graph_is_retained
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.parsers.crvnn.equations import EPSILON, CRvNNWeights, Ends
from treemem.networks.parsers.crvnn.printed import HIDDEN_STEPS, SCORE_STEP, driven_maps

_LARGEST = 16384  # bytes of a block, which has a vector or a number for each position of each position
_CELL_NUMBERS = 1024  # of the positions of which the step of the cell is taken together
PART = 16
"""Positions of vectors that are multiplied by neighbours at a time."""
LOOK_BACKWARD_OPTIONS = {"num_stages": 1, "maxnreg": 255}
"""Options of the compiler, which by itself loads much early, or takes fewer registers than it may, and spills."""
_CELL, _SCORE = RowStep(gated_of_two), RowStep(SCORE_STEP)
_HIDDEN = {name: RowStep(printed) for name, printed in HIDDEN_STEPS.items()}


def kernel_steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Ends | None:
    """Return what ``naive_steps`` does, or None if kernels are not wanted or cannot be used. Autocast is off inside.

    They need what :meth:`treemem.engines.cuda.launcher.Launcher.why_not` says, equation 5, and blocks of up to 16 KiB:
    positions times positions, and positions times ``hidden_size``, each as a power of 2. There are two more positions
    than tokens, so float32 has up to 62 tokens.
    """
    with torch.autocast(states.device.type, enabled=False):
        dtype = weights.score.bias.dtype
        return _steps(states.to(dtype), lengths, weights)  # autocast may have lowered their precision


def _steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Ends | None:
    cell = (*weights.cell.hidden, *weights.cell.gates, *weights.cell.norm)
    given = [states, *cell, *weights.window, *weights.score, *(weights.features or ())]
    positions = block_of(states.shape[1])
    widest = max(positions, block_of(states.shape[2]))
    fits = positions * widest * states.element_size() <= _LARGEST
    if weights.equation != 5 or not fits or not runs_kernels(given):
        return None
    tensors = [states, *driven_maps(weights)]
    train = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    ends, existence, total, ended_well = run_native(_Run(lengths, weights, train), *tensors)
    return Ends(ends, existence, total.detach(), ended_well.detach() > 0)


class _Maps(NamedTuple):
    """The tensors of ``driven_maps``, or their gradients."""

    weight1: Any
    bias1: Any
    weight2: Any
    bias2: Any
    norm: Any
    window: Any
    window_bias: Any
    score: Any
    score_bias: Any
    absent: Any
    change: Any


class _Kept(NamedTuple):
    """What a forward pass leaves of its steps, ``[steps, rows, ...]`` with a row for each position of each sequence.

    Attributes:
        states, existence, taken: before each step and after the last one.
        going: whether sequences go on, ``[steps + 1, sequences]``.
        read: what :func:`treemem.networks.parsers.crvnn.kernels.look` gives.
        window, inner, hidden, gates: of the scores and of the cell.
        factors: of dropout, of ``hidden``; or None.
        lengths: of the sequences, where the states are.
    """

    states: Any
    existence: Any
    taken: Any
    going: Any
    read: Any
    window: Any
    inner: Any
    hidden: Any
    gates: Any
    factors: Any
    lengths: Any


class _Run(NativeRun):
    """One run, from its forward to its backward pass; ``train`` says whether there will be one."""

    def __init__(self, lengths: torch.Tensor, weights: CRvNNWeights, train: bool) -> None:
        self._lengths, self._weights, self._train = lengths, weights, train
        self._hidden = _HIDDEN[weights.activation]

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """States and existence at the end, the sum of the existence, and which sequences have ended well."""
        from treemem.networks.parsers.crvnn.kernels import advance, look

        states, maps = tensors[0], _Maps(*tensors[1:])
        sequences, size, D = states.shape
        steps, kept = size - 2, self._memory(states, maps)
        total, ended_well = states.new_zeros(sequences, size), states.new_zeros(sequences)
        N, known = self._weights.num_neighbors, constants("advance", self._weights, size, D, states.dtype)
        of_look = constants("look", self._weights, size, D, states.dtype)
        learned = *maps.norm.split(D), maps.score, maps.score_bias, maps.absent, maps.change
        of_states = kept.states, kept.existence, kept.taken, kept.going
        for step in range(steps):
            now, then, at = (step, step + 1, step) if self._train else (step % 2, (step + 1) % 2, 0)
            counts = sequences, size
            launcher().launch(look, (sequences, -(-D // PART)), *of_states[:2], kept.read, now, at, *counts, **of_look)
            read, inner, hidden = kept.read[at], kept.inner[at], kept.hidden[at]
            torch.addmm(maps.window_bias, read, maps.window.t(), out=kept.window[at])
            torch.addmm(maps.bias1, read[:, (N - 1) * D : (N + 1) * D], maps.weight1.t(), out=inner)
            self._hidden.forward([inner], [], [], [hidden])
            if kept.factors is not None:
                hidden.mul_(kept.factors[step])
            torch.addmm(maps.bias2, hidden, maps.weight2.t(), out=kept.gates[at])
            made = kept.gates, kept.window, kept.read, *of_states, total, ended_well, kept.lengths
            numbers = now, then, at, *counts, step + 1
            launcher().launch(advance, (sequences,), *made, *learned, *numbers, **known)
        last = steps if self._train else steps % 2
        ends = kept.states[last].view_as(states).clone(), kept.existence[last].view(sequences, size).clone()
        return [*ends, total, ended_well], [*ends, *maps, *kept] if self._train else []

    def _memory(self, states: torch.Tensor, maps: _Maps) -> _Kept:
        """Memory for what the forward pass leaves, with what is there before the first step."""
        (sequences, size, D), steps = states.shape, states.shape[1] - 2
        H, rate, new = len(maps.bias1), self._weights.dropout, states.new_empty
        several, kept, rows = (steps + 1, steps, sequences * size) if self._train else (2, 1, sequences * size)
        lengths = to_device(self._lengths, states.device)
        memory = _Kept(
            states=new(several, rows, D),
            existence=new(several, rows),
            taken=new(several, rows),
            going=new(several, sequences),
            read=new(kept, rows, (2 * self._weights.num_neighbors + 1) * D),
            window=new(kept, rows, D),
            inner=new(kept, rows, H),
            hidden=new(kept, rows, H),
            gates=new(kept, rows, 4 * D),
            factors=new(steps, rows, H).bernoulli_(1 - rate).div_(1 - rate or 1) if rate else None,
            lengths=lengths,
        )
        memory.states[0] = states.flatten(0, 1)
        memory.existence[0] = (torch.arange(size, device=states.device) <= lengths[:, None] + 1).flatten()
        memory.taken[0] = 0
        memory.going[0] = 1
        return memory

    def backward(self, kept: Any, incoming: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of the first states and of the maps, from those of the last states and of the existence."""
        from treemem.networks.parsers.crvnn.kernels import advance_backward, look_backward

        ends, existence, maps, left = kept[0], kept[1], _Maps(*kept[2:13]), _Kept(*kept[13:])
        (sequences, size, D), N = ends.shape, self._weights.num_neighbors
        d_states, d_existence = own_gradient(incoming[0], ends), own_gradient(incoming[1], existence)
        inner, window, gates = left.inner, left.window, left.gates
        if graph_is_retained():
            inner, window, gates = inner.clone(), window.clone(), gates.clone()
        rows, H, counts = sequences * size, len(maps.bias1), (sequences, size)
        d_taken, d_left, d_choices = existence.new_zeros(rows), ends.new_empty(rows, D), ends.new_empty(4, rows)
        d_learned, d_bias = ends.new_zeros(sequences, 3, D), ends.new_zeros(sequences)
        d_hidden, d_read = ends.new_empty(rows, H), torch.empty_like(left.read[0])
        known = constants("advance_backward", self._weights, size, D, ends.dtype)
        of_look = constants("look_backward", self._weights, size, D, ends.dtype)
        learned = *maps.norm.split(D), maps.score, maps.score_bias, maps.absent, maps.change
        for step in reversed(range(size - 2)):
            made = gates, window, left.read, left.states, left.existence, left.taken, left.going, left.lengths
            gradients = d_states, d_existence, d_taken, d_left, d_choices, d_learned, d_bias
            numbers = step, step, *counts
            launcher().launch(advance_backward, (sequences,), *made, *learned, *gradients, *numbers, **known)
            torch.mm(gates[step], maps.weight2, out=d_hidden)
            if left.factors is not None:
                d_hidden.mul_(left.factors[step])
            hidden = [left.hidden[step]]
            self._hidden.backward([inner[step]], [], [], hidden, [d_hidden], [inner[step]], [])
            torch.mm(window[step], maps.window, out=d_read)
            d_read[:, (N - 1) * D : (N + 1) * D].addmm_(inner[step], maps.weight1)
            of_read = left.existence, left.read, d_read, d_left, d_choices, d_states, d_existence
            launcher().launch(look_backward, (sequences,), *of_read, *numbers, **of_look)
        d_inner, d_window, d_gates, read = (each.flatten(0, 1) for each in (inner, window, gates, left.read))
        of_cell = d_inner.t() @ read[:, (N - 1) * D : (N + 1) * D], d_inner.sum(0)
        of_gates = d_gates.t() @ left.hidden.flatten(0, 1), d_gates.sum(0)
        d_score, *d_norm = d_learned.sum(0)
        d_absent = d_window.sum(0)
        d_change = None if maps.change is None else d_window.t() @ left.taken[:-1].flatten()
        of_window = d_window.t() @ read, d_absent
        of_score = d_score[None], d_bias.sum()[None]
        return [d_states, *of_cell, *of_gates, torch.cat(d_norm), *of_window, *of_score, d_absent, d_change]


def constants(kernel: str, weights: CRvNNWeights, size: int, D: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return what is known when a kernel is compiled."""
    known: dict[str, Any] = {"N": weights.num_neighbors, "D": D, "P": block_of(size)}
    if kernel != "look":
        known["MODULATED"] = weights.modulated
    if kernel.startswith("look"):
        known |= {"PART": PART, "PRECISION": product_precision(dtype)}
        return known | (LOOK_BACKWARD_OPTIONS if kernel == "look_backward" else {})
    known["BLOCK"], known["ROWS"] = block_of(D), min(known["P"], max(1, _CELL_NUMBERS // block_of(D)))
    known |= {"EPSILON": EPSILON[5] * (4 if weights.modulated else 2), "SCORE": _SCORE.step, "CELL": _CELL.step}
    if kernel == "advance":
        return known | {"THRESHOLD": weights.threshold}
    return known | {"SCORE_BACKWARD": _SCORE.step_backward, "CELL_BACKWARD": _CELL.step_backward}
