"""The passes over all spans of a size of all sequences at once.

What a cell's maps make of a span is computed once for the span, and not for each pair that has it. What pairs give is
kept only as long as there is little of it, and else computed again, so memory grows with the number of spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from treemem.device_copy import to_device
from treemem.engines.affine import Affine, linear
from treemem.engines.row_table import RowTable
from treemem.native.second_derivative import refuse_transforms
from treemem.networks.parsers.diora.equations import (
    Chart,
    Charts,
    DIORAWeights,
    MLPWeights,
    PassWeights,
    empty_chart,
    spans_of,
    unit,
)

_ON_CPU, _ELSEWHERE = 1 << 20, 1 << 26
"""So many numbers of the gates are computed at a time: on a CPU about as many as its caches hold."""
_KEPT = 1 << 22
"""So many numbers of the gates are kept by a pass; its backward pass computes further ones again."""
_AGAIN: Any = {"use_reentrant": False, "preserve_rng_state": False}


def batched_inside_outside(
    leaves: torch.Tensor, lengths: torch.Tensor, weights: DIORAWeights, *, splits: bool = True
) -> Charts:
    """Run both passes; see ``inside_outside``."""
    refuse_transforms()
    if not leaves.shape[2]:
        inside = empty_chart(leaves)
        return Charts(inside, None if weights.outside is None else inside, inside.score[:, :, None])
    lengths = to_device(lengths, leaves.device)
    spans, scores = _inside(leaves.transpose(1, 2), weights.inside, splits)
    inside = _chart(spans)
    if weights.outside is None:
        return Charts(inside, None, scores)
    return Charts(inside, _chart(_outside(spans, unit(weights.root), lengths, weights.outside)), scores)


class _Parts:
    """What the cell and the score read of the spans of a pass: as the first of a pair, and as the second.

    Spans have numbers: those of one token, then those of two, and so on.
    """

    def __init__(self, weights: PassWeights, longest: int, like: torch.Tensor) -> None:
        cell, size = weights.cell, len(weights.score)
        self._left, self._right = cell.hidden.weight.split(size, 1)
        self._bias, self._score = cell.hidden.bias, weights.score
        self.output = cell.output if isinstance(cell, MLPWeights) else None
        if not isinstance(cell, MLPWeights):
            self._bias = self._bias + functional.pad(like.new_full((2 * size,), cell.forget_bias), (3 * size, 0))
        self._widths = [size, size * (self.output is None), 1, len(self._left)]
        self._shape = like.shape[-2], sum(self._widths)
        count = longest * (longest + 1) // 2
        self._room = _KEPT
        self._first, self._second = (RowTable(count, like.shape[-2] * self._shape[1], like) for _ in range(2))

    def add_first(self, rows: slice, spans: Chart) -> None:
        """Write the spans as the first ones of pairs."""
        self._add(self._first, rows, spans, spans.h @ self._score, spans.h @ self._left.t())

    def add_second(self, rows: slice, spans: Chart) -> None:
        """Write the spans as the second ones of pairs."""
        self._add(self._second, rows, spans, spans.h, functional.linear(spans.h, self._right, self._bias))

    def _add(self, table: RowTable, rows: slice, spans: Chart, scored: torch.Tensor, read: torch.Tensor) -> None:
        c = spans.c[..., : self._widths[1]]
        table.write(rows, torch.cat([scored, c, spans.score[..., None], read], -1).flatten(1))

    def compose(
        self, first: torch.Tensor, second: torch.Tensor, present: torch.Tensor | None
    ) -> tuple[Chart, torch.Tensor]:
        """Return what pairs of spans give, and the scores of the pairs.

        Args:
            first, second: numbers, int64 ``[spans, pairs]``.
            present: which pairs there are, bool ``[spans, pairs, sequences]``; None: all of them.
        """
        numbers = first.numel() * self._shape[0] * self._widths[3]
        self._room -= numbers
        parts = min(len(first), 1 + numbers // (_ON_CPU if first.device.type == "cpu" else _ELSEWHERE))
        tables, composed = (self._first.so_far(), self._second.so_far()), []
        for pairs in zip(
            first.tensor_split(parts),
            second.tensor_split(parts),
            [None] * parts if present is None else present.tensor_split(parts),
            strict=True,
        ):
            given = (*tables, self._shape, self._widths, self.output, *pairs)
            composed.append(_composed(*given) if self._room > 0 else checkpoint(_composed, *given, **_AGAIN))
        h, c, score, scores = (torch.cat(tensors) for tensors in zip(*composed, strict=True))
        return Chart(h, c, score), scores


def _composed(
    firsts: RowTable,
    seconds: RowTable,
    shape: tuple[int, int],
    widths: list[int],
    output: Affine | None,
    first: torch.Tensor,
    second: torch.Tensor,
    present: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """Return ``h``, ``c`` and scores of spans, and the scores of their pairs; see :meth:`_Parts.compose`."""
    query, c, score, read = firsts.read(first).unflatten(2, shape).split(widths, 3)
    other_h, other_c, other_score, other_read = seconds.read(second).unflatten(2, shape).split(widths, 3)
    scores = (query * other_h).sum(3) + score[..., 0] + other_score[..., 0]
    if present is None:
        share = scores.softmax(1)
    else:
        scores = scores.masked_fill(~present, 0)
        share = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(1)
    read = read + other_read
    of_score = (share * scores).sum(1)
    if output is not None:
        h = linear(read.relu(), output).relu()
        mean = unit((share[..., None] * h).sum(1))
        return mean, torch.zeros_like(mean), of_score, scores.detach()
    size = widths[0]
    gates = read[..., size:].sigmoid()
    i, o, keep, keep_other = gates.chunk(4, 3)
    c = keep * c + keep_other * other_c + i * read[..., :size].tanh()
    h = o * c.tanh()
    mean_h, mean_c = (unit((share[..., None] * values).sum(1)) for values in (h, c))
    return mean_h, mean_c, of_score, scores.detach()


def _inside(leaves: torch.Tensor, weights: PassWeights, splits: bool) -> tuple[list[Chart], torch.Tensor]:
    """Return the spans of each size, and the scores of the splits."""
    _, longest, sequences, _ = leaves.shape
    parts = _Parts(weights, longest, leaves)
    scores = leaves.new_zeros(longest, longest + 1, longest if splits else 0, sequences)
    spans = [Chart(leaves[0], leaves[1], leaves.new_zeros(longest, sequences))]
    for size in range(2, longest + 1):
        rows = _rows(size - 1, longest)
        parts.add_first(rows, spans[-1])
        parts.add_second(rows, spans[-1])
        begin = torch.arange(longest - size + 1, device=leaves.device)[:, None]
        of_first = torch.arange(1, size, device=leaves.device)
        pairs = _number(of_first, begin, longest), _number(size - of_first, begin + of_first, longest)
        composed, of_pairs = parts.compose(*pairs, None)
        spans.append(composed)
        if splits:
            spans_of(scores, size)[:, 1:size].copy_(of_pairs)
    return spans, scores


def _outside(inside: list[Chart], root: torch.Tensor, lengths: torch.Tensor, weights: PassWeights) -> list[Chart]:
    """Return the spans of each size.

    A span has as many pairs of a sibling and a parent as there are further spans of its size. The ``k``-th has the
    sibling of ``k`` tokens on the right, or where there is no room for it that of ``spans - k`` tokens on the left.
    """
    longest, sequences, _ = inside[0].h.shape
    parts = _Parts(weights, longest, inside[0].h)
    parts.add_first(slice(None), Chart(*map(torch.cat, zip(*inside, strict=True))))
    charts: list[Chart] = []
    for size in range(longest, 0, -1):
        spans = longest - size + 1
        begin = torch.arange(spans, device=lengths.device)[:, None]
        whole = (lengths == size) & (begin == 0)
        h, c = (whole[..., None] * vector for vector in root)
        chart = Chart(h, c, h.new_zeros(spans, sequences))
        if size < longest:
            count = torch.arange(1, spans, device=lengths.device)
            on_right = begin + count < spans
            other = begin - spans + count  # where a sibling on the left begins
            of_sibling = torch.where(on_right, count, spans - count)
            sibling = _number(of_sibling, torch.where(on_right, begin + size, other), longest)
            of_parent, first = size + of_sibling, torch.where(on_right, begin, other)
            present = (first + of_parent)[:, :, None] <= lengths
            composed, _ = parts.compose(sibling, _number(of_parent, first, longest), present)
            inner = ((begin + size <= lengths) & (lengths > size))[..., None]
            h, c = (torch.where(inner, *choice) for choice in zip(composed[:2], chart[:2], strict=True))
            chart = Chart(h, c, composed.score * inner[..., 0])
        parts.add_second(_rows(size, longest), chart)
        charts.append(chart)
    return charts[::-1]


def _rows(size: int, longest: int) -> slice:
    """Return the numbers of the spans of a size."""
    first = (size - 1) * (2 * longest - size + 2) // 2
    return slice(first, first + longest - size + 1)


def _number(size: torch.Tensor, begin: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the numbers of spans."""
    return (size - 1) * (2 * longest - size + 2) // 2 + begin


def _chart(spans: list[Chart]) -> Chart:
    """Return the chart of the spans of each size."""
    longest, place = len(spans), []
    for size in range(1, longest + 1):
        begin = torch.arange(longest - size + 1, device=spans[0].h.device)
        place.append(begin * (longest + 1) + begin + size)
    where = torch.cat(place)

    def part(of_sizes: Sequence[torch.Tensor]) -> torch.Tensor:
        joined = torch.cat(list(of_sizes))
        whole = joined.new_zeros(longest * (longest + 1), *joined.shape[1:])
        return whole.index_copy(0, where, joined).unflatten(0, (longest, longest + 1))

    return Chart(*map(part, zip(*spans, strict=True)))
