"""Transitions over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from treemem.device_copy import to_device
from treemem.engines.affine import linear
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import LongestFirst, within
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.parsers.spinn.batched import Problem, batched_transitions
from treemem.networks.parsers.spinn.cuda import cuda_transitions
from treemem.networks.parsers.spinn.equations import REDUCE, SHIFT, Policy, SPINNWeights, Transitions, naive_transitions
from treemem.networks.parsers.spinn.native import native_transitions


class TransitionRun(NamedTuple):
    """What happened to sequences of ``tokens`` tokens in ``2 * tokens - 1`` steps.

    Attributes:
        roots: ``[h; c]``, ``[sequences, 2 * hidden_size]``; 0 for an empty sequence.
        logits: of shift and reduce before the temperature, ``[sequences, steps, 2]``, 0 after the last step; None
            without a tracker.
        actions: what was done, 0 shift and 1 reduce, int64 ``[sequences, steps]``; 0 after the last step.
        chosen: what was chosen or given, even if it was not possible; as ``actions``.
    """

    roots: torch.Tensor
    logits: torch.Tensor | None
    actions: torch.Tensor
    chosen: torch.Tensor

    def joined(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return which composition, from 1, joins the constituent that begins at a token with the one on its left.

        Args:
            lengths: int64 ``[sequences]``, on the CPU. The host waits once.

        Returns:
            ``[sequences, longest]``, 0 at the first token and at padding, NaN if the root is not finite.
        """
        longest = (self.actions.shape[1] + 1) // 2
        joined = torch.zeros(len(lengths), longest, dtype=self.roots.dtype)
        for row, (actions, length) in enumerate(zip(self.actions.tolist(), lengths.tolist(), strict=True)):
            begins: list[int] = []
            next_token = count = 0
            for action in actions[: max(2 * length - 1, 0)]:
                if action == REDUCE:
                    count += 1
                    joined[row, begins.pop()] = count
                else:
                    begins.append(next_token)
                    next_token += 1
        finite = self.roots.detach().isfinite().all(1, keepdim=True)
        return to_device(joined, self.roots.device).masked_fill(~finite, torch.nan)


def run_transitions(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: SPINNWeights,
    *,
    given: torch.Tensor | None = None,
    policy: Policy | None = None,
    engine: SequenceEngine = "auto",
) -> TransitionRun:
    """Run the transitions of sequences, each as if it were alone unless ``weights`` have norms.

    A transition that is not possible is replaced by the other one: a reduce of fewer than two nodes, and a shift after
    the last token.

    Args:
        leaves: ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``, on the right of each sequence padding of any
            content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of cell and tracker. With norms the sequences that are not empty have an effect on each other.
        given: transitions, int64 ``[sequences, 2 * longest - 1]``, where the leaves are.
        policy: chooses transitions if none are given; by default the likelier one.
        engine: ``"fused"`` (``"auto"``), in C++ or in kernels for CUDA where they can be used, or ``"naive"``. They
            give the same results, but draw other numbers. With norms both run all sequences step by step in torch.
    """
    policy = Policy() if policy is None else policy
    transition = None if weights.tracker is None else weights.tracker.transition

    def fused(
        rows: torch.Tensor, own_lengths: torch.Tensor, sizes: list[int], own_given: torch.Tensor | None
    ) -> TransitionRun:
        problem = Problem(own_lengths, sizes, own_given, policy)
        ran = cuda_transitions(rows, weights, problem)
        if ran is None and not weights.norms:
            ran = native_transitions(rows, weights, problem)
        roots, tracked, actions, chosen = batched_transitions(rows, weights, problem) if ran is None else ran
        return TransitionRun(roots, None if transition is None else linear(tracked, transition), actions, chosen)

    return run_engine(
        leaves,
        lengths,
        leaves.shape[2],
        given,
        engine,
        naive=None if weights.norms else lambda one, own_given: naive_transitions(one, weights, policy, own_given),
        fused=fused,
        has_logits=transition is not None,
    )


Fused = Callable[[torch.Tensor, torch.Tensor, list[int], torch.Tensor | None], TransitionRun]
"""Takes values, their lengths where the values are, how many sequences have each step, and given transitions.

The sequences are not empty, the longest first, and ``logits`` after the last step may be any."""


def run_engine(
    values: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
    given: torch.Tensor | None,
    engine: SequenceEngine,
    *,
    naive: Callable[[torch.Tensor, list[int] | None], Transitions] | None,
    fused: Fused,
    has_logits: bool,
) -> TransitionRun:
    """Run transitions on an engine, on sequences that are not empty, the longest first.

    Args:
        values: what the engines read, ``[sequences, longest, ...]``; padding is 0 when they do.
        lengths: int64 ``[sequences]``, on the CPU.
        width: of the roots.
        given: see :func:`run_transitions`.
        engine: which one.
        naive: runs one sequence; None: ``fused`` runs on both engines.
        fused: runs all.
        has_logits: whether there is a policy.
    """
    refuse_transforms_unless_naive(engine)
    sequences, longest = values.shape[:2]
    steps = max(2 * longest - 1, 0)
    order = LongestFirst(lengths, values.device)
    if not order.sizes:
        nothing = order.lengths_there.new_zeros(sequences, steps)
        logits = values.new_zeros(sequences, steps, 2) if has_logits else None
        return TransitionRun(values.new_zeros(sequences, width), logits, nothing, nothing.clone())
    values = order.of(values)
    if given is not None:
        given = given.index_select(0, order.rows)
    if engine == "naive" and naive is not None:
        rows = zip(
            values, order.lengths.tolist(), [None] * len(values) if given is None else given.tolist(), strict=True
        )
        alone = [naive(sequence[:length], actions) for sequence, length, actions in rows]
        roots, *of_steps = zip(*alone, strict=True)
        logits, actions, chosen = (
            pad_sequence([torch.as_tensor(item, device=values.device) for item in every], batch_first=True)
            for every in of_steps
        )
        ran = TransitionRun(torch.stack(roots), logits if has_logits else None, actions, chosen)
    else:
        ends = 2 * order.lengths[:, None] - 1
        sizes = (ends > torch.arange(2 * values.shape[1] - 1)).sum(0).tolist()
        ran = fused(values, order.lengths_there, sizes, given)
    logits = ran.logits
    if logits is not None:
        present = within(2 * order.lengths_there - 1, logits.shape[1])
        logits = order.back(logits.masked_fill(~present[:, :, None], 0), steps)
    return TransitionRun(order.back(ran.roots), logits, order.back(ran.actions, steps), order.back(ran.chosen, steps))


def transition_actions(reductions: NDArray[np.int64], begin: NDArray[np.int64]) -> torch.Tensor:
    """Return the transitions of sequences from the numbers of reductions after each token.

    Args:
        reductions: int64 ``[tokens of all sequences]``; one less than tokens in each sequence.
        begin: int64 ``[sequences + 1]``, where each sequence begins.

    Returns:
        int64 ``[sequences, 2 * longest - 1]``, on the CPU; 0 after the end of shorter sequences.
    """
    lengths = np.diff(begin)
    row = np.repeat(np.arange(len(lengths)), lengths)
    until = np.cumsum(reductions)
    before = np.concatenate([[0], until])[begin[:-1]]
    last = np.arange(len(reductions)) - np.repeat(begin[:-1], lengths) + until - np.repeat(before, lengths)
    actions = np.full((len(lengths), max(2 * int(lengths.max(initial=0)) - 1, 0)), REDUCE)
    actions[row, last - reductions] = 0
    steps = np.arange(actions.shape[1])
    return torch.from_numpy(np.where(steps < 2 * lengths[:, None] - 1, actions, 0))


class PolicySteps(NamedTuple):
    """The steps of sequences.

    Attributes:
        log_probability: of what was done, ``[sequences, steps]``; 0 after the last step.
        present: whether there is a step, bool ``[sequences, steps]``.
        free: whether both transitions were possible. At other steps the policy decides nothing.
    """

    log_probability: torch.Tensor
    present: torch.Tensor
    free: torch.Tensor


def policy_steps(run: TransitionRun, lengths: torch.Tensor, temperature: float) -> PolicySteps:
    """Return the log probabilities of the actions of a run with a tracker.

    Args:
        run: the sequences.
        lengths: int64 ``[sequences]``, where the run is.
        temperature: logits are divided by it.
    """
    if run.logits is None:
        raise ValueError("a run without a tracker has no policy")
    actions = run.actions
    shifts = (actions == SHIFT).long()
    before = shifts.cumsum(1) - shifts
    step = torch.arange(actions.shape[1], device=actions.device)
    length = lengths[:, None]
    present = step < 2 * length - 1
    free = present & (2 * before - step >= 2) & (before < length)
    log_probability = (run.logits / temperature).log_softmax(2).gather(2, actions[:, :, None]).squeeze(2)
    return PolicySteps(log_probability.masked_fill(~present, 0), present, free)
