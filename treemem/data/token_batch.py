"""A batch of token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treemem.device_copy import to_device, to_device_together


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Sequences of token ids.

    Attributes:
        token: int64 ``[batch, time]``, 0 after the end of shorter sequences.
        lengths: int64 ``[batch]``. They stay on the CPU, which a loop over time steps reads them on.
        example_ids: int64 ``[batch]``, where each sequence came from; None for a batch made by hand.
        target: a second sequence for each, if there is one: a translation, or the next token at each place.
        state: what the encoder carries on from the batch before; None at the beginning.
        continues: whether each sequence goes on where the batch before this one ended.
    """

    token: Tensor
    lengths: Tensor
    example_ids: NDArray[np.int64] | None = None
    target: TokenBatch | None = None
    state: Any = None
    continues: bool = False

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> TokenBatch:
        """Return a batch of these sequences of ids, padded with 0."""
        lengths = torch.tensor([len(each) for each in sequences], dtype=torch.int64)
        token = torch.zeros(len(sequences), int(lengths.max()) if len(sequences) else 0, dtype=torch.int64)
        for row, each in enumerate(sequences):
            token[row, : len(each)] = torch.tensor(each, dtype=torch.int64)
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

    def with_state(self, state: Any) -> TokenBatch:
        """Return the same batch with the state of the batch before."""
        return replace(self, state=state)
