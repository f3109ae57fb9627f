"""The continuous recursion as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from treemem.ops.crvnn.weights import EPSILON, CRvNNWeights, Ends
from treemem.ops.native.structures import Filled, Structure, structured_library
from treemem.ops.second_derivative import once_differentiable, save_for_backward

_SOURCE = Path(__file__).with_name("fused.cpp")
_POSITIONS_PER_THREAD = 256
_MAPS = (
    *("weight1", "bias1", "weight2", "bias2", "gain", "shift"),  # of the cell
    *("window", "window_bias"),  # [hidden_size, (2 num_neighbors + 1) * hidden_size]
    *("score", "score_bias"),  # [hidden_size], [1]
    # Of features, or null: added at every position, and times how far it took its left neighbour, [hidden_size]; with
    # equation 5 to the hidden layer of the score, with 6 to the states that it reads.
    *("absent", "change"),
)
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t sequences, size, hidden_size, inner_size, num_threads",
    "int64_t equation, num_neighbors, modulated, gelu, train, seed",
    "double threshold, dropout, epsilon",
    "const int64_t *lengths",  # numbers of tokens, [sequences]
    "const REAL *states",  # [sequences, size, hidden_size], size is that of the longest
    *(f"const REAL *{name}" for name in _MAPS),
    "REAL *outputs",  # the states at the end, as `states`
    "REAL *existence, *total",  # [sequences, size]
    "uint8_t *ended_well",  # [sequences]
)
_GRADIENTS = Structure(
    "GRADIENTS",
    # These come in as those of `outputs` and `existence`, and the first one goes out as that of `states`.
    "REAL *states, *existence",
    "REAL *taken",  # [sequences, size], begins with 0
    *(f"REAL *{name}" for name in _MAPS),  # with a first axis of threads
)


def native_steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Ends | None:
    """Return what :func:`treemem.ops.crvnn.naive.naive_steps` does, or None if the C++ cannot be used.

    It needs a CPU, a C++ compiler, and numbers of one type (float32 or float64, without autocast).
    """
    cell = (*weights.cell.hidden, *weights.cell.gates, *weights.cell.norm)
    given = [states, *cell, *weights.window, *weights.score, *(weights.features or ())]
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS)
    if library is None:
        return None
    run = _Run(library, states, lengths, weights)
    run.train = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    width = (2 * weights.num_neighbors + 1) * len(weights.window.bias)
    window, of_features = weights.window.weight[:, :width], weights.window.weight[:, width:]
    absent = change = None
    if weights.features is not None:
        yes, no = weights.features
        absent, change = (of_features @ each if weights.equation == 5 else each for each in (no, yes - no))
    maps = (*cell, window, weights.window.bias, *weights.score, absent, change)
    return Ends(*_Steps.apply(run, states, *maps))


class _Run:
    """One run, from its forward to its backward pass.

    Attributes:
        train: whether there will be a backward pass.
    """

    def __init__(
        self, library: ctypes.CDLL, states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights
    ) -> None:
        self._library = library
        self._lengths = lengths.contiguous()
        sequences, size, width = states.shape
        positions = int(lengths.sum()) + 2 * sequences
        self.threads = max(1, min(torch.get_num_threads(), positions // _POSITIONS_PER_THREAD))
        self.train = False
        self._state: int | None = None
        self._numbers = {
            "sequences": sequences,
            "size": size,
            "hidden_size": width,
            "inner_size": len(weights.cell.hidden.bias),
            "num_threads": self.threads,
            "equation": weights.equation,
            "num_neighbors": weights.num_neighbors,
            "modulated": weights.modulated,
            "gelu": weights.activation == "gelu",
            "seed": int(torch.randint(1 << 62, ())) if weights.dropout else 0,
            "threshold": weights.threshold,
            "dropout": weights.dropout,
            "epsilon": EPSILON[weights.equation],
        }

    def forward(self, states: torch.Tensor, maps: Sequence[torch.Tensor | None]) -> Ends:
        """Return the ends; all tensors are contiguous."""
        existence, total = states.new_zeros(2, *states.shape[:2])
        found = Ends(torch.zeros_like(states), existence, total, torch.empty(len(states), dtype=torch.bool))
        state = ctypes.c_void_p()
        self._library.forward(self._problem(states, maps, found), ctypes.byref(state))
        self._state = state.value
        if not self.train:
            self._forget()
        return found

    def backward(
        self, states: torch.Tensor, maps: Sequence[torch.Tensor | None], ends: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Return the gradients of states and maps, from those of the states and the existence at the ends.

        The state is overwritten, so a second backward pass runs forward again, with the same dropout.
        """
        if self._state is None:
            self.forward(states, maps)
        shapes = (states.shape, states.shape[:2])
        incoming = [
            states.new_zeros(shape) if each is None else each.clone(memory_format=torch.contiguous_format)
            for each, shape in zip(ends, shapes, strict=True)
        ]
        taken = states.new_zeros(states.shape[:2])
        of_maps = [None if each is None else each.new_zeros(self.threads, *each.shape) for each in maps]
        d_states, d_existence = incoming
        own = dict(zip(_MAPS, of_maps, strict=True))
        gradients = _GRADIENTS(states=d_states, existence=d_existence, taken=taken, **own)
        problem = self._problem(states, maps, (None,) * 4)
        try:
            self._library.backward(ctypes.c_void_p(self._state), problem, gradients)
        finally:
            self._forget()
        return [incoming[0], *(None if each is None else each.sum(0) for each in of_maps)]

    def _problem(
        self, states: torch.Tensor, maps: Sequence[torch.Tensor | None], found: Sequence[torch.Tensor | None]
    ) -> Filled:
        outputs, existence, total, ended_well = found
        return _PROBLEM(
            **self._numbers,
            train=self.train,
            lengths=self._lengths,
            states=states,
            **dict(zip(_MAPS, maps, strict=True)),
            outputs=outputs,
            existence=existence,
            total=total,
            ended_well=ended_well,
        )

    def _forget(self) -> None:
        if self._state is not None:
            self._library.release(ctypes.c_void_p(self._state))
            self._state = None

    def __del__(self) -> None:
        self._forget()


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, states: torch.Tensor, *maps: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        states, maps = states.contiguous(), tuple(None if each is None else each.contiguous() for each in maps)
        found = run.forward(states, maps)
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(found.total, found.ended_well)
        save_for_backward(ctx, found.existence, states, *maps)
        return tuple(found)

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor | None, ...], *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        states, *maps = (None if each is None else each.contiguous() for each in saved[1:])
        assert states is not None
        return None, *ctx.run.backward(states, maps, gradients[:2])
