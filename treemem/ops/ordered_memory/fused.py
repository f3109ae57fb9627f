"""The Ordered Memory as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from treemem.ops.native.structures import Structure, structured_library
from treemem.ops.ordered_memory.naive import PackedSteps, project, queries_of, slot_scores
from treemem.ops.ordered_memory.weights import Dropouts, OrderedMemoryWeights, TanhScoreWeights
from treemem.ops.second_derivative import once_differentiable, save_for_backward

_SOURCE = Path(__file__).with_name("fused.cpp")
_SEQUENCES_PER_THREAD = 8  # fewer make products too small
_WEIGHTS = (
    "*score_weight, *score_bias",  # both divided by the root of hidden_size
    "*key_weight, *key_bias, *key_gain, *key_shift",  # the last three are null if the score has a tanh
    "*weight1, *bias1",
    "*weight2, *bias2, *gain, *shift",  # null if the cell is tanh(W_1 [v; h] + b_1)
)
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t num_steps, hidden_size, slots, num_parts, train, seed",
    "double skip, cell_dropout, memory_dropout",
    "const int64_t *sizes",  # [num_steps], sequences of each step, not ascending
    "const uint8_t *begins_empty",  # [sizes[0]]
    "REAL *outputs",  # [tokens, hidden_size]
    "REAL *pointers, *cumulative",  # [tokens, slots]
    "const REAL *elements",  # x, [tokens, hidden_size]
    "const REAL *queries",  # [tokens - sizes[0], hidden_size]
    "const REAL *untouched",  # score of the element before, [tokens - sizes[0]]
    *(f"const REAL {names}" for names in _WEIGHTS),
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "const REAL *outputs, *pointers, *cumulative",  # each may be null
    "REAL *elements, *queries, *untouched",
    *(f"REAL {names}" for names in _WEIGHTS),  # with a first axis of parts; null as in the problem
)


class _Tensors(NamedTuple):
    """What the C++ reads and gives gradients of, see ``_PROBLEM``."""

    elements: torch.Tensor
    queries: torch.Tensor
    untouched: torch.Tensor
    score_weight: torch.Tensor
    score_bias: torch.Tensor
    key_weight: torch.Tensor
    key_bias: torch.Tensor | None
    key_gain: torch.Tensor | None
    key_shift: torch.Tensor | None
    weight1: torch.Tensor
    bias1: torch.Tensor
    weight2: torch.Tensor | None = None
    bias2: torch.Tensor | None = None
    gain: torch.Tensor | None = None
    shift: torch.Tensor | None = None


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
    given = [inputs, *(tensor for affine in maps for tensor in affine)]
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS)
    if library is None:
        return None
    projected = project(inputs, weights)
    queries = queries_of(projected[sizes[0] :], attention, dropouts.memory)
    before = [part[:after] for part, after in zip(projected.split(sizes), sizes[1:], strict=False)]
    untouched = slot_scores(queries, torch.cat([projected[:0], *before]), attention, dropouts.memory)
    size = projected.shape[1]
    scale = 1 / math.sqrt(size)
    score = (each * scale for each in attention.score)
    if isinstance(attention, TanhScoreWeights):
        key: tuple[torch.Tensor | None, ...] = attention.map.weight[:, :size], None, None, None
    else:
        key = *attention.key, *attention.key_norm
    of_cell = (tensor for affine in cell for tensor in affine)
    tensors = _Tensors(projected, queries, untouched, *score, *key, *of_cell)
    run = _Run(library, sizes, begins_empty, slots, dropouts, skip)
    run.train = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
    outputs, pointers, cumulative = _Fused.apply(run, *tensors)
    if not run.succeeded:
        return None
    return PackedSteps(outputs, pointers if trace else None, cumulative if trace else None)


class _Run:
    """One run, from its forward to its backward pass.

    Attributes:
        train: whether there will be a backward pass.
        succeeded: whether the forward pass found results.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        sizes: list[int],
        begins_empty: torch.Tensor,
        slots: int,
        dropouts: Dropouts,
        skip: float,
    ) -> None:
        self._library = library
        self._sizes = torch.tensor(sizes, dtype=torch.int64)
        self._begins_empty = begins_empty.contiguous()
        self.num_parts = max(1, min(torch.get_num_threads(), sizes[0] // _SEQUENCES_PER_THREAD))
        self.slots = slots
        self.dropouts = dropouts
        self.skip = skip
        self.train = False
        self.succeeded = False
        self._state: int | None = None

    def forward(self, tensors: _Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return outputs, pointers and cumulative pointers, ``[tokens, ...]``; the tensors are contiguous."""
        self._seed = int(torch.randint(1 << 62, ())) if any(self.dropouts) else 0
        found = self._run_forward(tensors)
        self.succeeded = self._state is not None
        if not self.train:
            self._forget()
        return found

    def backward(
        self, tensors: _Tensors, found: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]
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
        outputs, pointers, cumulative = (None if each is None else each.contiguous() for each in gradients)
        by_token = [torch.zeros_like(each) for each in tensors[:3]]
        of_weights = [None if each is None else each.new_zeros(self.num_parts, *each.shape) for each in tensors[3:]]
        own = _Tensors(*by_token, *of_weights)._asdict()
        try:
            self._library.backward(
                ctypes.c_void_p(self._state),
                problem,
                _GRADIENTS(outputs=outputs, pointers=pointers, cumulative=cumulative, **own),
            )
        finally:
            self._forget()
        return [*by_token, *(None if each is None else each.sum(0) for each in of_weights)]

    def _run_forward(self, tensors: _Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        elements, state = tensors.elements, ctypes.c_void_p()
        pointers, cumulative = (elements.new_empty(len(elements), self.slots) for _ in range(2))
        found = torch.empty_like(elements), pointers, cumulative
        self._library.forward(self._problem(tensors, found), ctypes.byref(state))
        self._state = state.value
        return found

    def _problem(self, tensors: _Tensors, found: Sequence[torch.Tensor]) -> Any:
        outputs, pointers, cumulative = found
        return _PROBLEM(
            num_steps=len(self._sizes),
            hidden_size=outputs.shape[1],
            slots=self.slots,
            num_parts=self.num_parts,
            train=self.train,
            seed=self._seed,
            skip=self.skip,
            cell_dropout=self.dropouts.cell,
            memory_dropout=self.dropouts.memory,
            sizes=self._sizes,
            begins_empty=self._begins_empty,
            outputs=outputs,
            pointers=pointers,
            cumulative=cumulative,
            **tensors._asdict(),
        )

    def _forget(self) -> None:
        if self._state is not None:
            self._library.release(ctypes.c_void_p(self._state))
            self._state = None

    def __del__(self) -> None:
        self._forget()


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        contiguous: list[Any] = [None if each is None else each.contiguous() for each in tensors]
        found = run.forward(_Tensors(*contiguous))
        ctx.run = run
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, *found, *contiguous)
        return found

    @staticmethod
    @once_differentiable(remedy="set layer.engine to 'naive'")
    def backward(ctx: Any, saved: tuple[Any, ...], *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        contiguous: list[Any] = [None if each is None else each.contiguous() for each in saved]
        return None, *ctx.run.backward(_Tensors(*contiguous[3:]), contiguous[:3], gradients)
