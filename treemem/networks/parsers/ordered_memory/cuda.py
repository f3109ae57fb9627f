"""The Ordered Memory on CUDA: products of torch's BLAS and one kernel between two products, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import WIDEST, block_of, power_of_2
from treemem.native.run import NativeRun, Tensors, own_gradient, run_native
from treemem.native.second_derivative import graph_is_retained
from treemem.networks.parsers.ordered_memory.equations import (
    BELOW_THRESHOLD,
    PackedSteps,
    Problem,
    dropped,
    project,
    queries_of,
)
from treemem.networks.parsers.ordered_memory.printed import HIDDEN, STEPS, driven_weights

_LARGEST = 32768  # bytes of a block, which has a vector of each slot
_ROW_NUMBERS = 512  # of a block that composes; the fewer, the more programs there are

ROW_STEPS = {kind: RowStep(printed) for kind, printed in STEPS.items()}
_HIDDEN = RowStep(HIDDEN)


def kernel_steps(problem: Problem, trace: bool) -> PackedSteps | None:
    """Return the same as ``naive``, or None if kernels are not wanted or cannot be used. Autocast is off inside.

    They need what :meth:`treemem.engines.cuda.launcher.Launcher.why_not` says, ``hidden_size`` up to 1,024, and blocks
    of up to 32 KiB, which are the slots times ``hidden_size``, each as a power of 2.
    """
    with torch.autocast(problem.inputs.device.type, enabled=False):
        return _steps(problem, trace)


def _steps(problem: Problem, trace: bool) -> PackedSteps | None:
    weights, dropouts = problem.weights, problem.dropouts
    maps = (weights.input, weights.input_norm, *weights.attention, *weights.cell)
    bias = weights.input.bias
    inputs = problem.inputs.to(bias.dtype)  # autocast may have lowered their precision
    given = [inputs, *(tensor for affine in maps for tensor in affine)]
    size = len(bias)
    num_bytes = power_of_2(problem.slots) * block_of(size) * bias.element_size()
    if size > WIDEST or num_bytes > _LARGEST or not runs_kernels(given):
        return None
    projected = project(inputs, weights)
    queries = queries_of(projected[problem.sizes[0] :], weights.attention, dropouts.memory)
    tensors = [projected, dropped(projected, dropouts.cell), queries, *driven_weights(weights)]
    train = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    outputs, pointers, cumulative = run_native(_Run(problem, train), *tensors)
    return PackedSteps(outputs, pointers if trace else None, cumulative if trace else None)


class _Tensors(NamedTuple):
    """What a run reads, or its gradients; ``below`` is what the product of the first slot reads of elements."""

    elements: Any
    below: Any
    queries: Any
    score_weight: Any
    score_bias: Any
    key_weight: Any
    key_bias: Any
    key_gain: Any
    key_shift: Any
    weight1: Any
    bias1: Any
    weight2: Any
    bias2: Any
    gain: Any
    shift: Any


class _Kept(NamedTuple):
    """What a forward pass leaves; ``kernels.py`` says what tokens, pairs and held rows are.

    Attributes:
        pointers, cumulative, scores: ``[tokens, slots]``.
        candidates, memories, keys: held rows.
        read: what the product of the keys reads, held rows.
        both: what the first product of the cell reads: of the slot below, and of the memory, ``[pairs, 2 * D]``.
        hidden, mapped: pairs; ``hidden`` is None if the cell has no gates.
        factors, hidden_factors, key_factors, score_factors: of dropout, or None: of ``both``, of ``hidden``, of
            ``read``, and of what the scores read, held rows.
    """

    pointers: Any
    cumulative: Any
    scores: Any
    candidates: Any
    memories: Any
    keys: Any
    read: Any
    both: Any
    hidden: Any
    mapped: Any
    factors: Any
    hidden_factors: Any
    key_factors: Any
    score_factors: Any


class _Step(NamedTuple):
    """A step: its sequences, the slots from which on it composes and holds, and where its rows begin and end."""

    size: int
    first: int
    front: int
    token: int
    held: slice
    pairs: slice


class _Plan:
    """Where the rows of all steps are.

    Args:
        sizes: how many sequences each step has.
        slots: how many there are.
        keeps: whether each step has rows of its own; if not, steps take turns.

    Attributes:
        steps: one for each size.
        held, pairs: number of rows.
        most_held, most_pairs: of a step.
    """

    def __init__(self, sizes: list[int], slots: int, keeps: bool) -> None:
        firsts = [max(slots - 1 - t, 0) for t in range(len(sizes))]
        fronts = [max(first - 1, 0) for first in firsts]
        num_held = [(slots - front) * size for front, size in zip(fronts, sizes, strict=True)]
        num_pairs = [(slots - first) * size for first, size in zip(firsts, sizes, strict=True)]
        self.most_held, self.most_pairs = max(num_held), max(num_pairs)
        self.steps: list[_Step] = []
        token = held = pair = 0
        for t, size in enumerate(sizes):
            begins = (held, pair) if keeps else (t % 2 * self.most_held, 0)
            rows = _slice(begins[0], num_held[t]), _slice(begins[1], num_pairs[t])
            self.steps.append(_Step(size, firsts[t], fronts[t], token, *rows))
            token, held, pair = token + size, held + num_held[t], pair + num_pairs[t]
        self.held, self.pairs = (held, pair) if keeps else (2 * self.most_held, self.most_pairs)


def _slice(begin: int, count: int) -> slice:
    return slice(begin, begin + count)


class _Run(NativeRun):
    """One run, from its forward to its backward pass; ``train`` says whether there will be one."""

    def __init__(self, problem: Problem, train: bool) -> None:
        self._problem, self._train = problem, train
        self._plan = _Plan(problem.sizes, problem.slots, train or any(problem.dropouts))
        self._slot, self._score = ROW_STEPS[type(problem.weights.cell)], ROW_STEPS[type(problem.weights.attention)]

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """``C`` of the last slot, ``p`` and ``cp`` of all tokens, and what a backward pass reads."""
        given, plan = _Tensors(*tensors), self._plan
        kept, pre = self._memory(given)
        outputs = torch.empty_like(given.elements)
        D = outputs.shape[1]
        of_vertical, of_memory = given.weight1[:, :D].t(), given.weight1[:, D:].t()
        before = None
        for step in plan.steps:
            if before is None:
                self._begin(step, given, kept)
            else:
                self._attend(before, step, given, kept)
            inner = kept.mapped[step.pairs] if pre is None else pre[: step.pairs.stop - step.pairs.start]
            torch.addmm(given.bias1, kept.both[step.pairs, D:], of_memory, out=inner)
            for slot, of_slot in zip(range(step.first, self._problem.slots), inner.split(step.size), strict=True):
                pairs = self._pairs(step, slot)
                of_slot.addmm_(kept.both[pairs, :D], of_vertical)
                if pre is not None:
                    factors = None if kept.hidden_factors is None else kept.hidden_factors[pairs]
                    _HIDDEN.forward([of_slot], [], [], [kept.hidden[pairs]], factors)
                    torch.addmm(given.bias2, kept.hidden[pairs], given.weight2.t(), out=kept.mapped[pairs])
                self._compose(step, slot, given, kept, outputs)
            before = step
        return [outputs, kept.pointers, kept.cumulative], [outputs, *given, *kept] if self._train else []

    def _memory(self, given: _Tensors) -> tuple[_Kept, torch.Tensor | None]:
        """Memory for what the forward pass leaves, with factors of dropout, and for ``W_1 [v; h] + b_1`` of a step."""
        (tokens, D), H, plan = given.elements.shape, len(given.bias1), self._plan
        new, (cell_rate, memory_rate) = given.elements.new_empty, self._problem.dropouts

        def factors(rate: float, *shape: int) -> torch.Tensor | None:
            return new(shape).bernoulli_(1 - rate).div_(1 - rate or 1) if rate else None

        def numbers() -> torch.Tensor:
            return new(tokens, self._problem.slots)

        candidates, is_gated = new(plan.held, D), given.weight2 is not None
        kept = _Kept(
            pointers=numbers(),
            cumulative=numbers(),
            scores=numbers(),
            candidates=candidates,
            memories=torch.empty_like(candidates),
            keys=torch.empty_like(candidates),
            read=torch.empty_like(candidates) if memory_rate else candidates,
            both=new(plan.pairs, 2 * D),
            hidden=new(plan.pairs, H) if is_gated else None,
            mapped=new(plan.pairs, H),
            factors=factors(cell_rate, plan.pairs, 2 * D),
            hidden_factors=factors(cell_rate, plan.pairs, H) if is_gated else None,
            key_factors=factors(memory_rate, plan.held, D),
            score_factors=factors(memory_rate, plan.held, D),
        )
        return kept, new(plan.most_pairs, H) if is_gated else None

    def _begin(self, step: _Step, given: _Tensors, kept: _Kept) -> None:
        """The first step attends to nothing, and its memory is empty."""
        D, size = given.elements.shape[1], step.size
        for values in (kept.pointers, kept.cumulative):
            values[:size] = 0
            values[:size, -1] = self._problem.begins_empty
        kept.memories[step.held] = 0
        kept.candidates[step.held][:size] = given.elements[:size]
        both = kept.both[step.pairs]
        both[:, :D], both[:, D:] = given.below[:size], 0

    def _attend(self, before: _Step, step: _Step, given: _Tensors, kept: _Kept) -> None:
        from treemem.networks.parsers.ordered_memory.kernels import attend

        if kept.key_factors is not None:
            torch.mul(kept.candidates[before.held], kept.key_factors[before.held], out=kept.read[before.held])
        of_keys, read, out = given.key_weight.t(), kept.read[before.held], kept.keys[before.held]
        if given.key_bias is None:
            torch.mm(read, of_keys, out=out)
        else:
            torch.addmm(given.key_bias, read, of_keys, out=out)
        tensors = (
            *self._of_scores(given, kept), given.elements, given.below, kept.candidates, kept.memories, kept.scores,
            kept.pointers, kept.cumulative, kept.both,
        )  # fmt: skip
        numbers = *self._numbers(before, step), step.held.start, step.pairs.start
        launcher().launch(attend, (step.size,), *tensors, *numbers, **self._constants(given, "step"))

    def _of_scores(self, given: _Tensors, kept: _Kept) -> tuple[Any, ...]:
        of_scores = kept.keys, given.queries, given.score_weight, given.key_gain, given.key_shift
        return *of_scores, kept.score_factors, kept.factors

    def _numbers(self, before: _Step, step: _Step) -> tuple[int, ...]:
        query = step.token - self._problem.sizes[0]
        of_step = step.token, step.size, query, step.front, step.first
        return *of_step, before.token, before.held.start, before.size, before.front

    def _constants(self, given: _Tensors, kernel: str) -> dict[str, Any]:
        return attention_constants(
            self._score, kernel, given.elements.shape[1], self._problem.slots, self._problem.skip
        )

    def _pairs(self, step: _Step, slot: int) -> slice:
        return _slice(step.pairs.start + (slot - step.first) * step.size, step.size)

    def _compose(self, step: _Step, slot: int, given: _Tensors, kept: _Kept, outputs: torch.Tensor) -> None:
        from treemem.networks.parsers.ordered_memory.kernels import compose

        pair, is_last = self._pairs(step, slot).start, slot == self._problem.slots - 1
        following = (outputs, None) if is_last else (kept.both, kept.factors)
        tensors, (size, *numbers) = self._of_slot(step, slot, given, kept)
        next_row = (step.token, outputs.shape[1]) if is_last else (pair + size, 2 * outputs.shape[1])
        constants = self._slot_constants(slot, given, "step")
        grid = (-(-size // constants["ROWS"]),)
        launcher().launch(compose, grid, *tensors, kept.candidates, *following, size, *numbers, *next_row, **constants)

    def _of_slot(self, step: _Step, slot: int, given: _Tensors, kept: _Kept) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Tensors and numbers that both passes read."""
        held = step.held.start + (slot - step.front) * step.size
        is_first = slot == step.first
        below, below_row = (given.elements, step.token) if is_first else (kept.candidates, held - step.size)
        tensors = kept.mapped, kept.cumulative, below, kept.memories, given.elements, given.gain, given.shift
        return tensors, (step.size, below_row, step.token, held, self._pairs(step, slot).start, slot)

    def _slot_constants(self, slot: int, given: _Tensors, kernel: str) -> dict[str, Any]:
        slots = self._problem.slots
        skip = 0.0 if slot == slots - 1 else self._problem.skip
        return slot_constants(self._slot, kernel, given.elements.shape[1], slots, skip)

    def backward(self, kept: Any, incoming: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of all tensors, from those of ``C``, ``p`` and ``cp``."""
        size, plan = 1 + len(_Tensors._fields), self._plan
        given, left = _Tensors(*kept[1:size]), _Kept(*kept[size:])
        g, D = self._gradients(given, left, incoming), given.elements.shape[1]
        of_vertical, of_memory = given.weight1[:, :D], given.weight1[:, D:]
        for t, step in reversed([*enumerate(plan.steps)]):
            for slot in reversed(range(step.first, self._problem.slots)):
                pairs = self._pairs(step, slot)
                self._compose_backward(t, slot, given, left, g)
                if left.hidden is not None:
                    d_hidden, hidden = g.hidden[: step.size], [left.hidden[pairs]]
                    torch.mm(g.mapped[pairs], given.weight2, out=d_hidden)
                    factors = None if left.hidden_factors is None else left.hidden_factors[pairs]
                    _HIDDEN.backward(hidden, [], [], hidden, [d_hidden], [g.inner[pairs]], [], None, factors)
                is_first = slot == step.first
                d_vertical = g.below[_slice(step.token, step.size)] if is_first else g.vertical[: step.size]
                torch.mm(g.inner[pairs], of_vertical, out=d_vertical)
            if t:
                torch.mm(g.inner[step.pairs], of_memory, out=g.held[: step.pairs.stop - step.pairs.start])
                self._attend_backward(t, given, left, g)
                before = plan.steps[t - 1].held
                rows = _slice(self._d_held(t - 1), before.stop - before.start)
                torch.mm(g.keys[before], given.key_weight, out=g.read[rows])
        has_keys = slice(0, plan.steps[-1].held.start)
        d_keys, score = g.keys[has_keys], g.score.sum(0)
        of_norm = (None, None, None) if given.key_bias is None else (d_keys.sum(0), *score[1:])
        d_cell = [g.inner.t() @ left.both, g.inner.sum(0), None, None, None, None]
        if left.hidden is not None:
            d_cell[2:] = g.mapped.t() @ left.hidden, g.mapped.sum(0), *g.norm.sum(0)
        of_score = score[:1], torch.zeros_like(given.score_bias)  # which changes no pointer
        return [g.elements, g.below, g.queries, *of_score, d_keys.t() @ left.read[has_keys], *of_norm, *d_cell]

    def _gradients(self, given: _Tensors, kept: _Kept, incoming: Tensors) -> _Gradients:
        """Memory for gradients, with 0 where they are added up."""
        plan, size = self._plan, self._plan.steps[0].size
        (_, D), H = given.elements.shape, kept.mapped.shape[1]
        new, zeros = given.elements.new_empty, given.elements.new_zeros
        mapped, keys = kept.mapped, kept.keys
        if graph_is_retained():
            mapped, keys = map(torch.empty_like, (mapped, keys))
        outputs, pointers = (None if gradient is None else gradient.contiguous() for gradient in incoming[:2])
        is_gated = kept.hidden is not None
        programs = -(-size // slot_blocks(D)["ROWS"])
        return _Gradients(
            outputs=outputs,
            pointers=pointers,
            cumulative=own_gradient(incoming[2], kept.cumulative),
            elements=torch.zeros_like(given.elements),
            below=torch.empty_like(given.below),
            queries=torch.empty_like(given.queries),
            mapped=mapped,
            inner=torch.empty_like(kept.mapped) if is_gated else mapped,
            hidden=new(size, H) if is_gated else None,
            above=new(size, D),
            vertical=new(size, D),
            held=new(plan.most_pairs, D),
            candidates=zeros(2 * plan.most_held, D),
            memories=zeros(2 * plan.most_held, D),
            read=zeros(2 * plan.most_held, D),
            keys=keys,
            norm=zeros(programs, 2, D) if is_gated else None,
            score=zeros(size, 1 if given.key_bias is None else 3, D),
        )

    def _d_held(self, t: int) -> int:
        """Where the gradients of held rows begin; two steps take turns."""
        return t % 2 * self._plan.most_held

    def _compose_backward(self, t: int, slot: int, given: _Tensors, kept: _Kept, g: _Gradients) -> None:
        from treemem.networks.parsers.ordered_memory.kernels import compose_backward

        step = self._plan.steps[t]
        is_first, is_last = slot == step.first, slot == self._problem.slots - 1
        tensors, (size, *numbers) = self._of_slot(step, slot, given, kept)
        above = (g.outputs, None) if is_last else (g.above, g.vertical)
        following = self._pairs(step, slot).stop
        d_held = self._d_held(t) + (slot - step.front) * size
        gradients = (
            *above, g.candidates, g.read, g.mapped, g.cumulative, None if is_first else g.above, g.memories, g.elements,
            g.norm,
        )  # fmt: skip
        places = following, d_held, step.token if is_last else 0
        constants = self._slot_constants(slot, given, "step_backward")
        grid, factors = (-(-size // constants["ROWS"]),), (kept.factors, kept.key_factors)
        front = is_first and step.front < step.first
        arguments = *tensors, *factors, *gradients, size, *numbers, *places
        launcher().launch(compose_backward, grid, *arguments, FRONT=front, **constants)

    def _attend_backward(self, t: int, given: _Tensors, kept: _Kept, g: _Gradients) -> None:
        from treemem.networks.parsers.ordered_memory.kernels import attend_backward

        before, step = self._plan.steps[t - 1 : t + 1]
        left = kept.candidates, kept.memories, kept.scores, kept.pointers, kept.cumulative
        gradients = g.pointers, g.cumulative, g.held, g.candidates, g.memories, g.keys, g.queries, g.score
        numbers = *self._numbers(before, step), self._d_held(t), step.pairs.start, self._d_held(t - 1)
        tensors = *self._of_scores(given, kept), *left, *gradients
        launcher().launch(
            attend_backward, (before.size,), *tensors, *numbers, **self._constants(given, "step_backward")
        )


class _Gradients(NamedTuple):
    """Gradients of a run.

    Attributes:
        outputs, pointers, cumulative: from outside; the last one gets those from within too.
        elements, below, queries, mapped, keys: of what has these names.
        inner: of ``W_1 [v; h] + b_1``, pairs.
        hidden: of a slot, or None.
        above: of what a slot reads of the one below, element by element; ``vertical``, by the product.
        held: of what the products of a step read of the memory.
        candidates, memories, read: held rows of two steps.
        norm: of the layer norm, by program, or None.
        score: of what the step of the score learns, by sequence.
    """

    outputs: Any
    pointers: Any
    cumulative: Any
    elements: Any
    below: Any
    queries: Any
    mapped: Any
    inner: Any
    hidden: Any
    above: Any
    vertical: Any
    held: Any
    candidates: Any
    memories: Any
    read: Any
    keys: Any
    norm: Any
    score: Any


def attention_constants(step: RowStep, kernel: str, D: int, slots: int, skip: float) -> dict[str, Any]:
    """Return what is known when the kernels of attention are compiled; ``kernel`` is the function of the step."""
    known = {"S": slots, "SKIP": skip, "BELOW_THRESHOLD": BELOW_THRESHOLD, "D": D}
    return {**known, "SLOTS": power_of_2(slots), "BLOCK": block_of(D), "STEP": step.kernels[kernel]}


def slot_constants(step: RowStep, kernel: str, D: int, slots: int, skip: float) -> dict[str, Any]:
    """Return the same for the kernels that compose."""
    return {"S": slots, "SKIP": skip, **slot_blocks(D), "STEP": step.kernels[kernel], "maxnreg": 255}


def slot_blocks(D: int) -> dict[str, int]:
    """Return the constants of the kernels that compose: the width of vectors and the sizes of a block."""
    return {"D": D, "ROWS": max(1, _ROW_NUMBERS // block_of(D)), "BLOCK": block_of(D)}
