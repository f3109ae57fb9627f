"""The Recurrent-Recursive Network over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from functools import partial

import torch

from treemem.ops.rrnet.batched import batched_rrnet
from treemem.ops.rrnet.naive import naive_rrnet
from treemem.ops.rrnet.weights import RRNetWeights
from treemem.ops.sequence_engine import SequenceEngine
from treemem.ops.spinn import Policy, TransitionRun, run_engine


def run_rrnet(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    weights: RRNetWeights,
    *,
    given: torch.Tensor | None = None,
    policy: Policy | None = None,
    engine: SequenceEngine = "auto",
) -> TransitionRun:
    """Run the transitions of sequences, each as if it were alone; see :func:`treemem.ops.spinn.run_transitions`.

    Args:
        inputs: the tokens' vectors, ``[sequences, longest, hidden_size]``, on the right of each sequence padding of any
            content.
        lengths, given, policy, engine: see there.
        weights: of cell and policy.

    Raises:
        RecipeError: an unknown engine.
    """
    policy = Policy() if policy is None else policy
    return run_engine(
        inputs,
        lengths,
        2 * inputs.shape[2],
        given,
        engine,
        naive=lambda own, own_given: naive_rrnet(own, weights, policy, own_given),
        fused=partial(batched_rrnet, weights=weights, policy=policy),
        has_logits=weights.policy is not None,
    )
