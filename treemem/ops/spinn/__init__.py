"""A stack and a buffer: transitions shift tokens and compose the two topmost nodes."""

from __future__ import annotations

from treemem.ops.spinn.policy import PolicySteps, policy_steps
from treemem.ops.spinn.sequences import SPINNEngine, TransitionRun, run_transitions, transition_actions
from treemem.ops.spinn.weights import Policy, SPINNWeights, TrackerWeights

__all__ = [
    "Policy",
    "PolicySteps",
    "SPINNEngine",
    "SPINNWeights",
    "TrackerWeights",
    "TransitionRun",
    "policy_steps",
    "run_transitions",
    "transition_actions",
]
