"""The Gumbel Tree-LSTM on CUDA: each pair is composed once, and a step is a product of torch's BLAS and two kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from treemem.engines.affine import Affine
from treemem.engines.choices import ROUNDING, Noise
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import WIDEST, block_of, power_of_2
from treemem.engines.sequence_lengths import LongestFirst
from treemem.native.run import NativeRun, Tensors, run_native
from treemem.networks.trees.tree_lstm.equations import bounded_tree_lstm_of_two, tree_lstm_of_two

_STEPS = {False: RowStep(tree_lstm_of_two), True: RowStep(bounded_tree_lstm_of_two)}
_LONGEST = 1024  # of sequences, whose pairs a program takes at once
_NUMBERS = 2048  # of all nodes of a sequence that a program reads at a time


def cuda_trees(
    leaves: torch.Tensor,
    order: LongestFirst,
    cell: Affine,
    query: torch.Tensor,
    temperature: float | None,
    noise: Noise | None,
    *,
    bounded: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what ``naive_trees`` does, or None if kernels cannot be used.

    Args:
        leaves, order, temperature, noise: see there.
        cell: see ``compose``, which is ``bounded`` or not.
        query: of the scores ``query . h``.
    """
    tensors = [leaves, *cell, query]
    _, longest, width = leaves.shape
    if not 2 <= longest <= _LONGEST or width > 2 * WIDEST or not runs_kernels(tensors):
        return None
    run = _Trees(order, temperature, bounded)
    run.noise = None if noise is None else noise((sum(run.choices[:-1]),))
    roots, compositions, places = run_native(run, *tensors)
    return roots, compositions, places


class _Kept(NamedTuple):
    """What the backward pass reads; see ``kernels.py``.

    Attributes:
        lengths, weight, query: as they came in.
        temperature: one number; None: choices have no gradients.
        states, gates, inputs, scores, children: of nodes and pairs.
        nodes, pairs: before each step, int64 ``[longest, sequences, longest]``.
        chosen: pairs, int64 ``[sequences, longest - 1]``.
        probability: of the choices, step after step.
    """

    lengths: Any
    weight: Any
    query: Any
    temperature: Any
    states: Any
    gates: Any
    inputs: Any
    scores: Any
    children: Any
    nodes: Any
    pairs: Any
    chosen: Any
    probability: Any


class _Trees(NativeRun):
    """One run. The first pairs are those of adjacent leaves, ``longest - 1`` a sequence; a choice makes two more.

    Args:
        order: of the sequences.
        temperature: of the probabilities; None: choices have no gradients.
        bounded: whether a node hands ``tanh(c)`` to its parent instead of ``c``.

    Attributes:
        choices: how many pairs each step has, of sequences as long as the longest.
        noise: of all but the last of them, or None.
    """

    refusal = None
    noise: torch.Tensor | None = None

    def __init__(self, order: LongestFirst, temperature: float | None, bounded: bool) -> None:
        self._bounded = bounded
        self._lengths, self._sizes, self._temperature = order.lengths_there, order.sizes, temperature
        self._longest, self._sequences = len(order.sizes), order.sizes[0]
        self._num_leaves, self._of_leaves = self._sequences * self._longest, self._sequences * (self._longest - 1)
        self.choices = [active * (self._longest - step) for step, active in enumerate(order.sizes[1:], 1)]

    def forward(self, tensors: Any) -> tuple[tuple[torch.Tensor, ...], Tensors]:
        """The roots, the compositions and the places of the choices."""
        leaves, weight, bias, query = tensors
        sequences, longest, width = leaves.shape
        num_pairs = self._of_leaves + 2 * sum(self._sizes[2:])
        kept = _Kept(
            self._lengths,
            weight,
            query,
            None if self._temperature is None else leaves.new_full((1,), self._temperature),
            leaves.new_empty(self._num_leaves + num_pairs, width),
            leaves.new_empty(num_pairs, len(bias)),
            leaves.new_empty(num_pairs, width),
            leaves.new_empty(num_pairs),
            self._lengths.new_empty(num_pairs, 2),
            self._lengths.new_empty(longest, sequences, longest),
            self._lengths.new_empty(longest, sequences, longest),
            self._lengths.new_zeros(sequences, longest - 1),
            None if self._temperature is None else leaves.new_empty(sum(self.choices)),
        )
        self._begin(leaves, kept)
        compositions, places = leaves.new_zeros(sequences, longest - 1, width), torch.zeros_like(kept.chosen)
        roots = leaves[:, 0].clone()
        noise, probability = self._by_step(self.noise), self._by_step(kept.probability)
        self._compose(0, self._of_leaves, kept, bias)
        for step, active, first, going_on in self._steps():
            at = step - 1
            here = kept.nodes[at], kept.nodes[step], kept.pairs[at], kept.pairs[step], kept.children, kept.states
            results = places, kept.chosen, compositions, roots, kept.inputs
            numbers = self._num_leaves, longest, kept.temperature
            of_pairs = kept.scores, noise[at], probability[at]
            arguments = step, first, going_on, kept.lengths, *here, *of_pairs, *results, *numbers
            self._launch("choose", (active,), kept, *arguments)
            self._compose(first, 2 * going_on, kept, bias)
        return (roots, compositions, places), kept

    def _begin(self, leaves: torch.Tensor, kept: _Kept) -> None:
        """Fill in leaves and their pairs."""
        sequences, longest, width = leaves.shape
        kept.states[: self._num_leaves] = leaves.flatten(0, 1)
        nodes = torch.arange(self._num_leaves, device=leaves.device).view(sequences, longest)
        kept.nodes[0] = nodes
        kept.pairs[0, :, :-1] = torch.arange(self._of_leaves, device=leaves.device).view(sequences, longest - 1)
        kept.children[: self._of_leaves] = torch.stack([nodes[:, :-1], nodes[:, 1:]], 2).flatten(0, 1)
        hidden = leaves[:, :, : width // 2]
        kept.inputs[: self._of_leaves] = torch.cat([hidden[:, :-1], hidden[:, 1:]], 2).flatten(0, 1)

    def _compose(self, first: int, count: int, kept: _Kept, bias: torch.Tensor) -> None:
        if not count:
            return
        gates, inputs = (rows[first : first + count] for rows in (kept.gates, kept.inputs))
        torch.addmm(bias, inputs, kept.weight.t(), out=gates)
        arguments = kept.gates, kept.children, kept.states, kept.query, kept.scores, self._num_leaves
        self._launch("compose", (count,), kept, first, *arguments)

    def _launch(self, kernel: str, grid: tuple[int, ...], kept: _Kept, *arguments: Any) -> None:
        from treemem.networks.parsers.gumbel_tree_lstm import kernels

        known = _known(kernel, len(kept.query), self._longest, kept.states.dtype, _STEPS[self._bounded])
        launcher().launch(getattr(kernels, kernel), grid, *arguments, **known)

    def backward(self, saved: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of leaves, cell and query."""
        kept = _Kept(*saved)
        d_roots, d_compositions, _ = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        size, width = len(kept.query), kept.states.shape[1]
        d_states, d_scores = torch.zeros_like(kept.states), torch.zeros_like(kept.scores)
        d_pairs, d_gates = torch.zeros_like(kept.inputs), torch.empty_like(kept.gates)
        d_cells, scratch = kept.inputs.new_empty(self._sequences, width), kept.scores.new_empty(self._num_leaves)
        of_h = of_c = None
        if kept.temperature is not None:
            of_c = torch.empty_like(kept.inputs)
            self._pair_gradients(kept, None, None, d_gates, of_c)
            of_h = d_gates @ kept.weight
        outgoing = d_states, d_roots, d_compositions, d_scores, d_pairs, d_gates, d_cells, scratch
        numbers = self._num_leaves, self._longest, kept.temperature
        probability = self._by_step(kept.probability)
        for step, active, _, _ in reversed(self._steps()):
            at = step - 1
            here = kept.nodes[at], kept.nodes[step], kept.pairs[at], kept.children, kept.states, kept.gates
            of_score = (of_h, of_c) if step + 1 < self._longest else (None, None)  # the last pair has no rival
            arguments = step, kept.lengths, *here, kept.chosen, probability[at], *of_score, *outgoing, *numbers
            self._launch("choice_backward", (active,), kept, *arguments)
            d_hidden = d_gates[:active] @ kept.weight
            of_children = kept.children, kept.chosen, d_hidden, d_cells, d_states, self._longest
            self._launch("add_to_children", (active, 2), kept, step, *of_children)
        self._pair_gradients(kept, d_scores, d_pairs, d_gates, None)
        d_leaves = d_states[: self._num_leaves].view(self._sequences, self._longest, width)
        if d_roots is not None and self._sizes[1] < self._sequences:
            d_leaves[self._sizes[1] :, 0] += d_roots[self._sizes[1] :]  # trees of one leaf
        composed = kept.states[self._num_leaves :, :size]
        return [d_leaves, d_gates.t() @ kept.inputs, d_gates.sum(0), composed.t() @ d_scores]

    def _pair_gradients(self, kept: _Kept, *of_pairs: torch.Tensor | None) -> None:
        arguments = kept.gates, kept.children, kept.states, kept.query, *of_pairs, self._num_leaves
        self._launch("pair_gradients", (len(kept.gates),), kept, *arguments)

    def _steps(self) -> list[tuple[int, int, int, int]]:
        """Of each step its number, the sequences that choose, the first new pair, and the sequences with new pairs."""
        first, steps = self._of_leaves, []
        for step, (active, going_on) in enumerate(zip(self._sizes[1:], [*self._sizes, 0][2:], strict=True), 1):
            steps.append((step, active, first, going_on))
            first += 2 * going_on
        return steps

    def _by_step(self, of_choices: torch.Tensor | None) -> Sequence[torch.Tensor | None]:
        """Numbers of the choices of each step."""
        if of_choices is None:
            return [None] * len(self.choices)
        parts = of_choices.split(self.choices if len(of_choices) == sum(self.choices) else self.choices[:-1])
        return [*parts, None]


def _known(kernel: str, size: int, longest: int, dtype: torch.dtype, cell: RowStep) -> dict[str, Any]:
    """What is known when a kernel of ``kernels.py`` is compiled, for nodes of ``size`` numbers."""
    known: dict[str, Any] = {"H": size, "BLOCK": block_of(size)}
    nodes = power_of_2(longest)
    if kernel == "compose":
        return {**known, "STEP": cell.step}
    if kernel == "choose":
        return {**known, "LONGEST": nodes, "ROUNDING": ROUNDING * torch.finfo(dtype).eps}
    if kernel == "pair_gradients":
        return {**known, "STEP": cell.step_backward}
    if kernel == "choice_backward":
        part = max(16, min(block_of(size), _NUMBERS // nodes))
        return {**known, "LONGEST": nodes, "PART": part, "STEP": cell.step_backward}
    return known
