"""State dicts in files of ``torch.save``. Only tensors and plain data are loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from treemem.errors import CheckpointError, near_names
from treemem.plain_data import plain_data

# Keys of the weights in files that also hold the state of an optimizer.
_ENVELOPES = ("model_state_dict", "state_dict")


@dataclass(frozen=True)
class PublishedWeights:
    """The weights in a file, by their published names.

    Attributes:
        source: the file.
        tensors: the weights.
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
            CheckpointError: the table has a different number of rows.
        """
        rows, given = self.matrix(name)[0], list(published if words is None else words)
        if rows != len(given):
            whose = "the published code has" if words is None else "words has"
            raise self.refusal(f"{name} has {rows} rows, and {whose} {len(given)} {what}; give words, one for each row")
        return given


def read_state_dict(path: str | os.PathLike[str]) -> PublishedWeights:
    """Return the weights in a file of ``torch.save``, on the CPU.

    Args:
        path: a file of a state dict, or of a dictionary with one as ``model_state_dict`` or ``state_dict``.

    Raises:
        CheckpointError: the file cannot be read, or is not a state dict of floating-point weights of one dtype.
    """
    source = os.fspath(path)
    try:
        content = plain_data(Path(path).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{source} cannot be read: {error.strerror or error}") from error
    except CheckpointError:
        raise CheckpointError(
            f"{source} is not a file of torch.save with only tensors and plain data; load a whole model with the "
            "authors' code and write torch.save(model.state_dict(), FILE)"
        ) from None
    if isinstance(content, dict):
        content = next((content[name] for name in _ENVELOPES if isinstance(content.get(name), dict)), content)
    return PublishedWeights(source, _checked(content, source))


def _checked(content: object, source: str) -> dict[str, Tensor]:
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{source} does not hold a state dict, a dictionary of names to weights")
    for name, value in content.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise CheckpointError(f"{source} does not hold a state dict: {name!r} is {kind}, not a weight")
    types = {str(value.dtype) for value in content.values()}
    if len(types) > 1:
        raise CheckpointError(f"{source} mixes {' and '.join(sorted(types))}; all weights must have one type")
    return content
