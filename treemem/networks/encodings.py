"""What heads read: one vector for each tree or sequence, whoever made it."""

from __future__ import annotations

import torch

from treemem.errors import GraphError
from treemem.networks.encoder_output import EncoderOutput


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
    if not isinstance(encodings, torch.Tensor) and not hasattr(encodings, "root"):
        raise GraphError(
            f"a head takes encodings or the output of an encoder, not {type(encodings).__name__}; call "
            "head(encoder(batch))"
        )
    tensor = encodings if isinstance(encodings, torch.Tensor) else encodings.root
    if trees_per_example is not None and (tensor.dim() != 3 or tensor.shape[1] != trees_per_example):
        trees = "1 tree" if trees_per_example == 1 else f"{trees_per_example} trees"
        raise GraphError(
            f"this head reads encodings of {trees} per example, [examples, {trees_per_example}, hidden_size], not "
            f"{list(tensor.shape)}; "
            + (
                f"make the batch with trees_per_example={trees_per_example}"
                if tensor.dim() == 3
                else "give it the output of the encoder. For a class per node use ClassifierHead(..., nodes='every')"
            )
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
            f"this head has hidden_size={hidden_size}, and the states {list(states.shape)} have the width "
            f"{states.shape[-1]}; make the head with hidden_size={states.shape[-1]}"
        )
