"""Results on a GPU, and on a fake one, against a plain engine on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cuda.test_launch_budgets import BUDGETS
from device_cases import CASES, outcome, placed
from engine_parity import assert_same
from fake_device import DEVICE, fake_device

from treemem.engines import autograd
from treemem.ops import compile_steps, cuda_kernels

ON_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]
FEW = ("Tree-LSTM", "known actions, top")
"""Cases that are also compared on the CPU, so that the comparison itself is tested everywhere."""
ORDINARY = {
    "Tree-RNN+stack", "Tree-LSTM+stack+normalize+no-op", "Child-Sum Tree-LSTM", "TreeCell", "Ordered Memory", "ON-LSTM",
    "RNN", "LSTM", "Transformer", "Universal Transformer with ACT", "Tree-LSTM, both ways", "Tree-LSTM, part by part",
    "own cell", "known actions, top", "memory cell, stack", "memory cell, deque", "memory cell, superposition stack",
    "memory cell, doubly linked list", "memory cell, registers", "attention, additive", "transduction",
    "transduction with attention, decoding", "head, relation",
}  # fmt: skip
"""Cases that the ordinary suite runs on the fake device, one of each engine; ``-m slow`` runs the others."""
WAITS = {
    "transduction, decoding": 2,
    "transduction, bidirectional, decoding": 2,
    "transduction with attention, decoding": 2,
    "language model, Transformer": 2,
}
"""How often a batch waits for the device, forwards and backwards; 0 for the others. All have more steps or levels."""


def compare(name: str, device: str, dtype: torch.dtype, kernels: bool = False) -> None:
    """Compare all outputs and gradients with those of the plain engine on the CPU in float64.

    The tolerance is 1e-10 in float64 and 1e-5 in float32, of a tensor's largest entry. In float32 it is larger by four
    times the error of the plain engine in float32: gradients of layer normalisation over almost equal numbers, as at
    the beginning of a sequence in PRPN, lose digits on any device.
    """
    torch.manual_seed(0)
    case = CASES[name](8)
    exact = outcome(placed(case, "cpu", torch.float64), plain=True)
    rounded = outcome(placed(case, "cpu", dtype), plain=True)
    with cuda_kernels(kernels):
        found = outcome(placed(case, device, dtype))
    assert found.keys() == exact.keys()
    for each, value in exact.items():
        largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        tolerance = (1e-10 if dtype == torch.float64 else 1e-5) * largest
        if dtype == torch.float32 and value.numel():
            tolerance += 4 * float((rounded[each] - value).abs().max())
        np.testing.assert_allclose(found[each].cpu(), value, rtol=0, atol=tolerance, err_msg=f"{each}, {name}")


def with_devices(few: tuple[str, ...]) -> list[Any]:
    """All cases on CUDA, and a few on the CPU."""
    return [pytest.param(name, "cuda", marks=ON_GPU) for name in CASES] + [pytest.param(name, "cpu") for name in few]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("name", "device"), with_devices(FEW))
def test_a_device_gives_what_the_plain_engine_gives_on_the_cpu(
    name: str, device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # in which cuDNN's LSTM would have 10 bits
    compare(name, device, dtype)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", BUDGETS)
def test_kernels_give_on_a_gpu_what_the_plain_engine_gives_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    compare(name, "cuda", dtype, kernels=True)


@pytest.mark.parametrize(("name", "device"), with_devices(("TreeCell", "SPINN")))
def test_autocast_to_bfloat16_is_within_two_percent(name: str, device: str) -> None:
    """Of a tensor's largest entry. Gradients behind rectifiers, some of which change sides, are left out."""
    if name.endswith("decoding"):
        pytest.skip("what is written is a choice, which rounding may change")
    torch.manual_seed(0)
    case = CASES[name](6)
    expected = outcome(placed(case, "cpu", torch.float32), plain=True)
    with torch.autocast(device, torch.bfloat16):
        found = outcome(placed(case, device, torch.float32))
    rectified = "Ordered Memory" in name or "Transformer" in name
    for each, value in expected.items():
        if value.numel() and not (rectified and each.startswith("gradient")):
            largest = max(1.0, float(value.abs().max()))
            assert float((found[each].cpu().float() - value).abs().max()) <= 2e-2 * largest, each


@pytest.mark.parametrize(
    "name", [each if each in ORDINARY else pytest.param(each, marks=pytest.mark.slow) for each in CASES]
)
def test_the_path_of_a_gpu_gives_the_same_and_waits_in_no_loop(name: str) -> None:
    """The fake device fails if an operation mixes devices or native code of the CPU is chosen."""
    torch.manual_seed(0)
    case = CASES[name](3)
    expected = outcome(placed(case, "cpu", torch.float64), plain=True)
    with fake_device() as device:
        own = placed(case, DEVICE, torch.float64)
        device.waits.clear()
        found = outcome(own)
        waits = device.waits.copy()
        found = {each: value.cpu() for each, value in found.items()}
    assert_same(found, expected, name)
    assert waits.total() <= WAITS.get(name, 0), waits


@pytest.mark.parametrize("name", WAITS)
def test_waits_do_not_grow_with_the_number_of_steps(name: str) -> None:
    totals = []
    for length in (2, 6):
        with fake_device(runs_kernels=False) as device:
            own = placed(CASES[name](length), DEVICE, torch.float64)
            device.waits.clear()
            outcome(own)
            totals.append(device.waits.total())
    assert totals[0] == totals[1]


def test_the_comparison_sees_a_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = autograd._selected
    monkeypatch.setattr(
        autograd, "_selected", lambda rows, places: exact(rows + 1e-8 * (rows - rows.detach()), places)
    )  # the same rows with other gradients
    with compile_steps(False), pytest.raises(AssertionError, match="gradient of"):
        compare("Tree-LSTM+stack", "cpu", torch.float64)


def test_the_fake_device_counts_waits_and_refuses_what_cuda_refuses() -> None:
    here = torch.arange(3.0)
    with fake_device() as device:
        there = here.to(DEVICE)
        assert device.waits.total() == device.copies == 1  # the copy does not come from pinned memory
        waiting = [
            lambda: there.tolist(), lambda: float(there.sum()), lambda: there[there > 1], lambda: there.cpu(),
            lambda: there.nonzero(), lambda: there[torch.tensor([1])], lambda: bool((there > 1).any()),
        ]  # fmt: skip
        for number, wait in enumerate(waiting, 2):
            wait()
            assert device.waits.total() == number
        assert (there + 1).where(there > 1, 0).cpu().tolist() == [0.0, 0.0, 3.0]
        with pytest.raises(AssertionError, match="mixes tensors of the device and of the CPU"):
            there + here
        with pytest.raises(AssertionError, match="native code of the CPU"):
            there.data_ptr()
