"""Sequences that become trees pair by pair: a step chooses one of all adjacent pairs and puts it in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from treemem.ops.choices import Noise, first_highest


class PairStep(NamedTuple):
    """A step, for the sequences that still have a pair.

    Attributes:
        nodes: their nodes before it, int64 ``[sequences, pairs + 1]``; other nodes at padding.
        pairs: the numbers of their pairs, int64 ``[sequences, pairs]``; other pairs at padding.
        chosen: the number of the pair that was chosen, int64 ``[sequences]``.
        probability: of the noisy choice, ``[sequences, pairs]``; None if it has no gradient.
    """

    nodes: torch.Tensor
    pairs: torch.Tensor
    chosen: torch.Tensor
    probability: torch.Tensor | None


class PairChoices(NamedTuple):
    """The choices of sequences.

    Attributes:
        steps: each step.
        roots: the number of the last node of each sequence, int64 ``[sequences]``.
        places: the place of the pair that each step chose, int64 ``[sequences, longest - 1]``; 0 after the last one.
    """

    steps: list[PairStep]
    roots: torch.Tensor
    places: torch.Tensor


Compose = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the states of left and of right nodes to those of their compositions, ``[pairs, 2 * hidden_size]`` each."""


class PairMemory:
    """The nodes and pairs so far, composed by a cell and scored by a query, without gradients.

    Nodes and pairs have numbers. Leaves are the first nodes, and pair ``p`` becomes the node ``leaves + p``.

    Args:
        leaves: ``[h; c]``, ``[leaves, 2 * hidden_size]``.
        num_pairs: how many there will be, see :func:`count_pairs`.
        compose: the cell.
        query: of the scores ``query . h``, ``[hidden_size]``.

    Attributes:
        states: ``[h; c]`` of the nodes, ``[leaves + pairs, 2 * hidden_size]``.
        children: the nodes of the pairs, int64 ``[pairs, 2]``.
        scores: of the pairs, ``[pairs]``.
    """

    def __init__(self, leaves: torch.Tensor, num_pairs: int, compose: Compose, query: torch.Tensor) -> None:
        self._compose, self._query, self._first = compose, query, len(leaves)
        self.states = torch.cat([leaves, leaves.new_empty(num_pairs, leaves.shape[1])])
        self.children = torch.empty(num_pairs, 2, dtype=torch.int64, device=leaves.device)
        self.scores = leaves.new_empty(num_pairs)
        self._count = 0

    def add(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Compose pairs of nodes, int64 ``[sequences, ...]``; return the numbers of the pairs in the same shape."""
        part = slice(self._count, self._count + left.numel())
        children = self.children[part] = torch.stack([left.flatten(), right.flatten()], 1)
        new = self._compose(*self.states[children].unbind(1))
        self.states[self._first + part.start : self._first + part.stop] = new
        torch.mv(new[:, : len(self._query)], self._query, out=self.scores[part])
        self._count = part.stop
        return torch.arange(part.start, part.stop, device=left.device).view(left.shape)


def count_pairs(sizes: list[int]) -> int:
    """Return how many pairs sequences compose: all of their leaves, and two new ones for each choice.

    Args:
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
    """
    return sizes[0] * (len(sizes) - 1) + 2 * sum(sizes[1:-1])


def choose_pairs(
    memory: PairMemory, lengths: torch.Tensor, sizes: list[int], temperature: float | None, noise: Noise | None
) -> PairChoices:
    """Choose the pair with the highest score, step after step, until each sequence is one node.

    Args:
        memory: holds the leaves of all sequences, each as long as the longest.
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the leaves are.
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
        temperature: of the probabilities of the steps; None: they have none.
        noise: is added to the scores; of a step and the sequences that still have a pair.
    """
    sequences, longest = sizes[0], len(sizes)
    num_leaves = sequences * longest
    device = lengths.device
    nodes = torch.arange(num_leaves, device=device).view(sequences, longest)
    pairs = memory.add(nodes[:, :-1], nodes[:, 1:])
    column = torch.arange(longest, device=device)
    roots = nodes[:, 0].clone()
    places = lengths.new_zeros(sequences, longest - 1)
    steps: list[PairStep] = []
    for number, active in enumerate(sizes[1:]):
        nodes, pairs, num_pairs = nodes[:active], pairs[:active], longest - 1 - number
        probability = None
        if num_pairs == 1:
            place = lengths.new_zeros(active, 1)
        else:
            noisy = memory.scores[pairs]
            if noise is not None:
                noisy = noisy + noise((active, num_pairs))
            absent = column[:num_pairs] >= lengths[:active, None] - (number + 1)
            noisy = noisy.masked_fill(absent, -torch.inf)
            place = first_highest(noisy)[:, None]
            if temperature is not None:
                probability = (noisy / temperature).softmax(1)
        chosen = pairs.gather(1, place)
        steps.append(PairStep(nodes, pairs, chosen.squeeze(1), probability))
        new = num_leaves + chosen
        roots[:active] = new.squeeze(1)
        places[:active, number] = place.squeeze(1)
        if num_pairs > 1:
            nodes = torch.where(column[:num_pairs] < place, nodes[:, :-1], nodes[:, 1:])
            nodes.scatter_(1, place, new)
            before = nodes.gather(1, (place - 1).clamp(min=0))
            after = nodes.gather(1, (place + 1).clamp(max=num_pairs - 1))
            added = memory.add(torch.cat([before, new], 1), torch.cat([new, after], 1))
            rest = column[: num_pairs - 1]
            pairs = torch.where(rest < place, pairs[:, :-1], pairs[:, 1:])
            pairs = torch.where(rest == place - 1, added[:, :1], pairs)
            pairs = torch.where(rest == place, added[:, 1:], pairs)
    return PairChoices(steps, roots, places)


def joins_of(places: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
    """Return the token at which the right child of each composition begins.

    Args:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``; the host waits for them.
        lengths: int64 ``[sequences]``, on the CPU.
    """
    found: list[list[int]] = []
    for chosen, length in zip(places.tolist(), lengths.tolist(), strict=True):
        begins = list(range(length))
        found.append([begins.pop(place + 1) for place in chosen[: max(length - 1, 0)]])
    return found


def joining_steps(joins: list[list[int]], rows: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """Return the step, from 1, that joins the constituent that begins at a token with the constituent on its left.

    Args:
        joins: see :func:`joins_of`.
        rows: the sequence of each of them, int64 ``[sequences]``.
        shape: sequences and longest.

    Returns:
        int64 of this shape, on the CPU; 0 at the first token and at padding.
    """
    joined = torch.zeros(shape, dtype=torch.int64)
    for row, tokens in zip(rows.tolist(), joins, strict=True):
        joined[row, tokens] = torch.arange(1, len(tokens) + 1)
    return joined
