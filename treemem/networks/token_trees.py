"""Trees over the tokens that a sequence encoder read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.trees.tokens import token_table
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.networks.sequence_encoder import SequenceBatch, SequenceEncoder


def trees_over_tokens(
    encoder: SequenceEncoder,
    batch: SequenceBatch,
    values: torch.Tensor,
    make_tree: Callable[[NDArray[Any], list[str]], Tree],
) -> list[Tree]:
    """Return the tree that ``make_tree`` makes of each sequence's values and tokens.

    Args:
        encoder: read the batch.
        batch: what it read.
        values: ``[sequences, longest, ...]``.
        make_tree: takes ``[tokens, ...]`` and the tokens.

    Raises:
        GraphError: values that make no tree; names the sequence.
    """
    words = token_table(encoder.vocabulary, encoder.form)
    tokens, lengths = (tensor.tolist() for tensor in encoder.tokens(batch))
    array = values.detach().to("cpu", torch.float64).numpy()
    trees = []
    for sequence, (own, length) in enumerate(zip(tokens, lengths, strict=True)):
        try:
            trees.append(make_tree(array[sequence, :length], [words[token] for token in own[:length]]))
        except GraphError as error:
            raise GraphError(f"sequence {sequence}: {error}") from error
    return trees
