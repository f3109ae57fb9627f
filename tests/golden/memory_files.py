"""Checks of golden files of memories that a controller drives. Their tensors are time first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.networks.memories.memory import Memory
from treemem.networks.memories.neural_stack.equations import End, naive_run
from treemem.networks.memories.nondeterministic_stack.equations import naive_readings
from treemem.nn import NeuralDeque, NeuralQueue, NeuralStack, NondeterministicStack, SuperpositionStack


def batch_first(arrays: Arrays, *names: str) -> list[torch.Tensor]:
    found = [torch.from_numpy(arrays[name]) for name in names]
    if found[0].ndim == 2:  # a single example
        found = [each[:, None] for each in found]
    return [each.transpose(0, 1).contiguous() for each in found]


def steps(memory: Memory, value: torch.Tensor, *actions: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What is read after each step, and the strengths."""
    state = memory.initial(len(value), value.shape[-1], value)
    readouts, strengths = [], []
    for step in range(value.shape[1]):
        state, readout = memory.step(state, value[:, step], *(action[:, step] for action in actions))
        readouts.append(readout)
        strengths.append(state.strength)
    return torch.stack(readouts, 1), strengths


def check_one_ended(arrays: Arrays, *, memory_class: type[NeuralStack | NeuralQueue], end: End) -> None:
    """Readouts, strengths and gradients: by the equations as they stand, by steps, and over the whole sequence."""
    value, push, pop = (each.requires_grad_() for each in batch_first(arrays, "V", "push", "pop"))
    expected = batch_first(arrays, "strengths")[0] if arrays["strengths"].ndim == 3 else arrays["strengths"][None]
    (read,) = batch_first(arrays, "read") if arrays["read"].ndim == 3 else (torch.from_numpy(arrays["read"])[None],)
    memory = memory_class()
    by_step, strengths = steps(memory, value, push, pop)
    naive, all_strengths = naive_run(value, push, pop, end)
    same(all_strengths, np.asarray(expected), "strengths")
    for step, strength in enumerate(strengths):
        same(strength, np.asarray(expected)[:, step, : step + 1], f"strengths of step {step}")
    for found in (naive, by_step, memory(value, push, pop)):
        same(found, read.numpy(), "read")
        if "loss_weight" in arrays:
            loss = (found * torch.from_numpy(arrays["loss_weight"]).transpose(0, 1)).sum()
            gradients = torch.autograd.grad(loss, (value, push, pop))
            for gradient, name in zip(gradients, ("grad_V", "grad_push", "grad_pop"), strict=True):
                same(gradient.transpose(0, 1), arrays[name], name)
    for strength in (0.5, 2.0):
        name = f"read_strength_{strength:g}"
        if name in arrays:
            memory = memory_class(read_strength=strength)
            for found in (steps(memory, value, push, pop)[0], memory(value, push, pop)):
                same(found.transpose(0, 1), arrays[name], name)


def check_deque(arrays: Arrays) -> None:
    """Readouts and strengths; those of step ``t`` stand at ``T - t - 1`` to ``T + t``."""
    top, bottom = (batch_first(arrays, *(f"{name}_{end}" for name in ("V", "push", "pop"))) for end in ("top", "bot"))
    value, push, pop = (torch.stack(pair, 2) for pair in zip(top, bottom, strict=True))
    read, strengths = steps(NeuralDeque(), value, push, pop)
    expected = torch.cat(batch_first(arrays, "read_top", "read_bot"), 2)
    same(read, expected.numpy(), "read")
    same(NeuralDeque()(value, push, pop), expected.numpy(), "read of the whole sequence")
    time = value.shape[1]
    for step, strength in enumerate(strengths):
        same(strength, arrays["strengths"][step][:, time - step - 1 : time + step + 1], f"strengths of step {step}")


def check_superposition(arrays: Arrays) -> None:
    """The stack after each step."""
    stack = torch.from_numpy(arrays["stack0"])
    memory = SuperpositionStack(stack.shape[1], empty=0.0)
    for step, (actions, value) in enumerate(zip(arrays["actions"], arrays["push_value"], strict=True)):
        push, pop, no_op = torch.from_numpy(actions).unbind(1)
        stack, _ = memory.step(stack, torch.from_numpy(value), push, pop, no_op)
        same(stack, arrays["stack"][step], f"stack of step {step}")


def check_stack_rnn(arrays: Arrays) -> None:
    """A plain recurrent network with two stacks. Its actions are one softmax over those of both."""
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    _, batch, num_stacks, depth, size = arrays["stacks"].shape
    memory = SuperpositionStack(depth, empty=0.0)
    hidden = torch.zeros(batch, len(arrays["W_h"]), dtype=torch.float64)
    stack = memory.initial(batch * num_stacks, size, hidden)
    for step, x in enumerate(weights["x"]):
        tops = stack[:, 0].reshape(batch, -1)
        of_input = torch.cat([x, tops], 1) @ weights["W_x"] + weights["b_x"]
        hidden = torch.relu(of_input + hidden @ weights["W_h"] + weights["b_h"])
        value = (hidden @ weights["W_push"] + weights["b_push"]).reshape(-1, size)
        actions = (hidden @ weights["W_act"] + weights["b_act"]).softmax(1).reshape(-1, 3)
        stack, _ = memory.step(stack, value, *actions.unbind(1))
        same(hidden, arrays["y"][step], f"output of step {step}")
        same(stack.reshape(batch, num_stacks, depth, size), arrays["stacks"][step], f"stacks of step {step}")


def check_nondeterministic(arrays: Arrays) -> None:
    """What is read, with gradients: by the paper's recurrences, and by steps."""
    actions = [torch.from_numpy(arrays[name]).requires_grad_() for name in ("push", "replace", "pop")]
    memory = NondeterministicStack(*actions[0].shape[2:4])
    flat = [each.flatten(2) for each in actions]
    for found in (naive_readings(*actions)[0].exp().flatten(2), memory(*flat)):
        same(found, arrays["read"], "read")
        gradients = torch.autograd.grad((found * torch.from_numpy(arrays["loss_weight"])).sum(), actions)
        for gradient, name in zip(gradients, ("grad_push", "grad_replace", "grad_pop"), strict=True):
            same(gradient, arrays[name], name)


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "neural_stack.npz": partial(check_one_ended, memory_class=NeuralStack, end="top"),
    "neural_stack_figure1.npz": partial(check_one_ended, memory_class=NeuralStack, end="top"),
    "neural_queue.npz": partial(check_one_ended, memory_class=NeuralQueue, end="bottom"),
    "neural_deque_numpy.npz": check_deque,
    "joulin_stack_update.npz": check_superposition,
    "stack_rnn_core.npz": check_stack_rnn,
    "nondeterministic_stack.npz": check_nondeterministic,
}
