"""The networks of pages and docstrings run on a device: on the fake one, which fails where CUDA does."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from documentation.page_blocks import DOCS, run_page
from engine_parity import needs_dgl
from fake_device import DEVICE, DeviceTensor, fake_device

import treemem.nn
from treemem import Forest, TreeBatch, Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.networks import NETWORKS
from treemem.networks.encoder import Encoder
from treemem.task import TASKS

_GRAPH_LIBRARIES = ("dgl.", "torch_geometric.")  # their own code for a device is not tested here


def moved(value: Any, device: Any) -> Any:
    """The tensors and batches in ``value`` on a device."""
    if isinstance(value, torch.Tensor | TreeBatch | TokenBatch):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(each, device) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(each, device) for each in value))
    return type(value)(moved(each, device) for each in value) if type(value) in (tuple, list) else value


@contextmanager
def networks_on_the_device() -> Iterator[list[str]]:
    """In this block, a call of a network moves it and its inputs to the device; yields the names of called classes."""
    plain_call, called, depth = torch.nn.Module.__call__, [], 0

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        library = type(module).__module__
        if not depth and library.startswith(_GRAPH_LIBRARIES):
            return plain_call(module, *moved(args, "cpu"), **kwargs)
        if depth or library.startswith("torch."):
            return plain_call(module, *args, **kwargs)
        called.append(type(module).__name__)
        depth += 1
        try:
            result = plain_call(module.to(DEVICE), *moved(args, DEVICE), **moved(kwargs, DEVICE))
        finally:
            depth -= 1
        return result.cpu() if isinstance(result, DeviceTensor) and isinstance(module, Encoder) else result

    with fake_device(), mock.patch.object(torch.nn.Module, "__call__", call):
        yield called


@pytest.fixture(autouse=True)
def _own_registries_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in (TASKS, NETWORKS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))


class BatchFirst(torch.nn.Module):
    """A network that reads time first; the fake device does not see that torch's GRU transposes in place."""

    def __init__(self, network: torch.nn.GRU) -> None:
        super().__init__()
        network.batch_first = False
        self.network = network

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs, last = self.network(inputs.transpose(0, 1))
        return outputs.transpose(0, 1), last


def test_a_sequence_network_of_ones_own_runs_on_a_device() -> None:
    names = run_page(DOCS / "own_task.md", ("fit(", "records_of("), compare=False)[0]
    forest = Forest.from_trees(["(f x y)", "x", "(f (f x y) y)"])
    vocabulary = Vocabulary.from_forest(forest)
    network = names["GRU"](4, vocabulary)
    batch = TreeBatch.from_forest(forest, vocabulary)
    expected = network(batch)
    network.gru = BatchFirst(network.gru)
    with networks_on_the_device():
        found = network(batch)
        assert found.root.device == DEVICE
        torch.testing.assert_close(found.root.cpu(), expected.root)
        torch.testing.assert_close(found.h.cpu(), expected.h)


@pytest.mark.parametrize("page", ["models/own_cells.md", "own_training.md"])
def test_networks_of_a_page_run_on_a_device(page: str) -> None:
    with networks_on_the_device() as called:
        run_page(DOCS / page, ("fit(", "torch.compile", "torch.func", "pytorch_lightning"), compare=False)
    assert called


@needs_dgl
def test_networks_in_pipelines_of_graph_networks_run_on_a_device() -> None:
    pytest.importorskip("torch_geometric")
    with networks_on_the_device() as called:
        run_page(DOCS / "gnn_pipelines.md", ("fit(",), compare=False)
    assert called.count("TreeLSTM") >= 5


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in treemem.nn.__all__
        if issubclass(getattr(treemem.nn, name), torch.nn.Module) and ">>>" in (getattr(treemem.nn, name).__doc__ or "")
    ],
)
def test_networks_of_docstrings_run_on_a_device(name: str) -> None:
    documented = getattr(treemem.nn, name)
    module = importlib.import_module(documented.__module__)
    example = doctest.DocTestFinder(recurse=False).find(documented, name, globs=dict(vars(module)))
    printed: list[str] = []
    with networks_on_the_device():
        result = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(example[0], out=printed.append)
    if result.failed:
        assert "Exception raised" not in printed[0], "".join(printed)
