"""The Ordered Memory as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.ordered_memory.naive import PackedSteps, project, queries_of, slot_scores
from treemem.ops.ordered_memory.weights import Dropouts, OrderedMemoryWeights, TanhScoreWeights
from treemem.ops.second_derivative import once_differentiable, save_for_backward

_SOURCE = Path(__file__).with_name("fused.cpp")
_SEQUENCES_PER_THREAD = 8  # fewer make products too small


def fused(
    inputs: torch.Tensor,
    sizes: list[int],
    begins_empty: torch.Tensor,
    weights: OrderedMemoryWeights,
    slots: int,
    dropouts: Dropouts,
    trace: bool,
    skip: float = 0.0,
) -> PackedSteps | None:
    """Return the same as :func:`treemem.ops.ordered_memory.naive.naive`, or None if it cannot be used.

    It needs a CPU, a C++ compiler, numbers of one type (float32 or float64, without autocast), and pointers whose sum
    is not clamped.

    Args:
        inputs, sizes, begins_empty, weights, slots, dropouts, trace, skip: as for ``naive``.
    """
    attention, cell = weights.attention, weights.cell
    maps = (weights.input, weights.input_norm, *attention, *cell)
    library = native_library(_SOURCE, [inputs, *(tensor for affine in maps for tensor in affine)])
    if library is None:
        return None
    projected = project(inputs, weights)
    queries = queries_of(projected[sizes[0] :], attention, dropouts.memory)
    before = [part[:after] for part, after in zip(projected.split(sizes), sizes[1:], strict=False)]
    untouched = slot_scores(queries, torch.cat([projected[:0], *before]), attention, dropouts.memory)
    size = projected.shape[1]
    scale = 1 / math.sqrt(size)
    if isinstance(attention, TanhScoreWeights):
        key: tuple[torch.Tensor | None, ...] = attention.map.weight[:, :size], None, None, None
    else:
        key = *attention.key, *attention.key_norm
    of_cell = [tensor for affine in cell for tensor in affine]
    score = (each * scale for each in attention.score)
    tensors = (projected, queries, untouched, *score, *key, *of_cell, *[None] * (6 - len(of_cell)))
    run = _Run(library, projected, sizes, begins_empty, slots, dropouts, skip)
    run.train = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
    outputs, pointers, cumulative = _Fused.apply(run, *tensors)
    if not run.succeeded:
        return None
    return PackedSteps(outputs, pointers if trace else None, cumulative if trace else None)


class _Problem(ctypes.Structure):
    """``Problem`` of the source."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_steps", "hidden_size", "slots", "num_parts", "train", "seed")),
        *((name, ctypes.c_double) for name in ("skip", "cell_dropout", "memory_dropout")),
        *((name, ctypes.c_void_p) for name in ("sizes", "begins_empty")),
        *((name, ctypes.c_void_p) for name in ("outputs", "pointers", "cumulative")),
        *((name, ctypes.c_void_p) for name in ("elements", "queries", "untouched", "score_weight", "score_bias")),
        *((name, ctypes.c_void_p) for name in ("key_weight", "key_bias", "key_gain", "key_shift")),
        *((name, ctypes.c_void_p) for name in ("weight1", "bias1", "weight2", "bias2", "gain", "shift")),
    )


class _Run:
    """One run, from its forward to its backward pass.

    Attributes:
        train: whether there will be a backward pass.
        succeeded: whether the forward pass found results.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        like: torch.Tensor,
        sizes: list[int],
        begins_empty: torch.Tensor,
        slots: int,
        dropouts: Dropouts,
        skip: float,
    ) -> None:
        name = TYPE_NAMES[like.dtype]
        self._forward, self._backward, self._free = (
            getattr(library, f"{what}_{name}") for what in ("forward", "backward", "free")
        )
        self._sizes = torch.tensor(sizes, dtype=torch.int64)
        self._begins_empty = begins_empty.to(torch.uint8).contiguous()
        self.num_parts = max(1, min(torch.get_num_threads(), sizes[0] // _SEQUENCES_PER_THREAD))
        self.slots = slots
        self.dropouts = dropouts
        self.skip = skip
        self.train = False
        self.succeeded = False
        self._state: int | None = None

    def forward(self, tensors: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return outputs, pointers and cumulative pointers, ``[tokens, ...]``.

        ``tensors`` are those of the source's ``Problem`` from ``elements`` on. They are contiguous.
        """
        self._seed = int(torch.randint(1 << 62, ())) if any(self.dropouts) else 0
        found = self._run_forward(tensors)
        self.succeeded = self._state is not None
        if not self.train:
            self._forget()
        return found

    def backward(
        self,
        tensors: Sequence[torch.Tensor | None],
        found: Sequence[torch.Tensor],
        gradients: tuple[torch.Tensor | None, ...],
    ) -> list[torch.Tensor | None]:
        """Return the gradients of the tensors.

        The state is overwritten, so a second backward pass runs forward again, with the same dropout.

        Args:
            tensors, found: those of the forward pass, and what it returned; all are contiguous.
            gradients: of ``found``.
        """
        if self._state is None:
            found = self._run_forward(tensors)
        problem = self._problem(tensors, found)
        incoming = [None if each is None else each.contiguous() for each in gradients]
        by_token = [None if each is None else torch.zeros_like(each) for each in tensors[:3]]
        of_weights = [None if each is None else each.new_zeros(self.num_parts, *each.shape) for each in tensors[3:]]
        own = structure(*map(address, (*incoming, *by_token, *of_weights)))
        try:
            self._backward(ctypes.c_void_p(self._state), ctypes.byref(problem), own)
        finally:
            self._forget()
        return [*by_token, *(None if each is None else each.sum(0) for each in of_weights)]

    def _run_forward(self, tensors: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        elements = tensors[0]
        assert elements is not None
        pointers, cumulative = (elements.new_empty(len(elements), self.slots) for _ in range(2))
        found = torch.empty_like(elements), pointers, cumulative
        state = ctypes.c_void_p()
        self._forward(ctypes.byref(self._problem(tensors, found)), ctypes.byref(state))
        self._state = state.value
        return found

    def _problem(self, tensors: Sequence[torch.Tensor | None], found: Sequence[torch.Tensor]) -> _Problem:
        return _Problem(
            *(len(self._sizes), found[0].shape[1], self.slots, self.num_parts, self.train, self._seed),
            *(self.skip, self.dropouts.cell, self.dropouts.memory),
            *map(address, (self._sizes, self._begins_empty, *found, *tensors)),
        )

    def _forget(self) -> None:
        if self._state is not None:
            self._free(ctypes.c_void_p(self._state))
            self._state = None

    def __del__(self) -> None:
        self._forget()


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        contiguous = [None if each is None else each.contiguous() for each in tensors]
        found = run.forward(contiguous)
        ctx.run = run
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, *found, *contiguous)
        return found

    @staticmethod
    @once_differentiable(remedy="set layer.engine to 'naive'")
    def backward(ctx: Any, saved: tuple[Any, ...], *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        contiguous = [None if each is None else each.contiguous() for each in saved]
        return None, *ctx.run.backward(contiguous[3:], contiguous[:3], gradients)
