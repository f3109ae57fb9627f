"""A stack and a buffer: transitions shift tokens and compose the two topmost nodes."""

from __future__ import annotations

from treemem.ops.spinn.sequences import (
    PolicySteps,
    TransitionRun,
    policy_steps,
    run_engine,
    run_transitions,
    transition_actions,
)
from treemem.ops.spinn.weights import REDUCE, SHIFT, Policy, SPINNWeights, TrackerWeights

__all__ = [
    "REDUCE",
    "SHIFT",
    "Policy",
    "PolicySteps",
    "SPINNWeights",
    "TrackerWeights",
    "TransitionRun",
    "policy_steps",
    "run_engine",
    "run_transitions",
    "transition_actions",
]
