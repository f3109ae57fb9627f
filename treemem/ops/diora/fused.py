"""The passes over all spans of a size of all sequences at once.

What a cell's maps make of a span is computed once for the span, and not for each pair that has it. What pairs give is
kept for the backward pass only as long as there is little of it, so that memory grows with the number of spans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.ops.affine import Affine, linear
from treemem.ops.diora.views import lefts_of, rights_of, spans_of
from treemem.ops.diora.weights import SHORTEST, Chart, Charts, DIORAWeights, MLPWeights, PassWeights, empty_chart, unit
from treemem.ops.second_derivative import once_differentiable, refuse_transforms, save_for_backward


def fused_inside_outside(
    leaves: torch.Tensor, lengths: torch.Tensor, weights: DIORAWeights, *, splits: bool = True
) -> Charts:
    """Run both passes; see :func:`treemem.ops.diora.inside_outside`."""
    refuse_transforms(remedy="; set layer.engine to 'naive'")
    if not leaves.shape[2]:
        inside = empty_chart(leaves)
        return Charts(inside, None if weights.outside is None else inside, inside.score[:, :, None])
    parts = 1 if isinstance(weights.inside.cell, MLPWeights) else 2  # an MLP has no c
    *found, scores = _Inside.apply(splits, *_in_parts(leaves, parts), *_tensors(weights.inside))
    inside = Chart(*found)
    if weights.outside is None:
        return Charts(_whole(inside), None, scores)
    root = _in_parts(unit(weights.root), parts)
    outside = _Outside.apply(*inside, *root, to_device(lengths, leaves.device), *_tensors(weights.outside))
    return Charts(_whole(inside), _whole(Chart(*outside)), scores)


def _in_parts(values: torch.Tensor, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``h`` and ``c`` of ``[2, ..., size]``; ``c`` has the size 0 if there is only one part."""
    h, c = values
    return h, c if parts == 2 else c[..., :0]


def _whole(chart: Chart) -> Chart:
    """Return a chart with ``c`` as wide as ``h``."""
    return chart if chart.c.shape == chart.h.shape else chart._replace(c=torch.zeros_like(chart.h))


_KEPT = 1 << 26
"""So many numbers about pairs are kept for the backward pass; it computes those of further spans again."""


def _tensors(weights: PassWeights) -> list[torch.Tensor]:
    """Return the matrices of what the cell reads of the first and the second of a pair, and the map of an MLP.

    These are ``[hidden_size, hidden]``, ``[hidden_size, hidden]`` and ``[hidden]``, then the matrix of the score.
    """
    cell, size = weights.cell, len(weights.score)
    left, right = cell.hidden.weight.split(size, 1)
    bias = cell.hidden.bias
    if not isinstance(cell, MLPWeights):
        bias = bias + functional.pad(bias.new_full((2 * size,), cell.forget_bias), (3 * size, 0))
    output = cell.output if isinstance(cell, MLPWeights) else ()
    return [left.T, right.T, bias, weights.score, *output]


class _Pairs(NamedTuple):
    """The pairs of some spans, ``[spans, pairs, sequences, ...]``.

    Attributes:
        query: what the score reads of the first.
        c, score: of the first.
        other_h, other_c, other_score: of the second.
    """

    query: torch.Tensor
    c: torch.Tensor
    score: torch.Tensor
    other_h: torch.Tensor
    other_c: torch.Tensor
    other_score: torch.Tensor


class _Composed(NamedTuple):
    """What pairs give, ``[spans, pairs, sequences, ...]``, and the means.

    Attributes:
        scores, share: of the pairs, and their softmax.
        read: the gates of a Tree-LSTM, or the hidden layer of an MLP.
        inner: ``tanh(c)``, or the output of an MLP.
        c: of the pairs; an MLP has none.
        mean_h, mean_c: before they are normalised.
    """

    scores: torch.Tensor
    share: torch.Tensor
    read: torch.Tensor
    inner: torch.Tensor
    c: torch.Tensor | None
    mean_h: torch.Tensor
    mean_c: torch.Tensor | None

    @property
    def means(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """``h``, ``c`` and score of the spans."""
        h = unit(self.mean_h)
        c = h[..., :0] if self.mean_c is None else unit(self.mean_c)
        return h, c, (self.share * self.scores).sum(1)


def _composed(
    read: torch.Tensor, pairs: _Pairs, output: Sequence[torch.Tensor], present: torch.Tensor | None
) -> _Composed:
    """Compose the pairs of some spans.

    Args:
        read: what the cell reads of both, ``[spans, pairs, sequences, hidden]``; is overwritten.
        pairs: of the spans.
        output: the map of an MLP; empty for a Tree-LSTM.
        present: which pairs there are, bool ``[spans, pairs, sequences]``; None: all of them.
    """
    scores = (pairs.query * pairs.other_h).sum(3).add_(pairs.score).add_(pairs.other_score)
    if present is None:
        share = scores.softmax(1)
    else:
        scores.masked_fill_(~present, 0)
        share = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(1)
    if output:
        inner = linear(read.relu_(), Affine(*output)).relu_()
        return _Composed(scores, share, read, inner, None, (share[..., None] * inner).sum(1), None)
    size = read.shape[3] // 5
    read[..., :size].tanh_()
    read[..., size:].sigmoid_()
    u, i, o, keep, keep_other = read.chunk(5, 3)
    c = (keep * pairs.c).addcmul_(keep_other, pairs.other_c).addcmul_(i, u)
    inner = c.tanh()
    mean_h, mean_c = ((share[..., None] * each).sum(1) for each in (o * inner, c))
    return _Composed(scores, share, read, inner, c, mean_h, mean_c)


def _gradients(
    pairs: _Pairs,
    found: _Composed,
    output: Sequence[torch.Tensor],
    present: torch.Tensor | None,
    of_means: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, _Pairs, Sequence[torch.Tensor]]:
    """Return the gradients of what the cell read, of the pairs, and of the map of an MLP.

    Args:
        pairs, found, output, present: see :func:`_composed`.
        of_means: the gradients of ``h``, ``c`` and score of the spans.
    """
    share, read, inner = found.share[..., None], found.read, found.inner
    of_score = of_means[2][:, None]
    of_mean_h = _through_unit(of_means[0], found.mean_h)[:, None]
    of_output: Sequence[torch.Tensor] = ()
    if found.c is None:
        of_share = (inner * of_mean_h).sum(3)
        of_h = (share * of_mean_h).mul_(inner > 0)
        flat = of_h.flatten(0, 2)
        of_output = flat.T @ read.flatten(0, 2), flat.sum(0)
        of_read = (of_h @ output[0]).mul_(read > 0)
        of_c = of_other_c = pairs.c
    else:
        assert found.mean_c is not None
        of_mean_c = _through_unit(of_means[1], found.mean_c)[:, None]
        u, i, o, keep, keep_other = read.chunk(5, 3)
        h = o * inner
        of_share = (h * of_mean_h).sum(3).add_((found.c * of_mean_c).sum(3))
        of_h = share * of_mean_h
        of_own = (share * of_mean_c).addcmul_(of_h * o, 1 - inner * inner)
        of_c, of_other_c = of_own * keep, of_own * keep_other
        of_read = torch.empty_like(read)
        parts = of_read.chunk(5, 3)
        torch.mul(of_own * i, 1 - u * u, out=parts[0])
        torch.mul((of_own * u).mul_(i), 1 - i, out=parts[1])
        torch.mul(of_h * h, 1 - o, out=parts[2])
        torch.mul(of_c * pairs.c, 1 - keep, out=parts[3])
        torch.mul(of_other_c * pairs.other_c, 1 - keep_other, out=parts[4])
    of_share.addcmul_(of_score, found.scores)
    of_share.sub_((found.share * of_share).sum(1, keepdim=True)).add_(of_score)
    of_scores = found.share * of_share
    if present is not None:
        of_scores.masked_fill_(~present, 0)
    each = of_scores[..., None]
    of_pairs = _Pairs(each * pairs.other_h, of_c, of_scores, each * pairs.query, of_other_c, of_scores)
    return of_read, of_pairs, of_output


def _through_unit(of_unit: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the gradient of vectors by that of :func:`unit` of them."""
    length = values.norm(dim=-1, keepdim=True)
    scale = length.clamp(min=SHORTEST)
    along = values / scale
    return (of_unit - along * ((along * of_unit).sum(-1, keepdim=True) * (length > SHORTEST))) / scale


class _Kept:
    """What pairs gave in the forward pass, by the size of the spans, as long as there is room for it."""

    def __init__(self) -> None:
        self._found: dict[int, _Composed] = {}
        self._room = _KEPT

    def add(self, size: int, found: _Composed) -> None:
        """Keep it, or not."""
        needed = sum(each.numel() for each in found if each is not None)
        if needed <= self._room:
            self._room -= needed
            self._found[size] = found

    def take(self, size: int, again: Callable[[], _Composed]) -> _Composed:
        """Return what was kept, or compute it again."""
        found = self._found.pop(size, None)
        return again() if found is None else found


def _parts(chart: Chart, query: torch.Tensor, size: int) -> _Pairs:
    """Return views of the pairs of parts of the spans of a size."""
    firsts = (lefts_of(each, size) for each in (query, chart.c, chart.score))
    return _Pairs(*firsts, *(rights_of(each, size) for each in chart))


class _Inside(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        splits: bool,
        leaf_h: torch.Tensor,
        leaf_c: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        bias: torch.Tensor,
        score: torch.Tensor,
        *output: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        sequences, longest, _ = leaf_h.shape
        spans = longest, longest + 1, sequences
        chart = Chart(*(leaf_h.new_zeros(*spans, *size) for size in ((leaf_h.shape[2],), (leaf_c.shape[2],), ())))
        query = torch.zeros_like(chart.h)
        of_left, of_right = (leaf_h.new_zeros(*spans, len(bias)) for _ in range(2))
        scores = leaf_h.new_zeros(longest, longest + 1, longest if splits else 0, sequences)
        kept = _Kept()
        for size in range(1, longest + 1):
            if size == 1:
                h, c = leaf_h.transpose(0, 1), leaf_c.transpose(0, 1)
            else:
                read = lefts_of(of_left, size) + rights_of(of_right, size)
                found = _composed(read, _parts(chart, query, size), output, None)
                h, c, own = found.means
                spans_of(chart.score, size).copy_(own)
                if splits:
                    spans_of(scores, size)[:, 1:size].copy_(found.scores)
                if any(ctx.needs_input_grad):
                    kept.add(size, found)
            for whole, part in ((chart.h, h), (chart.c, c), (query, h @ score), (of_left, h @ left)):
                spans_of(whole, size).copy_(part)
            spans_of(of_right, size).copy_(h @ right + bias)
        ctx.kept = kept
        save_for_backward(ctx, *chart, query, of_left, of_right, left, right, score, *output)
        ctx.mark_non_differentiable(scores)
        return (*chart, scores)

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any,
        saved: tuple[torch.Tensor, ...],
        of_h: torch.Tensor,
        of_c: torch.Tensor,
        of_score: torch.Tensor,
        _: torch.Tensor,
    ) -> Any:
        chart, output = Chart(*saved[:3]), saved[9:]
        query, of_left, of_right, left, right, score = saved[3:9]
        own = Chart(of_h.clone(), of_c.clone(), of_score.clone())
        own_query, own_left, own_right = (torch.zeros_like(each) for each in (query, of_left, of_right))
        own_output = [torch.zeros_like(each) for each in output]
        for size in range(len(chart.h), 0, -1):
            back = spans_of(own_query, size) @ score.T
            back += spans_of(own_left, size) @ left.T
            spans_of(own.h, size).add_(back.add_(spans_of(own_right, size) @ right.T))
            if size == 1:
                break
            pairs = _parts(chart, query, size)

            def again(size: int = size, pairs: _Pairs = pairs) -> _Composed:
                return _composed(lefts_of(of_left, size) + rights_of(of_right, size), pairs, output, None)

            means = [spans_of(each, size) for each in own]
            of_read, of_pairs, learned = _gradients(pairs, ctx.kept.take(size, again), output, None, means)
            lefts_of(own_left, size).add_(of_read)
            rights_of(own_right, size).add_(of_read)
            for total, each in zip(_parts(own, own_query, size), of_pairs, strict=True):
                total.add_(each)
            for total, each in zip(own_output, learned, strict=True):
                total.add_(each)
        of_leaves = (spans_of(each, 1).transpose(0, 1) for each in own[:2])
        of_weights = [_outer(chart.h, each) for each in (own_left, own_right, own_query)]
        of_weights.insert(2, own_right.sum((0, 1, 2)))
        return None, *of_leaves, *of_weights, *own_output


def _outer(values: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the sum of outer products over all spans and sequences."""
    return values.flatten(0, 2).T @ others.flatten(0, 2)


class _Relatives(NamedTuple):
    """The pairs of a sibling and a parent of the spans of a size.

    A span has as many pairs as there are further spans of its size. The ``k``-th has the sibling of ``k`` tokens on the
    right, or where there is no room for it that of ``spans - k`` tokens on the left.

    Attributes:
        sibling, parent: their places ``i * (longest + 1) + j``, ``[spans * pairs]``.
        shape: ``[spans, pairs]``.
        present: whether the parent ends within the sequence, bool ``[spans, pairs, sequences]``.
    """

    sibling: torch.Tensor
    parent: torch.Tensor
    shape: tuple[int, int]
    present: torch.Tensor

    @classmethod
    def of(cls, size: int, longest: int, lengths: torch.Tensor) -> _Relatives:
        """Return those of the spans of a size."""
        spans = longest - size + 1
        begin = torch.arange(spans, device=lengths.device)[:, None]
        count = torch.arange(1, spans, device=lengths.device)
        end, right = begin + size, begin + count < spans
        other = begin - spans + count  # where the sibling on the left begins
        width = longest + 1
        sibling = torch.where(right, end * width + end + count, other * width + begin)
        parent_end = torch.where(right, end + count, end)
        parent = torch.where(right, begin, other) * width + parent_end
        present = parent_end[:, :, None] <= lengths
        return cls(sibling.flatten(), parent.flatten(), (spans, spans - 1), present)

    def siblings(self, values: torch.Tensor) -> torch.Tensor:
        """Return the entries of a chart at the siblings, ``[spans, pairs, ...]``."""
        return values.flatten(0, 1).index_select(0, self.sibling).unflatten(0, self.shape)

    def parents(self, values: torch.Tensor) -> torch.Tensor:
        """Return the entries of a chart at the parents, ``[spans, pairs, ...]``."""
        return values.flatten(0, 1).index_select(0, self.parent).unflatten(0, self.shape)

    def pairs(self, inside: Chart, query: torch.Tensor, outside: Chart) -> _Pairs:
        """Return the pairs."""
        return _Pairs(*(self.siblings(each) for each in (query, inside.c, inside.score)), *map(self.parents, outside))


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: torch.Tensor,
        c: torch.Tensor,
        score_of: torch.Tensor,
        root_h: torch.Tensor,
        root_c: torch.Tensor,
        lengths: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        bias: torch.Tensor,
        score: torch.Tensor,
        *output: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        inside, longest = Chart(h, c, score_of), len(h)
        chart = Chart(*map(torch.zeros_like, inside))
        query, of_sibling = h @ score, h @ left
        of_parent = torch.zeros_like(of_sibling)
        kept = _Kept()
        for size in range(longest, 0, -1):
            is_root, is_there = _kinds(size, longest, lengths)
            if size < longest:
                near = _Relatives.of(size, longest, lengths)
                read = near.siblings(of_sibling).add_(near.parents(of_parent))
                found = _composed(read, near.pairs(inside, query, chart), output, near.present)
                for whole, mean in zip(chart, found.means, strict=True):
                    spans_of(whole, size).copy_(_where(is_there, mean))
                if any(ctx.needs_input_grad):
                    kept.add(size, found)
            for whole, given in zip(chart[:2], (root_h, root_c), strict=True):
                spans_of(whole, size).add_(is_root[:, :, None] * given)
            spans_of(of_parent, size).copy_(spans_of(chart.h, size) @ right + bias)
        ctx.kept = kept
        save_for_backward(ctx, *inside, *chart, query, of_sibling, of_parent, lengths, left, right, score, *output)
        return chart

    @staticmethod
    @once_differentiable()
    def backward(ctx: Any, saved: tuple[torch.Tensor, ...], *of_chart: torch.Tensor) -> Any:
        inside, chart = Chart(*saved[:3]), Chart(*saved[3:6])
        query, of_sibling, of_parent, lengths, left, right, score = saved[6:13]
        output, longest = saved[13:], len(query)
        own = Chart(*(each.clone() for each in of_chart))
        of_inside = Chart(*map(torch.zeros_like, inside))
        own_query, own_sibling, own_parent = (torch.zeros_like(each) for each in (query, of_sibling, of_parent))
        own_output = [torch.zeros_like(each) for each in output]
        of_root = [query.new_zeros(each.shape[3]) for each in chart[:2]]
        for size in range(1, longest + 1):
            is_root, is_there = _kinds(size, longest, lengths)
            spans_of(own.h, size).add_(spans_of(own_parent, size) @ right.T)
            for total, each in zip(of_root, own[:2], strict=True):
                total.add_(_where(is_root, spans_of(each, size)).sum((0, 1)))
            if size == longest:
                break
            near = _Relatives.of(size, longest, lengths)
            pairs = near.pairs(inside, query, chart)

            def again(near: _Relatives = near, pairs: _Pairs = pairs) -> _Composed:
                read = near.siblings(of_sibling).add_(near.parents(of_parent))
                return _composed(read, pairs, output, near.present)

            means = [_where(is_there, spans_of(each, size)) for each in own]
            found = ctx.kept.take(size, again)
            of_read, of_pairs, learned = _gradients(pairs, found, output, near.present, means)
            of_siblings = (own_sibling, of_read), *zip((own_query, *of_inside[1:]), of_pairs[:3], strict=True)
            of_parents = (own_parent, of_read), *zip(own, of_pairs[3:], strict=True)
            for place, totals in ((near.sibling, of_siblings), (near.parent, of_parents)):
                for total, each in totals:
                    total.flatten(0, 1).index_add_(0, place, each.flatten(0, 1))
            for total, each in zip(own_output, learned, strict=True):
                total.add_(each)
        of_inside.h.add_(own_sibling @ left.T).add_(own_query @ score.T)
        of_weights = [_outer(inside.h, own_sibling), _outer(chart.h, own_parent), own_parent.sum((0, 1, 2))]
        of_weights += [_outer(inside.h, own_query), *own_output]
        return *of_inside, *of_root, None, *of_weights


def _kinds(size: int, longest: int, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which spans of a size are whole sequences and which are within one, bool ``[spans, sequences]``."""
    begin = torch.arange(longest - size + 1, device=lengths.device)[:, None]
    return (lengths == size) & (begin == 0), (begin + size <= lengths) & (lengths > size)


def _where(kept: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the values of spans, and 0 where a span is not kept."""
    return values * kept.view(*kept.shape, *(1,) * (values.dim() - 2))
