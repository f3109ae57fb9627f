"""A batch of token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treemem.device_copy import pinned_together, to_device, to_device_together
from treemem.errors import GraphError


def whole_numbers(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor of whole numbers of any type as int64: torch takes uint8 as a mask where it indexes.

    Raises:
        GraphError: they are not whole numbers.
    """
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise GraphError(f"{name} must be whole numbers, torch.int64, not {tensor.dtype}")
    return tensor.long()


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Sequences of token ids.

    Attributes:
        token: whole numbers ``[batch, time]``, 0 after the end of shorter sequences; kept as int64.
        lengths: whole numbers ``[batch]``, kept as int64 on the CPU, where a loop over time steps reads them.
        example_ids: int64 ``[batch]``, where each sequence came from; None for a batch made by hand.
        target: a second sequence for each, if there is one: a translation, or the next token at each place.
        state: what the encoder carries on from the batch before; None at the beginning.
        continues: whether each sequence goes on where the batch before this one ended.

    Raises:
        GraphError: ``token`` or ``lengths`` are not whole numbers.
    """

    token: Tensor
    lengths: Tensor
    example_ids: NDArray[np.int64] | None = None
    target: TokenBatch | None = None
    state: Any = None
    continues: bool = False

    def __post_init__(self) -> None:
        for name in ("token", "lengths"):
            given = getattr(self, name)
            if given.dtype != torch.int64:
                object.__setattr__(self, name, whole_numbers(name, given))

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> TokenBatch:
        """Return a batch of these sequences of ids, padded with 0."""
        lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
        token = torch.zeros(len(sequences), int(lengths.max()) if len(sequences) else 0, dtype=torch.int64)
        for row, sequence in enumerate(sequences):
            token[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
        return cls(token, lengths)

    @property
    def num_examples(self) -> int:
        """How many sequences there are."""
        return len(self.token)

    def to(self, device: torch.device | str) -> TokenBatch:
        """Return the same batch with its tokens on a device; lengths and state stay where they are."""
        if self.target is None:
            return replace(self, token=to_device(self.token, device))
        token, target = to_device_together([self.token, self.target.token], device)
        return replace(self, token=token, target=replace(self.target, token=target))

    def pin_memory(self) -> TokenBatch:
        """Return the same batch with its tokens in pinned memory, as :meth:`treemem.TreeBatch.pin_memory`.

        Raises:
            RuntimeError: torch finds no accelerator.
        """
        if self.target is None:
            return replace(self, token=pinned_together([self.token])[0])
        token, target = pinned_together([self.token, self.target.token])
        return replace(self, token=token, target=replace(self.target, token=target))

    def with_state(self, state: Any) -> TokenBatch:
        """Return the same batch with the state of the batch before."""
        return replace(self, state=state)


class TokenBucket(NamedTuple):
    """Sequences padded to the length of a bucket, for a step that runs as a CUDA graph.

    All batches of a bucket have the same shapes. What is padding only the lengths say.

    Attributes:
        items: token ids, int64 ``[sequences, longest]``, or features, ``[sequences, longest, width]``.
        lengths: int64 ``[examples, parts]``, where the items are; sequences of an example are adjacent.
    """

    items: Tensor
    lengths: Tensor

    @property
    def num_examples(self) -> int:
        """How many examples there are."""
        return len(self.lengths)
