"""State dicts as ``torch.save`` wrote them; a file that holds more than tensors and plain data is never loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from treemem.errors import CheckpointError, near_names
from treemem.plain_data import plain_data

# Where the authors' scripts put the weights of a model beside those of its optimizer.
_ENVELOPES = ("model_state_dict", "state_dict")


@dataclass(frozen=True)
class PublishedWeights:
    """The weights in a file, by the names of the published code.

    Attributes:
        source: the file.
        tensors: name to weight.
    """

    source: str
    tensors: Mapping[str, Tensor]

    def refusal(self, problem: str) -> CheckpointError:
        """An error about this file."""
        return CheckpointError(f"{self.source}: {problem}")

    def matrix(self, name: str) -> tuple[int, int]:
        """The shape of a weight that is a matrix.

        Raises:
            CheckpointError: it is missing, or no matrix.
        """
        shape = tuple(self.tensor(name).shape)
        if len(shape) != 2 or 0 in shape:
            raise self.refusal(f"{name} is {list(shape)}, no matrix with rows and columns")
        return shape[0], shape[1]

    def tensor(self, name: str) -> Tensor:
        """A weight.

        Raises:
            CheckpointError: it is missing.
        """
        if name not in self.tensors:
            raise self.refusal(f"there is no weight {name}{near_names(name, self.tensors)}")
        return self.tensors[name]

    @property
    def modules(self) -> list[str]:
        """What stands before the first dot of the names, each once, in the order of the file."""
        return list(dict.fromkeys(name.partition(".")[0] for name in self.tensors if "." in name))


def read_state_dict(path: str | os.PathLike[str]) -> PublishedWeights:
    """The weights in a file of ``torch.save``, on the CPU.

    Args:
        path: holds a state dict, or a dictionary that has one under ``model_state_dict`` or ``state_dict``.

    Raises:
        CheckpointError: there is no such file, it holds more than tensors and plain data, or it holds no state dict of
            floating-point weights of one type.
    """
    source = os.fspath(path)
    try:
        content = plain_data(Path(path).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{source} cannot be read: {error.strerror or error}") from error
    except CheckpointError:
        raise CheckpointError(
            f"{source} is no file of torch.save that holds tensors and plain data alone; where it holds a whole model, "
            "load it with the authors' code and write torch.save(model.state_dict(), FILE)"
        ) from None
    if isinstance(content, dict):
        content = next((content[name] for name in _ENVELOPES if isinstance(content.get(name), dict)), content)
    return PublishedWeights(source, _checked(content, source))


def _checked(content: object, source: str) -> dict[str, Tensor]:
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{source} holds no state dict, a dictionary of names to weights")
    types = set()
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{source} holds no state dict: {name!r} is of type {type(value).__name__}")
        if not value.is_floating_point() or value.layout != torch.strided:
            raise CheckpointError(f"{source}: {name} holds {value.dtype}, {value.layout}, no floating-point weights")
        types.add(value.dtype)
    if len(types) > 1:
        raise CheckpointError(
            f"{source} mixes {' and '.join(sorted(map(str, types)))}; its weights must be of one type"
        )
    return content
