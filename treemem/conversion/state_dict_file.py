"""State dicts that ``torch.save`` wrote. A file that holds more than tensors and plain data is not loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
        """Return an error about this file."""
        return CheckpointError(f"{self.source}: {problem}")

    def matrix(self, name: str) -> tuple[int, int]:
        """Return the shape of a weight.

        Raises:
            CheckpointError: it is missing, or not a matrix.
        """
        shape = tuple(self.tensor(name).shape)
        if len(shape) != 2 or 0 in shape:
            raise self.refusal(f"{name} is {list(shape)}, not a matrix with rows and columns")
        return shape[0], shape[1]

    def tensor(self, name: str) -> Tensor:
        """Return a weight.

        Raises:
            CheckpointError: it is missing.
        """
        if name not in self.tensors:
            raise self.refusal(f"there is no weight {name}{near_names(name, self.tensors)}")
        return self.tensors[name]

    def words_of(self, name: str, words: Sequence[str] | None, published: Sequence[str], what: str) -> list[str]:
        """Return the word of each row of an embedding table: ``words``, or by default the published ones.

        Raises:
            CheckpointError: the table has another number of rows.
        """
        rows, found = self.matrix(name)[0], list(published if words is None else words)
        if rows != len(found):
            whose = "the published code has" if words is None else "words names"
            raise self.refusal(f"{name} has {rows} rows, and {whose} {len(found)} {what}; give words, one a row")
        return found

    @property
    def modules(self) -> list[str]:
        """The first parts of the names, each once, in the order of the file."""
        return list(dict.fromkeys(name.partition(".")[0] for name in self.tensors if "." in name))


def read_state_dict(path: str | os.PathLike[str]) -> PublishedWeights:
    """Return the weights in a file of ``torch.save``, on the CPU.

    Args:
        path: holds a state dict, or a dictionary that has one under ``model_state_dict`` or ``state_dict``.

    Raises:
        CheckpointError: there is no such file, or it is not a state dict of floating-point weights of one dtype.
    """
    source = os.fspath(path)
    try:
        content = plain_data(Path(path).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{source} cannot be read: {error.strerror or error}") from error
    except CheckpointError:
        raise CheckpointError(
            f"{source} is not a file of torch.save with tensors and plain data alone; if it holds a whole model, load "
            "it with the authors' code and write torch.save(model.state_dict(), FILE)"
        ) from None
    if isinstance(content, dict):
        content = next((content[name] for name in _ENVELOPES if isinstance(content.get(name), dict)), content)
    return PublishedWeights(source, _checked(content, source))


def _checked(content: object, source: str) -> dict[str, Tensor]:
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{source} does not hold a state dict, a dictionary of names to weights")
    types = set()
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{source} does not hold a state dict: {name!r} is of type {type(value).__name__}")
        if not value.is_floating_point() or value.layout != torch.strided:
            raise CheckpointError(f"{source}: {name} holds {value.dtype}, {value.layout}, not floating-point weights")
        types.add(value.dtype)
    if len(types) > 1:
        raise CheckpointError(
            f"{source} mixes {' and '.join(sorted(map(str, types)))}; its weights must be of one type"
        )
    return content
