"""Vectors of words from elsewhere, in place of a network's own embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from treemem.errors import RecipeError
from treemem.networks.layer_type import LayerType


class WordVectors(torch.nn.Module, metaclass=LayerType):
    """An embedding table of given vectors, with a linear map to another width if the network needs one.

    Args:
        vectors: ``[words, width]``.
        size: width of what it returns. If it is not ``width``, a learned linear map is applied.
        tuned: whether the vectors are weights. Otherwise they stay as they are; a checkpoint has them in either case.

    Example:
        >>> WordVectors(torch.zeros(5, 3), 8)(torch.tensor([0, 4])).shape
        torch.Size([2, 8])
    """

    weight: torch.Tensor

    def __init__(self, vectors: torch.Tensor, size: int, *, tuned: bool = False) -> None:
        super().__init__()
        weight = torch.empty(vectors.shape)
        if tuned:
            self.weight = torch.nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)
        with torch.no_grad():
            self.weight.copy_(vectors)
        self.map = None if vectors.shape[1] == size else torch.nn.Linear(vectors.shape[1], size)

    @property
    def num_embeddings(self) -> int:
        """The number of words."""
        return len(self.weight)

    def reset_parameters(self) -> None:
        """Draw a new map; the vectors stay."""
        if self.map is not None:
            self.map.reset_parameters()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the vectors of words, ``[..., size]``."""
        vectors = functional.embedding(words, self.weight)
        return vectors if self.map is None else self.map(vectors)

    @classmethod
    def put_into(cls, network: torch.nn.Module, vectors: torch.Tensor, *, tuned: bool = False) -> None:
        """Give a network vectors for its words, in place of the embedding that it has.

        They take the place of the labels' vectors, so equal subtrees are still computed once.

        Args:
            network: a tree network with a vocabulary, or a sequence encoder that reads leaves.
            vectors: of the vocabulary's leaves, ``[leaves, width]``.
            tuned: whether they are trained.

        Raises:
            RecipeError: the network has no embedding of exactly these words.
        """
        holder: Any = network if hasattr(network, "embedding") else getattr(network, "leaves", None)
        table = getattr(holder, "embedding", None)
        if not isinstance(table, torch.nn.Embedding) or table.num_embeddings != len(vectors):
            raise RecipeError(
                f"{type(network).__name__} has no embedding of the {len(vectors)} words alone; word vectors need a "
                'tree network with a vocabulary, or a sequence encoder with form="leaves"'
            )
        holder.embedding = cls(vectors, table.embedding_dim, tuned=tuned)
