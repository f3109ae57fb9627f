"""What heads read: one vector for each tree or sequence, whoever made it."""

from __future__ import annotations

from typing import Protocol

import torch

from treemem.errors import GraphError


class Encodings(Protocol):
    """What an encoder returns: states of which some encode whole trees or sequences."""

    @property
    def root(self) -> torch.Tensor:
        """``[examples, trees_per_example, hidden_size]``."""
        ...


def root_encodings(encodings: torch.Tensor | Encodings, trees_per_example: int | None = None) -> torch.Tensor:
    """The encodings as a tensor, ``[examples, trees_per_example, hidden_size]``.

    Args:
        encodings: that tensor, or what an encoder returned.
        trees_per_example: how many trees an example must have.

    Raises:
        GraphError: it has another number.
    """
    tensor = encodings if isinstance(encodings, torch.Tensor) else encodings.root
    if trees_per_example is not None and (tensor.dim() != 3 or tensor.shape[1] != trees_per_example):
        raise GraphError(
            f"this head reads examples of {trees_per_example} trees, [examples, {trees_per_example}, hidden_size], "
            f"not {list(tensor.shape)}; make the batch with trees_per_example={trees_per_example}"
        )
    return tensor
