"""Running one layer on several engines and comparing every output and every gradient by its name."""

from __future__ import annotations

import importlib.util
from typing import get_args

import numpy as np
import pytest
import torch

from treemem.engines.propagate import Engine
from treemem.nn import TreeNetwork, TreeStates
from treemem.schedule.tree_batch import TreeBatch

HAS_DGL = importlib.util.find_spec("dgl") is not None
NO_DGL = "DGL is not installed"
needs_dgl = pytest.mark.skipif(not HAS_DGL, reason=NO_DGL)

ENGINES: tuple[Engine, ...] = tuple(
    engine for engine in get_args(Engine) if engine not in ("native", "cuda") and (engine != "naive" or HAS_DGL)
)
"""All that run any cell; ``"auto"`` is ``"native"`` or ``"cuda"`` where that can run."""
REFERENCE: Engine = "naive" if HAS_DGL else "autograd"
"""The readable engine that the others are held to."""


def results(
    network: TreeNetwork, batch: TreeBatch, engine: Engine, feat: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """Every state, the encodings, and the gradient of every parameter and feature of a loss that reads them all."""
    network.engine = engine
    network.zero_grad()
    own_feat = None if feat is None else feat.detach().clone().requires_grad_()
    states = network(batch, own_feat)
    assert isinstance(states, TreeStates)
    found = {name: states[name] for name in states.names} | {"root": states.root}
    weighted = [(value * _fixed_noise(value, salt)).sum() for salt, value in enumerate(found.values())]
    torch.stack(weighted).sum().backward()
    gradients = {
        f"gradient of {name}": torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in network.named_parameters()
    }
    if own_feat is not None:
        gradients["gradient of feat"] = torch.zeros_like(own_feat) if own_feat.grad is None else own_feat.grad
    return {name: value.detach() for name, value in {**found, **gradients}.items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], where: str) -> None:
    """Assert that two results agree: in float64 to 1e-10, in float32 to 1e-5 of the tensor's largest entry."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        tolerance = (1e-10 if value.dtype == torch.float64 else 1e-5) * largest
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance, err_msg=f"{name}, {where}")


def _fixed_noise(value: torch.Tensor, salt: int) -> torch.Tensor:
    place = torch.arange(value.numel(), dtype=value.dtype, device=value.device)
    return torch.cos(place * 0.7 + salt).view(value.shape)
