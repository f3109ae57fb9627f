"""The log probabilities of the steps of a policy, for its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.spinn.sequences import TransitionRun
from treemem.ops.spinn.weights import SHIFT


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
