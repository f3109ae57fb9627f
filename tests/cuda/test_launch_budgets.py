"""How many kernels CUDA launches in a training step of each network, counted on the fake device.

On small batches a step takes as long as its launches. What adds some must raise a budget here, and so be seen.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from device_cases import CASES, outcome, placed
from fake_device import DEVICE, HAS_INTERPRETER, fake_device

from benchmarks.device import CPU, measure_on
from benchmarks.encoders import ENCODERS, ordered_memory_batch
from benchmarks.memories import MEMORIES
from benchmarks.ways import by_engine
from benchmarks.workloads import WORKLOADS as BENCHMARKS
from treemem.networks import every_network
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.nn import TreeNetwork
from treemem.ops import cuda_kernels
from treemem.registry import folder_constants

LENGTH = 4
"""Trees of this height, or sequences that grow with it."""
BUDGETS = {
    **{
        name: budget
        for _, budgets in folder_constants("treemem.networks", "LAUNCHES")
        for name, budget in budgets.items()
    },
    "Tree-LSTM, both ways": 197,
    "Tree-LSTM with features": 81,
    "Tree-LSTM, part by part": 113,
    "own cell": 59,
    "memory cell, stack": 108,
    "memory cell, registers": 139,
    "memory cell, registers, cosine": 166,
    "memory cell, registers, straight-through": 149,
    "memory cell, queue": 103,
    "memory cell, deque": 118,
    "memory cell, superposition stack": 96,
    "memory cell, doubly linked list": 503,
    "cell, GRU": 69,
    "known actions, top": 20,
    "known actions, bottom": 20,
    "attention, bilinear": 37,
    "RNN with a superposition stack": 53,
    "transduction": 82,
}
"""Those of networks stand in their folders. The loss, which weighs all outputs, takes some 20 launches."""

needs_interpreter = pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU")


def launches_of(name: str) -> int:
    """The launches of a training step, which has run before if it traces formulas at first."""
    torch.manual_seed(0)
    with cuda_kernels(True), fake_device(runs_kernels=False) as device:
        case = placed(CASES[name](LENGTH), DEVICE, torch.float32)
        for _ in range(1 + isinstance(case.module, TreeNetwork)):
            case.module.zero_grad()
            device.launches = 0
            outcome(case)
    return device.launches


def check(launches: int, budget: int) -> None:
    assert launches <= budget
    assert launches >= 0.9 * budget, "lower the budget, so that what is won stays"


def test_every_network_has_a_budget() -> None:
    assert every_network(LENGTH).keys() <= BUDGETS.keys() <= CASES.keys()


@needs_interpreter
@pytest.mark.parametrize("name", BUDGETS)
def test_networks_stay_within_their_budgets(name: str) -> None:
    check(launches_of(name), BUDGETS[name])


WORKLOADS = {
    "equations 8-13 batch 1024 shared": 60,
    "sst hidden 150": 98,
    "logic tree-rnn hidden 200 shared": 58,
    "logic tree-cell hidden 200 shared": 72,
}
"""Budgets of the benchmarks' steps, with heads and losses. The equations have 13 levels, and states of 60 numbers."""
SEQUENCES = {
    "on-lstm 1150": 309,
    "crvnn 64": 436,
    "gumbel tree-lstm 64": 176,
    "ebt-grc 64": 354,
    "bt-grc 64": 262,
    "prpn 64": 326,
    "spinn 64": 112,
    "neural stack 128 steps": 9,
    "rnn 128 with a neural stack": 17,
    "rnn 128 with a neural deque": 17,
    "lstm 64 with registers": 20,
    "rnn 32 with a superposition stack": 18,
    "lstm 64 with a superposition stack": 18,
    "gru 128 with attention": 27,
    "lstm 128": 11,
    "gru 128": 11,
}
"""Budgets of the benchmarks of sequence networks and memories."""


@needs_interpreter
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_of_the_benchmarks_stay_within_their_budgets_and_wait_for_nothing(name: str) -> None:
    (workload,) = (workload for workload in (*ENCODERS, *MEMORIES) if workload.name == name)
    with cuda_kernels(True), fake_device(runs_kernels=False) as device:
        measure_on(DEVICE)
        try:
            operation = workload.make(False, torch.float32)
        finally:
            measure_on(CPU)
        device.launches, device.waits = 0, Counter()
        operation.ours(operation.dropout).sum().backward()
    assert not device.waits
    check(device.launches, SEQUENCES[name])


@needs_interpreter
def test_an_ordered_memory_of_21_slots_over_50_tokens_stays_within_its_budget_and_waits_for_nothing() -> None:
    """As in the benchmark of the published size, but narrow: launches depend on neither width nor sequences."""
    with cuda_kernels(True), fake_device(runs_kernels=False) as device:
        maps, inputs = MemoryMaps(4, 4, "gated").to(DEVICE), torch.randn(2, 50, 4).to(DEVICE)
        operation = ordered_memory_batch(maps, inputs, torch.full((2,), 50), 21)
        device.launches, device.waits = 0, Counter()
        operation.ours(operation.dropout).sum().backward()
    assert not device.waits
    check(device.launches, 7150)


@needs_interpreter
@pytest.mark.parametrize("name", WORKLOADS)
def test_steps_of_the_benchmarks_stay_within_their_budgets_and_wait_for_nothing(name: str) -> None:
    (workload,) = (workload for workload in BENCHMARKS if workload.name == name)
    with cuda_kernels(True), fake_device(runs_kernels=False) as device:
        measure_on(DEVICE)
        try:
            problem = workload.problem(0)
            way, step = by_engine(problem), problem.step(0)
        finally:
            measure_on(CPU)
        for _ in range(2):
            problem.zero_grad()
            device.launches, device.waits = 0, Counter()
            problem.loss(way._encode(step.batch, step.feat), step.label).backward()
    assert not device.waits
    check(device.launches, WORKLOADS[name])
