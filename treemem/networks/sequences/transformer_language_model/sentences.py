"""Cut a stream of tokens into its sentences, and put what they give back into the stream."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.sequence_lengths import within


class Carried(NamedTuple):
    """The tokens of the sentence that each sequence of a batch ends in, for the batch after it.

    Attributes:
        token: int64 ``[sequences, most]`` on the CPU, 0 after the end.
        lengths: int64 ``[sequences]`` on the CPU.
    """

    token: torch.Tensor
    lengths: torch.Tensor


class Sentences(NamedTuple):
    """Where the sentences of a batch are. All tensors are on the CPU.

    Sentences of similar length are together in a group, in which none is shorter than half of the longest.

    Attributes:
        source: of each group, int64 ``[sentences, longest]``: the place of each token among the carried tokens and
            those of the batch, ``[sequences, carried + tokens]``, flat; -1 after the end of a sentence.
        lengths: of each group, int64 ``[sentences]``.
        place: int64 ``[sequences, tokens]``: the place of each token of the batch in the flat sources, one after the
            other; -1 for padding.
        carried: of the batch after it.
    """

    source: list[torch.Tensor]
    lengths: list[torch.Tensor]
    place: torch.Tensor
    carried: Carried


def cut(token: torch.Tensor, lengths: torch.Tensor, carried: Carried, end: int | None, most: int) -> Sentences:
    """Return the sentences of a batch. Each begins with the token ``end``, or where its sequence does.

    Args:
        token: int64 ``[sequences, longest]`` on the CPU.
        lengths: int64 ``[sequences]`` on the CPU.
        carried: of the batch before; goes on with the first token of each sequence.
        end: the token; None: a sequence is one sentence.
        most: how many tokens of a sentence are carried at most: its last ones.
    """
    before = carried.token.shape[1]
    whole = torch.cat([carried.token, token], 1)
    present = torch.cat([within(carried.lengths, before), within(lengths, token.shape[1])], 1)
    begins = present & (present.cumsum(1) == 1)
    if end is not None:
        begins |= present & (whole == end)
    sentence = begins[present].cumsum(0) - 1
    sizes = torch.bincount(sentence, minlength=int(begins.sum()))
    groups = _groups(sizes)
    shapes = [(len(group), int(sizes[group].max())) for group in groups]
    first = torch.zeros_like(sizes)
    count = 0
    for group, (rows, longest) in zip(groups, shapes, strict=True):
        first[group] = count + torch.arange(rows) * longest
        count += rows * longest
    begin = sizes.cumsum(0) - sizes
    at = first[sentence] + torch.arange(len(sentence)) - begin[sentence]
    source = torch.full((count,), -1)
    source[at] = present.flatten().nonzero().flatten()
    place = torch.full(whole.shape, -1)
    place[present] = at
    parts = source.split([rows * longest for rows, longest in shapes])
    return Sentences(
        [part.view(shape) for part, shape in zip(parts, shapes, strict=True)],
        [sizes[group] for group in groups],
        place[:, before:],
        _last_sentences(whole, present, begins, most),
    )


def _groups(sizes: torch.Tensor) -> list[torch.Tensor]:
    """Return the numbers of the sentences of each group, from their lengths."""
    halvings = (sizes.max() / sizes).log2().floor() if len(sizes) else sizes
    return [(halvings == number).nonzero().flatten() for number in halvings.unique()]


def _last_sentences(whole: torch.Tensor, present: torch.Tensor, begins: torch.Tensor, most: int) -> Carried:
    """Return the last tokens, up to ``most``, of the last sentence of each sequence."""
    number = begins.cumsum(1)
    of_last = present & (number == number[:, -1:]) if whole.shape[1] else present
    of_last &= of_last.flip(1).cumsum(1).flip(1) <= most
    lengths = of_last.sum(1)
    token = whole.new_zeros(len(whole), int(lengths.max()) if len(lengths) else 0)
    token[within(lengths, token.shape[1])] = whole[of_last]
    return Carried(token, lengths)
