"""What a model gives for each word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError


def array_for_words(values: ArrayLike, words: Sequence[str], wanted: str) -> NDArray[Any]:
    """``values`` as an array, of whatever shape and type.

    Args:
        values: what was given for the words; a tensor may have gradients, and be on any device.
        words: of the sentence.
        wanted: what they need, for the message.

    Raises:
        GraphError: rows of unequal length, which make no array.
    """
    try:
        return np.asarray(_without_tensors(values))
    except ValueError as error:
        raise GraphError(f"{len(words)} tokens need {wanted}, not rows of unequal length") from error


def _without_tensors(values: Any) -> Any:
    """``values`` with NumPy's arrays in the place of tensors, those within lists too."""
    if isinstance(values, torch.Tensor):
        return values.detach().to("cpu", torch.float64 if values.is_floating_point() else values.dtype).numpy()
    return [_without_tensors(value) for value in values] if isinstance(values, list | tuple) else values
