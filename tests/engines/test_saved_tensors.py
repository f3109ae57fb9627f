"""Gradients where the tensors that a backward pass needs are computed again, moved or copied in the meantime."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from device_cases import CASES, Case, Named, placed
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from treemem.ops import compile_steps

NAMES = [name for name in CASES if not name.startswith("head") and "decoding" not in name]


class Copies(saved_tensors_hooks):
    """Saves copies that lie in memory in another way. What was saved is overwritten: nobody may read it any more."""

    def __init__(self, transposed: bool) -> None:
        self._saved: list[Tensor] = []
        self._transposed = transposed
        super().__init__(self._copied, lambda copy: copy)

    def _copied(self, tensor: Tensor) -> Tensor:
        self._saved.append(tensor)
        copy = tensor.detach().clone()
        return copy.mT.contiguous().mT if self._transposed and copy.dim() > 1 else copy

    def spoil(self) -> None:
        for tensor in self._saved:
            if tensor.is_floating_point():
                tensor.data.fill_(torch.nan)


def made(name: str, long: bool = True) -> Case:
    """A case in double precision, ``long`` enough for C++."""
    torch.manual_seed(0)
    slow = any(each in name for each in ("DIORA", "GRC", "RRNet", "nondeterministic"))
    length = 4 if slow or not long else 15 if "language" in name or "transduction" in name else 11
    case = placed(CASES[name](length), "cpu", torch.float64)
    return case._replace(inputs={name: value.clone().requires_grad_() for name, value in case.inputs.items()})


def gradients(
    case: Case, hooks: AbstractContextManager[object], run: Callable[..., tuple[Tensor, ...]] | None = None
) -> Named:
    """Those of a weighted sum of the outputs; ``run`` is called with a function and its arguments."""
    names = [*case.inputs]

    def outputs(*values: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        return tuple(case.run(case.module, dict(zip(names, values, strict=True)), False).values())

    with hooks:
        found = outputs(*case.inputs.values()) if run is None else run(outputs, *case.inputs.values())
        weights = (torch.cos(0.7 * torch.arange(each.numel(), dtype=torch.float64)).view(each.shape) for each in found)
        losses = [(each.double() * weight).sum() for each, weight in zip(found, weights, strict=True)]
        loss = torch.stack([each for each in losses if each.requires_grad]).sum()
    if isinstance(hooks, Copies):
        hooks.spoil()
    loss.backward()
    every = {**dict(case.module.named_parameters()), **case.inputs}
    return {name: torch.zeros_like(each) if each.grad is None else each.grad for name, each in every.items()}


def checkpointed(function: Callable[..., tuple[Tensor, ...]], *values: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = checkpoint(function, *values, use_reentrant=False)
    return found


@pytest.mark.parametrize("compiled", [True, False], ids=["C++", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_do_not_depend_on_where_saved_tensors_are(name: str, compiled: bool) -> None:
    with compile_steps(compiled):
        expected = gradients(made(name, compiled), nullcontext())
        torch.testing.assert_close(
            gradients(made(name, compiled), nullcontext(), checkpointed), expected, rtol=0, atol=1e-12
        )
        torch.testing.assert_close(gradients(made(name, compiled), save_on_cpu()), expected, rtol=0, atol=1e-12)
        if name in ("Tree-LSTM, part by part", "TreeCell"):
            return  # they read parameters of the layer, where they are
        copies = Copies(transposed="Transformer" not in name)  # torch's own attention reads these wrongly
        torch.testing.assert_close(gradients(made(name, compiled), copies), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["Tree-LSTM", "Ordered Memory", "ON-LSTM", "CRvNN", "SPINN, gold transitions", "LSTM"])
def test_hooks_may_leave_another_type(name: str) -> None:
    hooks = saved_tensors_hooks(lambda each: each.float() if each.is_floating_point() else each, lambda each: each)
    try:
        found = gradients(made(name), hooks)
    except RuntimeError as error:
        assert "type" in str(error)  # torch's own operations refuse another type  # noqa: PT017
    else:
        torch.testing.assert_close(found, gradients(made(name), nullcontext()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["Ordered Memory", "CRvNN", "Tree-LSTM", "SPINN", "ON-LSTM"])
def test_threads_may_run_one_graph_backwards(name: str) -> None:
    case = made(name)
    loss = case.run(case.module, case.inputs, False)["root"].square().sum()
    parameters = [*case.module.parameters()]

    def run(_: int) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)

    expected = run(0)
    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(run, range(12)):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
