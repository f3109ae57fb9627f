"""A stack and a buffer: transitions shift tokens and compose the two topmost nodes."""

from __future__ import annotations

from treemem.ops.spinn.naive import REDUCE, SHIFT, Policy, SPINNWeights, TrackerWeights
from treemem.ops.spinn.sequences import (
    PolicySteps,
    TransitionRun,
    policy_steps,
    run_engine,
    run_transitions,
    transition_actions,
)

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
