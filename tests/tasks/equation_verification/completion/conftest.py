"""Untrained models of equation verification and files of records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from treemem import checkpoint
from treemem.model import Model
from treemem.tasks.equation_verification import EquationVerification

MakeModel = Callable[..., Model]


@pytest.fixture(scope="session")
def untrained() -> MakeModel:
    """A network of the task by its name, with random weights in float64."""

    def make(name: str = "Tree-LSTM", hidden_size: int = 5, seed: int = 0) -> Model:
        torch.manual_seed(seed)
        network = EquationVerification.networks[name].replace(hidden_size=hidden_size)
        return Model(EquationVerification(), network).double().eval()

    return make


@pytest.fixture
def saved_model(untrained: MakeModel, tmp_path: Path) -> Path:
    """The folder of a checkpoint."""
    checkpoint.save(tmp_path / "model", untrained().float())
    return tmp_path / "model"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of JSON records and returns its path."""

    def write_file(name: str, *records: dict[str, Any]) -> Path:
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return tmp_path / name

    return write_file
