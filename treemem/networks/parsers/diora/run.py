"""An inside and an outside pass over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.diora.batched import batched_inside_outside
from treemem.networks.parsers.diora.equations import Chart, Charts, DIORAWeights, naive_inside_outside


def inside_outside(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: DIORAWeights,
    *,
    engine: SequenceEngine = "auto",
    splits: bool = True,
) -> Charts:
    """Run both passes over sequences, each as if it were alone.

    Args:
        leaves: normalised ``h`` and ``c`` of the tokens, ``[2, sequences, longest, hidden_size]``, finite at padding.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: above the leaves.
        engine: ``"fused"`` (``"auto"``), all spans of a size at once, or ``"naive"``, span by span.
        splits: whether to keep the scores of all splits, which take memory for the cube of the length.
    """
    if engine != "naive" or not len(lengths):
        return batched_inside_outside(leaves, lengths, weights, splits=splits)
    longest = leaves.shape[2]
    parts = [naive_inside_outside(leaves[:, row, :length], weights) for row, length in enumerate(lengths.tolist())]

    def together(name: str) -> Chart:
        tensors = [getattr(part, name) for part in parts]
        return Chart(
            *(torch.stack([_padded(value, longest) for value in values], 2) for values in zip(*tensors, strict=True))
        )

    scores = [functional.pad(part.scores, (0, longest - part.scores.shape[2])) for part in parts]
    return Charts(
        together("inside"),
        None if weights.outside is None else together("outside"),
        torch.stack([_padded(score, longest) for score in scores], 3),
    )


def _padded(values: torch.Tensor, longest: int) -> torch.Tensor:
    """Return ``[tokens, tokens + 1, ...]`` with zeros up to the longest sequence."""
    more = longest - len(values)
    return functional.pad(values, (0, 0) * (values.dim() - 2) + (0, more, 0, more))
