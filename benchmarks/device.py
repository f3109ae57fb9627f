"""The device that is measured, and what a step costs there besides time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

CPU = torch.device("cpu")
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")
_measured = CPU


def measure_on(device: torch.device) -> None:
    """Measure everything on this device from here on."""
    global _measured
    _measured = device


def measured_device() -> torch.device:
    """The device that is measured."""
    return _measured


def synchronize() -> None:
    """Wait until the device has done everything."""
    if _measured.type == "cuda":
        torch.cuda.synchronize(_measured)


class Calls(NamedTuple):
    """What a step asks of CUDA.

    Attributes:
        launches: kernels.
        waits: times that the host waited for the device.
    """

    launches: int
    waits: int


def calls_of(step: Callable[[], object]) -> Calls:
    """Count the calls of a step on CUDA, which ran before."""
    synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        step()
        synchronize()  # cudaDeviceSynchronize, which does not count
    counts = {event.key: event.count for event in profiled.key_averages()}
    return Calls(*(sum(counts.get(name, 0) for name in names) for names in (_LAUNCHES, _WAITS)))


def peak_of(step: Callable[[], object]) -> int:
    """The most bytes of new tensors that a step holds at once on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    results = profiled.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
