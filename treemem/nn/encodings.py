"""What heads read: one vector for each tree or sequence, whoever made it."""

from __future__ import annotations

import torch

from treemem.errors import GraphError
from treemem.nn.encoder_output import EncoderOutput


def root_encodings(
    encodings: torch.Tensor | EncoderOutput, trees_per_example: int | None = None, hidden_size: int | None = None
) -> torch.Tensor:
    """The encodings as a tensor, ``[examples, trees_per_example, hidden_size]``.

    Args:
        encodings: that tensor, or what an encoder returned.
        trees_per_example: how many trees an example must have.
        hidden_size: how wide encodings must be.

    Raises:
        GraphError: it has another number, or they another width.
    """
    tensor = encodings if isinstance(encodings, torch.Tensor) else encodings.root
    if trees_per_example is not None and (tensor.dim() != 3 or tensor.shape[1] != trees_per_example):
        raise GraphError(
            f"this head reads examples of {trees_per_example} trees, [examples, {trees_per_example}, hidden_size], "
            f"not {list(tensor.shape)}; make the batch with trees_per_example={trees_per_example}"
            + ("; for an answer a node, make the head with nodes='every'" if tensor.dim() == 2 else "")
        )
    if hidden_size is not None:
        check_width(tensor, hidden_size)
    return tensor


def check_width(states: torch.Tensor, hidden_size: int) -> None:
    """Refuse states that a head of another width was given.

    Raises:
        GraphError: the last dimension is not ``hidden_size``.
    """
    if states.shape[-1] != hidden_size:
        raise GraphError(
            f"this head was made for states of {hidden_size} numbers, and was given {list(states.shape)}; make it with "
            f"hidden_size={states.shape[-1]}"
        )
