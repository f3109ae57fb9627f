"""The passes over one sequence, span by span; views of charts, and the best binary tree by its scores (CKY)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from treemem.engines.affine import Affine, linear


class MLPWeights(NamedTuple):
    """``relu(W_1 relu(W_0 [l; r] + b_0) + b_1)``.

    Attributes:
        hidden: ``W_0``, ``[hidden_size, 2 * hidden_size]``.
        output: ``W_1``, ``[hidden_size, hidden_size]``.
    """

    hidden: Affine
    output: Affine


class TreeLSTMWeights(NamedTuple):
    """A Tree-LSTM over two children.

    Attributes:
        hidden: of candidate, input gate, output gate and the two forget gates, ``[5 * hidden_size, 2 * hidden_size]``.
        forget_bias: is added to the bias of the forget gates.
    """

    hidden: Affine
    forget_bias: float


class PassWeights(NamedTuple):
    """Weights of one pass.

    Attributes:
        cell: composes two vectors.
        score: the matrix ``S`` of the score ``l . S r``, ``[hidden_size, hidden_size]``.
    """

    cell: MLPWeights | TreeLSTMWeights
    score: torch.Tensor


class DIORAWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        inside: of the inside pass.
        outside: of the outside pass; None: there is none.
        root: outside ``h`` and ``c`` of the whole sequence before they are normalised, ``[2, hidden_size]``.
    """

    inside: PassWeights
    outside: PassWeights | None
    root: torch.Tensor


class Chart(NamedTuple):
    """All spans: ``[i, j]`` are the tokens from ``i`` to before ``j``. Where ``j <= i`` it is 0.

    Attributes:
        h, c: ``[longest, longest + 1, sequences, hidden_size]``.
        score: ``[longest, longest + 1, sequences]``.
    """

    h: torch.Tensor
    c: torch.Tensor
    score: torch.Tensor


class Charts(NamedTuple):
    """What the passes compute.

    Attributes:
        inside: spans beyond the end of a shorter sequence have any finite content.
        outside: 0 beyond the end of a shorter sequence; None without an outside pass.
        scores: of the split ``[i, i + k]``, ``[i + k, j]`` at ``[i, j, k]``, ``[longest, longest + 1, longest,
            sequences]``, without gradients; content as of ``inside``. Empty if it was not asked for.
    """

    inside: Chart
    outside: Chart | None
    scores: torch.Tensor


SHORTEST = 1e-8
"""A vector shorter than this is divided by this to normalise it."""


def unit(values: torch.Tensor) -> torch.Tensor:
    """Return vectors divided by their lengths, or by ``SHORTEST``."""
    return values / values.norm(dim=-1, keepdim=True).clamp(min=SHORTEST)


def empty_chart(like: torch.Tensor) -> Chart:
    """Return zeros for leaves ``[2, sequences, longest, hidden_size]``."""
    _, sequences, longest, size = like.shape
    h, c = (like.new_zeros(longest, longest + 1, sequences, size) for _ in range(2))
    return Chart(h, c, like.new_zeros(longest, longest + 1, sequences))


class _Cell(NamedTuple):
    """A span: ``h`` and ``c``, ``[hidden_size]``, and its score, ``[]``."""

    h: torch.Tensor
    c: torch.Tensor
    score: torch.Tensor


def naive_inside_outside(leaves: torch.Tensor, weights: DIORAWeights) -> Charts:
    """Run both passes over one sequence. The charts have no dimension of sequences.

    Args:
        leaves: ``h`` and ``c`` of its tokens, ``[2, tokens, hidden_size]``.
        weights: above the leaves.
    """
    length = leaves.shape[1]
    zero = leaves.new_zeros(())
    inside = {(place, place + 1): _Cell(leaves[0, place], leaves[1, place], zero) for place in range(length)}
    scores = leaves.new_zeros(length, length + 1, length)
    for size in range(2, length + 1):
        for begin in range(length - size + 1):
            end = begin + size
            pairs = [(inside[begin, middle], inside[middle, end]) for middle in range(begin + 1, end)]
            inside[begin, end], of_splits = _mean(pairs, weights.inside)
            scores[begin, end, 1:size] = of_splits.detach()
    if weights.outside is None:
        return Charts(_chart(inside, leaves), None, scores)
    h, c = unit(weights.root)
    outside = {(0, length): _Cell(h, c, zero)} if length else {}
    for size in range(length - 1, 0, -1):
        for begin in range(length - size + 1):
            end = begin + size
            pairs = [(inside[end, further], outside[begin, further]) for further in range(end + 1, length + 1)]
            pairs += [(inside[before, begin], outside[before, end]) for before in range(begin)]
            outside[begin, end], _ = _mean(pairs, weights.outside)
    return Charts(_chart(inside, leaves), _chart(outside, leaves), scores)


def _mean(pairs: Sequence[tuple[_Cell, _Cell]], weights: PassWeights) -> tuple[_Cell, torch.Tensor]:
    """Return the mean over pairs of cells by the softmax of their scores, and the scores."""
    composed = [_compose(one, other, weights.cell) for one, other in pairs]
    scores = torch.stack([one.h @ weights.score @ other.h + one.score + other.score for one, other in pairs])
    share = scores.softmax(0)
    h, c = (sum(weight * state[part] for weight, state in zip(share, composed, strict=True)) for part in (0, 1))
    return _Cell(unit(h), unit(c), share @ scores), scores


def _compose(one: _Cell, other: _Cell, weights: MLPWeights | TreeLSTMWeights) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.cat([one.h, other.h])
    if isinstance(weights, MLPWeights):
        h = linear(linear(both, weights.hidden).relu(), weights.output).relu()
        return h, torch.zeros_like(h)
    u, i, o, f_one, f_other = linear(both, weights.hidden).chunk(5)
    keep, keep_other = (f_one + weights.forget_bias).sigmoid(), (f_other + weights.forget_bias).sigmoid()
    c = keep * one.c + keep_other * other.c + i.sigmoid() * u.tanh()
    return o.sigmoid() * c.tanh(), c


def _chart(cells: dict[tuple[int, int], _Cell], leaves: torch.Tensor) -> Chart:
    _, length, size = leaves.shape
    nothing = _Cell(leaves.new_zeros(size), leaves.new_zeros(size), leaves.new_zeros(()))
    all_cells = [cells.get((begin, end), nothing) for begin in range(length) for end in range(length + 1)]
    if not all_cells:
        return Chart(*(leaves.new_zeros(0, 1, *part.shape) for part in nothing))
    return Chart(*(torch.stack(parts).unflatten(0, (length, length + 1)) for parts in zip(*all_cells, strict=True)))


def spans_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the spans of a size, ``[i, i + size]``, by ``i``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, *rest), chart.storage_offset() + size * column)


def lefts_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the left parts of the spans of a size, ``[i, i + k]``, by ``i`` and ``k``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, size - 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, column, *rest), chart.storage_offset() + column)


def rights_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the right parts, ``[i + k, i + size]``, by ``i`` and ``k``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, size - 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, row, *rest), chart.storage_offset() + row + size * column)


def best_parses(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the tree whose splits have the largest sum of scores, of equal ones that with the shortest left part.

    Args:
        scores: of the split of ``[i, j]`` after ``k`` tokens at ``[i, j, k]``, ``[longest, longest + 1, longest,
            sequences]``, on the CPU.
        lengths: int64 ``[sequences]``, on the CPU.

    Returns:
        How many tokens the constituent has that is split before each token, ``[sequences, longest]``; 0 at the first
        token and at padding.
    """
    longest = len(scores)
    best = scores.new_zeros(longest, longest + 1, len(lengths))
    chosen = torch.zeros(best.shape, dtype=torch.int64)
    for size in range(2, longest + 1):
        parts = lefts_of(best, size) + rights_of(best, size)
        value, left = (spans_of(scores, size)[:, 1:size] + parts).max(1)
        spans_of(best, size).copy_(value)
        spans_of(chosen, size).copy_(left + 1)
    sizes = torch.zeros(len(lengths), longest)
    tables = chosen.movedim(2, 0).tolist()
    for row, length in enumerate(lengths.tolist()):
        pending = [(0, length)] if length > 1 else []
        while pending:
            begin, end = pending.pop()
            middle = begin + tables[row][begin][end]
            sizes[row, middle] = end - begin
            pending += [part for part in ((begin, middle), (middle, end)) if part[1] - part[0] > 1]
    return sizes
