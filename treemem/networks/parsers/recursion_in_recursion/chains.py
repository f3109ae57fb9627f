"""Recursion in Recursion whose chunks are read from left to right, on the engine of one's choice."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine, checked_engine
from treemem.engines.sequence_lengths import within
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.gated_cell.levels import gated_levels
from treemem.networks.parsers.recursion_in_recursion.equations import levels_of, naive_chains
from treemem.schedule.schedule import Schedule

_ZERO = -1


def chain_encodings(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: GatedCellWeights,
    chunk_size: int,
    *,
    from_zero: bool,
    dropout: float = 0.0,
    engine: SequenceEngine = "auto",
    places: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the root of each sequence, ``[sequences, hidden_size]``, as if it were alone; 0 for an empty one.

    Args:
        leaves: ``[sequences, longest, hidden_size]``, of the type of the weights; on the right of each sequence padding
            of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of the cell, for all levels.
        chunk_size, from_zero, dropout: see ``naive_chains``.
        engine: ``"fused"`` (``"auto"``), all sequences level by level, or ``"naive"``. They give the same results, but
            other dropout.
        places: see ``recursion_in_recursion``.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_engine("engine", engine)
    refuse_transforms_unless_naive(engine)
    sequences = (lengths > 0).nonzero().squeeze(1)
    encodings = leaves.new_zeros(len(lengths), leaves.shape[2])
    if not len(sequences):
        return encodings
    sizes = lengths[sequences].tolist(), (lengths if places is None else places)[sequences].tolist()
    if engine == "naive":
        roots = [
            naive_chains(leaves[row, :size], weights, chunk_size, from_zero=from_zero, dropout=dropout, places=width)
            for row, size, width in zip(sequences.tolist(), *sizes, strict=True)
        ]
        return encodings.index_copy(0, to_device(sequences, leaves.device), torch.stack(roots))
    present = within(lengths, leaves.shape[1]).flatten().nonzero().squeeze(1)
    rows = leaves.flatten(0, 1).index_select(0, to_device(present, leaves.device))
    if from_zero:
        rows = functional.pad(rows, (0, 0, 0, 1))
    trees = [_tree(size, width, chunk_size, from_zero) for size, width in zip(*sizes, strict=True)]
    schedule = _schedule(trees, len(present), len(rows)).to(leaves.device)
    keep = None
    if dropout:
        inner = schedule.num_rows - len(rows)
        keep = functional.dropout(leaves.new_ones(inner, len(weights.hidden.bias)), dropout)
    states = gated_levels(rows, schedule, weights, keep)
    roots_of_all = states.index_select(0, schedule.row_of_root)
    return encodings.index_copy(0, to_device(sequences, leaves.device), roots_of_all)


def chain_steps(lengths: torch.Tensor, longest: int, chunk_size: int) -> torch.Tensor:
    """Return the step, from 1, that joins the constituent that begins at a token with the constituent on its left.

    Chunks of a level take their steps at the same time.

    Args:
        lengths: int64 ``[sequences]``, on the CPU.
        longest: the number of columns.
        chunk_size: positions of a chunk.

    Returns:
        int64 ``[sequences, longest]`` on the CPU; 0 at the first token and at padding.
    """
    joined = torch.zeros(len(lengths), longest, dtype=torch.int64)
    for row, length in zip(joined, lengths.tolist(), strict=True):
        row[:length] = torch.from_numpy(_tree(length, length, chunk_size, False).joined)
    return joined


class _Tree(NamedTuple):
    """The tree of a sequence. Its nodes are the tokens, then those that are composed; ``_ZERO`` is the zero vector.

    Attributes:
        children: of the nodes that are composed, int64 ``[nodes, 2]``.
        root: the node.
        joined: see :func:`chain_steps`, int64 ``[tokens]``.
    """

    children: NDArray[np.int64]
    root: int
    joined: NDArray[np.int64]


@lru_cache(maxsize=256)
def _tree(length: int, places: int, chunk_size: int, from_zero: bool) -> _Tree:
    children: list[tuple[int, int]] = []
    nodes, begins = list(range(length)), np.arange(length)
    joined, done = np.zeros(length, np.int64), 0
    for chunks in levels_of(length, places, chunk_size):
        roots = []
        for begin, size, _ in chunks:
            state, *others = [_ZERO] * from_zero + nodes[begin : begin + size]
            for node in others:
                children.append((state, node))
                state = length + len(children) - 1
            roots.append(state)
            joined[begins[begin + 1 : begin + size]] = done + np.arange(1, size)
        done += max(chunk.length for chunk in chunks) - 1
        nodes, begins = roots, begins[[chunk.begin for chunk in chunks]]
    return _Tree(np.array(children, np.int64).reshape(-1, 2), nodes[0] if nodes else _ZERO, joined)


def _schedule(trees: list[_Tree], num_tokens: int, num_leaves: int) -> Schedule:
    """Return the schedule of the tokens of all sequences, of the zero vector if it is a leaf, and of inner nodes."""
    num_nodes, token = num_leaves, 0
    children, roots = [np.zeros((0, 2), np.int64)], []
    for tree in trees:
        length = len(tree.joined)
        number = np.concatenate([np.arange(token, token + length), num_nodes + np.arange(len(tree.children))])
        number = np.append(number, num_tokens)  # of the zero vector, which is the last one
        children.append(number[tree.children])
        roots.append(number[tree.root])
        token, num_nodes = token + length, num_nodes + len(tree.children)
    parents = np.arange(num_leaves, num_nodes).repeat(2)
    source = np.concatenate(children).ravel()
    value = np.zeros(num_nodes)  # by default NaN, which does not equal what a CUDA graph has copied before
    return Schedule.from_edges(num_nodes, source, parents, value=value, roots=roots, allow_several_parents=True)
