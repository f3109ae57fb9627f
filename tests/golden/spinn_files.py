"""Checks of golden files of SPINN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.spinn.equations import Policy, SPINNWeights, TrackerWeights
from treemem.networks.parsers.spinn.run import TransitionRun, policy_steps, run_transitions

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
Parameters = dict[str, torch.Tensor]


def weights(own: Parameters) -> SPINNWeights:
    """Our weights of their parameters: maps and norms of parts as one, the tracker's gates in blocks."""
    size = own["reduce.left.weight"].shape[1]
    bias = own["reduce.left.bias"]
    ones = torch.zeros_like(bias)
    ones[size : 3 * size] = 1  # which their code adds to the forget gates
    cell = Affine(torch.cat([own["reduce.left.weight"], own["reduce.right.weight"]], 1), bias + ones)
    norms = ()
    if "reduce.left_ln.a2" in own:
        composed, tops = ("reduce.left", "reduce.right"), ("tracker.buf", "tracker.stack1", "tracker.stack2")
        norms = tuple(
            Affine(*(torch.cat([own[f"{name}_ln.{part}"] for name in names]) for part in ("a2", "b2")))
            for names in (composed, tops, ("reduce.track",))
        )
    if "tracker.buf.weight" not in own:
        return SPINNWeights(cell, None)
    inputs = torch.cat([own[f"tracker.{name}.weight"] for name in ("buf", "stack1", "stack2")], 1)
    tracker = TrackerWeights(
        Affine(blocks(inputs), blocks(own["tracker.buf.bias"])),
        blocks(own["tracker.lateral.weight"]),
        own["reduce.track.weight"],
        Affine(own["transition_net.weight"], own["transition_net.bias"]),
    )
    return SPINNWeights(cell, tracker, norms)


def blocks(values: torch.Tensor) -> torch.Tensor:
    """Input gate, forget gate, update, output gate, from update, input, forget, output of one unit after the other."""
    update, input_gate, forget_gate, output_gate = values.unflatten(0, (-1, 4)).unbind(1)
    return torch.cat([input_gate, forget_gate, update, output_gate])


def swapped(values: torch.Tensor) -> torch.Tensor:
    """``[h; c]`` from ``[c; h]``, or the other way round."""
    return torch.cat(values.chunk(2, -1)[::-1], -1)


def check_spinn(arrays: Arrays, further_loss: Callable[[Arrays, TransitionRun, torch.Tensor], torch.Tensor]) -> None:
    """Roots and gradients, of the batch or, with sampled transitions, row by row."""
    lengths = torch.from_numpy(arrays["lengths"])
    for engine in ENGINES:
        own = {
            name.removeprefix("param."): torch.from_numpy(arrays[name]).clone().requires_grad_()
            for name in arrays
            if name.startswith("param.")
        }
        inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
        run = partial(run_transitions, weights=weights(own), engine=engine)
        if "transitions" in arrays:
            given = torch.from_numpy(arrays["transitions"]).clamp(max=1)
            found = run(swapped(inputs), lengths, given=given)
        else:
            policy = partial(_policy, arrays)
            rows = [
                run(swapped(inputs[row : row + 1]), lengths[row : row + 1], policy=policy(row))
                for row in range(len(lengths))
            ]
            fields = ([each[name] for each in rows] for name in range(4))
            found = TransitionRun(*(torch.cat(each) for each in fields))
        same(swapped(found.roots), arrays["output"], f"output ({engine})")
        loss = (swapped(found.roots) * torch.from_numpy(arrays["loss_weight"])).sum()
        (loss + further_loss(arrays, found, lengths)).backward()
        for name, parameter in own.items():
            assert parameter.grad is not None, name
            same(parameter.grad, arrays[f"grad.{name}"], f"gradient of {name} ({engine})")
        assert inputs.grad is not None
        same(inputs.grad, arrays["grad_input"], f"gradient of inputs ({engine})")


def _policy(arrays: Arrays, row: int) -> Policy:
    if "uniform" not in arrays:
        return Policy(float(arrays["temperature"]))
    drawn = iter(torch.from_numpy(arrays["uniform"][:, row]))
    return Policy(float(arrays["temperature"]), lambda shape: next(drawn).expand(shape))


def no_loss(arrays: Arrays, found: TransitionRun, lengths: torch.Tensor) -> torch.Tensor:
    return torch.zeros(())


def transition_loss(arrays: Arrays, found: TransitionRun, lengths: torch.Tensor) -> torch.Tensor:
    """The negative log likelihood of given transitions."""
    steps = policy_steps(found, lengths, 1.0)
    loss = -steps.log_probability.sum() / steps.present.sum()
    same(loss, arrays["transition_loss"], "transition_loss")
    assert found.logits is not None
    present = steps.present.numpy()
    same(found.logits[steps.present], arrays["transition_logits"].transpose(1, 0, 2)[present], "logits")
    return loss


def policy_loss(arrays: Arrays, found: TransitionRun, lengths: torch.Tensor) -> torch.Tensor:
    """The loss of REINFORCE over all steps, with a given advantage."""
    steps = policy_steps(found, lengths, float(arrays["temperature"]))
    taken = arrays["taken"].T
    present = steps.present.numpy()
    np.testing.assert_array_equal(taken != 2, present)
    np.testing.assert_array_equal(found.actions.numpy()[present], taken[present])
    np.testing.assert_array_equal(found.chosen.numpy()[present], arrays["sampled"].T[present])
    weighted = steps.log_probability * torch.from_numpy(arrays["advantage"])[:, None]
    loss = -float(arrays["rl_weight"]) * weighted.sum() / steps.present.sum()
    same(loss, arrays["policy_loss"], "policy_loss")
    return loss


_reinforced: Any = partial(check_spinn, further_loss=policy_loss)
CHECKS: dict[str, Callable[[Arrays], None]] = {
    "spinn_given.npz": partial(check_spinn, further_loss=no_loss),
    "spinn_tracker.npz": partial(check_spinn, further_loss=transition_loss),
    "spinn_tracker_norm.npz": partial(check_spinn, further_loss=transition_loss),
    "rl_spinn_sampled.npz": _reinforced,
    "rl_spinn_greedy.npz": _reinforced,
}
