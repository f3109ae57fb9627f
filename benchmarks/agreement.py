"""Whether all ways of running a workload's network do the same: no speed counts before."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.ways import Outcome, by_engine
from benchmarks.workloads import BASELINES, Workload
from treemem.dgl_import import MissingDGLError, import_dgl


class Disagreement(Exception):
    """Two ways of running one problem have different outcomes, so that no speed is worth printing."""


def check_agreement(workload: Workload, baselines: Sequence[str]) -> None:
    """Compare all ways of running a small problem of the workload's sort, in float64.

    Scores and gradients must be those of the definition, DGL's message passing (or, without DGL, of going node by
    node).

    Raises:
        Disagreement: they are not.
    """
    problem = workload.small_problem()
    expected = by_engine(problem, "naive" if has_dgl() else "recursive").outcome()
    found: dict[str, Outcome | None] = {"ours": by_engine(problem).outcome()}
    found |= {name: BASELINES[name](problem).outcome() for name in baselines}
    for name, outcome in found.items():
        if outcome is not None:
            _compare(f"{workload.name}: {name}", outcome, expected)


def has_dgl() -> bool:
    """Whether DGL can be imported."""
    try:
        import_dgl()
    except MissingDGLError:
        return False
    return True


def _compare(who: str, found: Outcome, expected: Outcome) -> None:
    if found.gradients.keys() != expected.gradients.keys():
        raise Disagreement(f"{who} has gradients of {sorted(found.gradients)}, not of {sorted(expected.gradients)}")
    pairs = {"the scores": (found.scores, expected.scores)}
    pairs |= {f"the gradient of {name}": (found.gradients[name], each) for name, each in expected.gradients.items()}
    for name, (value, wanted) in pairs.items():
        tolerance = 1e-10 * max(1.0, float(wanted.abs().max()))
        if not torch.allclose(value, wanted, rtol=0, atol=tolerance):
            raise Disagreement(f"{who} differs in {name} by {float((value - wanted).abs().max()):.1e}")
