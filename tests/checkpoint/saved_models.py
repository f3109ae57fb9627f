"""A small model, its checkpoints, and changes to their files that the manifest vouches for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from toy_task import MoreX

import treemem
from treemem import checkpoint
from treemem.model import Model
from treemem.networks import NetworkConfig


def new_model(seed: int = 0, hidden_size: int = 4) -> Model:
    torch.manual_seed(seed)
    return Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": hidden_size}))


def files_of(model: Model, state: dict[str, Any], metrics: Iterable[dict[str, Any]] = ()) -> dict[str, bytes]:
    """The files of a checkpoint with a training state."""
    return {**checkpoint.files_of(model, metrics), **checkpoint.training_files_of(state)}


def has_weights_of(path: Path, seed: int) -> bool:
    return torch.equal(treemem.load(path).encoder.leaves.weight, new_model(seed).encoder.leaves.weight)


def replace_file(path: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint, and what the manifest says of it."""
    (path / name).write_bytes(content)
    if name not in ("manifest.json", "temperature.json"):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (path / "manifest.json").write_text(json.dumps(manifest))


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder with what it holds."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Touch:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)
