"""Whether all ways of running a workload's network do the same: no speed counts before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.device import CPU, measured_device
from benchmarks.level_autograd import hidden_by_levels
from benchmarks.problem import Problem
from benchmarks.products import Products
from benchmarks.ways import Outcome, by_engine
from benchmarks.workloads import BASELINES, Workload
from treemem.dgl_import import MissingDGLError, import_dgl


class Disagreement(Exception):
    """Two ways of running one problem have different outcomes, so that no speed is worth printing."""


def check_agreement(workload: Workload, baselines: Sequence[str]) -> None:
    """Compare all ways of running a small problem of the workload's sort, in float64.

    Scores and gradients must be those of the definition, DGL's message passing (or, without DGL, of plain autograd).
    The products alone have neither; they must be as many multiplications as plain torch does.

    Raises:
        Disagreement: they are not.
    """
    reference, problem = workload.small_problem(CPU), workload.small_problem(measured_device())
    expected = by_engine(reference, "naive" if has_dgl() else "autograd").outcome()
    found: dict[str, Outcome | None] = {"ours": by_engine(problem, workload.engine).outcome()}
    found |= {name: BASELINES[name](problem).outcome() for name in baselines}
    for name, outcome in found.items():
        if outcome is not None:
            compare_outcomes(f"{workload.name}: {name}", outcome, expected)
    if "products" in baselines:
        alone, needed = _operations(Products(problem).train), _operations(lambda: _train_by_levels(problem))
        if alone != needed:
            raise Disagreement(f"{workload.name}: products do {alone:,} operations where {needed:,} are needed")


def has_dgl() -> bool:
    """Whether DGL can be imported."""
    try:
        import_dgl()
    except MissingDGLError:
        return False
    return True


def compare_outcomes(who: str, found: Outcome, expected: Outcome) -> None:
    """Compare scores and gradients to 1e-10.

    Raises:
        Disagreement: they differ.
    """
    if found.gradients.keys() != expected.gradients.keys():
        raise Disagreement(f"{who} has gradients of {sorted(found.gradients)}, not of {sorted(expected.gradients)}")
    pairs = {"the scores": (found.scores, expected.scores)}
    pairs |= {f"the gradient of {name}": (found.gradients[name], each) for name, each in expected.gradients.items()}
    for name, (value, wanted) in pairs.items():
        tolerance = 1e-10 * max(1.0, float(wanted.abs().max()))
        value, wanted = value.cpu(), wanted.cpu()
        if not torch.allclose(value, wanted, rtol=0, atol=tolerance):
            raise Disagreement(f"{who} differs in {name} by {float((value - wanted).abs().max()):.1e}")


def _train_by_levels(problem: Problem) -> None:
    """Forward and backward pass of the layer alone, in plain torch."""
    step = problem.step(0)
    hidden_by_levels(problem, step.batch.schedule, step.feat).sum().backward()


def _operations(work: Callable[[], object]) -> int:
    """Floating-point operations in the matrix products of ``work``."""
    with FlopCounterMode(display=False) as counted:
        work()
    return counted.get_total_flops()
