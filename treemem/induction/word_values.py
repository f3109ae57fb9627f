"""What a model gives for each word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError


def array_for_words(values: ArrayLike, words: Sequence[str], wanted: str) -> NDArray[Any]:
    """``values`` as an array, of whatever shape and type.

    Args:
        values: what was given for the words.
        words: of the sentence.
        wanted: what they need, for the message.

    Raises:
        GraphError: rows of unequal length, which make no array.
    """
    try:
        return np.asarray(values)
    except ValueError as error:
        raise GraphError(f"{len(words)} tokens need {wanted}, not rows of unequal length") from error
