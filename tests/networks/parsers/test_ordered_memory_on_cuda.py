"""The kernels of the Ordered Memory, in Triton's interpreter on a fake device: sharp attention, dropout, inference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, fake_device
from torch import Tensor

from treemem.networks.parsers.ordered_memory import cuda, equations
from treemem.networks.parsers.ordered_memory.equations import Dropouts, Problem
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.networks.parsers.ordered_memory.run import ordered_memory
from treemem.ops import cuda_kernels

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

INPUT_SIZE, SIZE = 3, 5
KINDS: Any = [("gated", "layer_norm"), ("rnn", "tanh")]


class Reading:
    """Maps and sequences on a device, and what is computed of them."""

    def __init__(self, kinds: Any, lengths: list[int], device: Any = "cpu", sharpness: float = 1.0) -> None:
        torch.manual_seed(0)
        maps = MemoryMaps(INPUT_SIZE, SIZE, *kinds).double()
        for parameter in maps.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
        with torch.no_grad():
            maps.score_map.weight.mul_(sharpness)
        inputs = torch.randn(len(lengths), max(lengths), INPUT_SIZE).double()
        self.maps, self.lengths = maps.to(device), torch.tensor(lengths)
        self.inputs = inputs.to(device).requires_grad_()
        self.leaves = {"inputs": self.inputs, **dict(self.maps.named_parameters())}

    def run(self, slots: int, **options: Any) -> dict[str, Tensor]:
        steps = ordered_memory(self.inputs, self.lengths, self.maps.weights(), slots, trace=True, **options)
        return steps._asdict()

    def gradients(self, outputs: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """The gradients of :func:`weighed`, on the CPU."""
        found = torch.autograd.grad(weighed(outputs), [*self.leaves.values()], **options)
        return {f"gradient of {name}": value.cpu() for name, value in zip(self.leaves, found, strict=True)}

    def results(self, slots: int, **options: Any) -> dict[str, Tensor]:
        outputs = self.run(slots, **options)
        return {**on_cpu(outputs), **self.gradients(outputs)}


def weighed(outputs: dict[str, Tensor]) -> Tensor:
    """A sum of all numbers, each with another weight."""
    weights = {name: torch.arange(value.numel(), device=value.device).cos() for name, value in outputs.items()}
    return torch.stack([(value.flatten() * weights[name]).sum() for name, value in outputs.items()]).sum()


def on_cpu(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in outputs.items()}


def test_slots_out_of_reach_and_skipped_ones_are_those_of_the_definition() -> None:
    """With sharp scores, slots out of reach have by far the highest ones, and slots fall below the threshold."""
    lengths, options = [6, 4], {"slots": 3, "begins_empty": torch.tensor([False, True]), "skip": 1e-3}
    expected = Reading(KINDS[0], lengths, sharpness=150.0).results(engine="naive", **options)
    with cuda_kernels(True), fake_device():
        found = Reading(KINDS[0], lengths, DEVICE, sharpness=150.0).results(**options)
    assert bool((expected["cumulative"][expected["cumulative"] < 1e-3] > 0).any())
    assert_same(found, expected, "sharp")


@pytest.mark.parametrize("kinds", KINDS)
def test_dropout_acts_on_what_each_map_reads(kinds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that drops nothing, and multiplies what it keeps, shows where it acts."""
    for module in (equations, cuda):
        monkeypatch.setattr(module, "dropped", lambda values, rate: values / (1 - rate))
    monkeypatch.setattr(Tensor, "bernoulli_", lambda values, rate: values.fill_(1))
    lengths, options = [4, 2], {"slots": 2, "dropouts": Dropouts(0.3, 0.4)}
    expected = Reading(kinds, lengths).results(engine="naive", **options)
    with cuda_kernels(True), fake_device():
        found = Reading(kinds, lengths, DEVICE).results(**options)
    assert_same(found, expected, "dropout")


@pytest.mark.parametrize("kinds", KINDS)
def test_gradients_with_dropout_are_those_of_the_same_masks_each_time(kinds: Any) -> None:
    options, step = {"slots": 2, "dropouts": Dropouts(0.4, 0.3)}, 1e-6
    with cuda_kernels(True), fake_device():
        reading = Reading(kinds, [3, 2], DEVICE)

        def outputs() -> dict[str, Tensor]:
            torch.manual_seed(3)
            return reading.run(**options)

        first = outputs()
        gradients = reading.gradients(first, retain_graph=True)
        assert_same(reading.gradients(first), gradients, "a second backward pass")
        change = {name: torch.randn(leaf.shape).double() for name, leaf in reading.leaves.items()}
        ends = []
        with torch.no_grad():
            for times in (1, -2):
                for name, leaf in reading.leaves.items():
                    leaf.add_(change[name].to(DEVICE), alpha=times * step)
                ends.append(float(weighed(outputs())))
    slope = sum(float((gradients[f"gradient of {name}"] * value).sum()) for name, value in change.items())
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=1e-6)


def test_steps_that_keep_nothing_give_the_same() -> None:
    with cuda_kernels(True), fake_device():
        reading = Reading(KINDS[0], [5, 1], DEVICE)
        expected = on_cpu(reading.run(2))
        with torch.no_grad():
            assert_same(on_cpu(reading.run(2)), expected, "without gradients")


def test_torch_runs_where_a_block_would_be_too_large() -> None:
    with cuda_kernels(True), fake_device():
        reading = Reading(KINDS[0], [2], DEVICE)
        inputs, begins_empty = reading.inputs[0], torch.zeros(1, dtype=torch.bool).to(DEVICE)
        problem = Problem(inputs, [1, 1], begins_empty, reading.maps.weights(), 256)
        assert cuda.kernel_steps(problem, True) is not None
        assert cuda.kernel_steps(problem._replace(slots=257), True) is None
