"""Which nodes of a forest are the roots of equal subtrees."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.postorder import concatenated_ranges, offsets, stable_order
from treemem.trees.vocabulary import NUMBER_KIND, SYMBOL_KIND, Vocabulary, check_vocabulary

_NARROW = 48  # levels of fewer nodes are numbered node by node; a level is never wider than the one below it


class SubtreeIndex:
    """The number of the distinct subtree of every node of a forest. Make it once; batches look up their rows in it.

    Two nodes have the same number if and only if their subtrees have the same shape, labels and values. Labels that the
    vocabulary does not know are its ``unknown``. Numbers start at 0 without gaps, ordered by
    ``(height, arity, kind, symbol or value, children)``. So the sorted
    distinct numbers of a batch are its rows, in the order in which they run.

    Args:
        forest: the trees.
        vocabulary: the labels, with their ids.

    Attributes:
        number: int64 ``[nodes]``, in ``forest``'s node order.
        height, arity, kind: int64 ``[num_distinct]``, of each distinct subtree's root.
        symbol: int64 ``[num_distinct]``, index of the label into ``vocabulary.labels``; -1 for number leaves.
        value: float64 ``[num_distinct]``, of a number leaf, NaN elsewhere.
        child_pointer, child: int64 ``[num_distinct + 1]`` and ``[edges]``; the children of distinct subtree ``d`` have
            the numbers ``child[child_pointer[d]:child_pointer[d + 1]]``.
        segment: int64 ``[num_distinct]``, the number of the combination of height, arity and kind; ascending.

    Raises:
        VocabularyError: ``vocabulary`` is not a vocabulary, or does not have a label.
        GraphError: ``forest`` is not a forest.
    """

    def __init__(self, forest: Forest, vocabulary: Vocabulary) -> None:
        check_vocabulary(vocabulary)
        if not isinstance(forest, Forest):
            raise GraphError(f"a Forest is needed, not {type(forest).__name__}; Forest.from_trees makes one")
        self.forest = forest
        self.vocabulary = vocabulary
        node_kind, node_symbol = vocabulary.encode(forest)
        function = node_kind
        if vocabulary.kinds_by == "arity":  # otherwise a kind has one label
            function = node_kind.astype(np.int64) * len(vocabulary.labels) + node_symbol
        self.number, node = _number_subtrees(forest, node_kind, node_symbol, function)
        self.height = forest.height()[node]
        self.arity = forest.arity[node].astype(np.int64)
        self.kind = node_kind[node].astype(np.int64)
        self.symbol = node_symbol[node].astype(np.int64)
        self.value = np.full(len(node), np.nan) if forest.value is None else forest.value[node]
        pointer, child = forest.children()
        self.child_pointer = offsets(self.arity)
        self.child = self.number[child[concatenated_ranges(pointer[node], self.arity)]]
        differs = np.diff(self.height) != 0
        differs |= np.diff(self.arity) != 0
        differs |= np.diff(self.kind) != 0
        self.segment = np.concatenate([np.zeros(min(len(node), 1), np.int64), np.cumsum(differs)])

    @property
    def num_distinct(self) -> int:
        """Number of distinct subtrees."""
        return len(self.kind)

    def __repr__(self) -> str:
        return f"<SubtreeIndex of {len(self.forest)} trees, {self.num_distinct} subtrees of {len(self.number)} nodes>"


def _number_subtrees(
    forest: Forest, kind: NDArray[np.int32], symbol: NDArray[np.int32], function: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of every node's subtree, and one node for each number.

    ``function`` numbers the kinds with their symbols, kind after kind, for inner nodes.
    """
    number = np.empty(forest.num_nodes, np.int64)
    representatives: list[NDArray[np.int64]] = []
    num_distinct = 0

    def assign(nodes: NDArray[np.int64], rank: NDArray[np.int64], first: NDArray[np.int64]) -> None:
        nonlocal num_distinct
        number[nodes] = rank + num_distinct
        representatives.append(nodes[first])
        num_distinct += len(first)

    leaf = np.flatnonzero(forest.arity == 0)
    symbol_leaf = leaf[kind[leaf] == SYMBOL_KIND]
    assign(symbol_leaf, *_rank_codes(symbol[symbol_leaf].astype(np.int64)))
    if forest.value is not None:
        number_leaf = leaf[kind[leaf] == NUMBER_KIND]
        assign(number_leaf, *_rank(forest.value[number_leaf]))

    inner, bounds, num_wide = _inner_groups(forest)
    pointer, child = forest.children()
    for begin, end in pairwise(bounds):
        nodes = inner[begin:end]
        arity = int(forest.arity[nodes[0]])
        children = number[child[pointer[nodes][:, None] + np.arange(arity)]]
        assign(nodes, *_rank_inner(function[nodes].astype(np.int64), children, num_distinct))
    if num_wide < len(inner):
        representatives.append(_number_one_by_one(forest, function, inner[num_wide:], number, num_distinct))
    return number, np.concatenate(representatives)


def _inner_groups(forest: Forest) -> tuple[NDArray[np.int64], list[int], int]:
    """Inner nodes sorted by (height, arity); the bounds of each such group in wide levels; number of nodes in those."""
    inner = np.flatnonzero(forest.arity)
    height, arity = forest.height()[inner], forest.arity[inner].astype(np.int64)
    num_arities = int(arity.max()) + 1 if len(arity) else 1
    key = height * num_arities + arity
    order = stable_order(key)
    inner, key = inner[order], key[order]
    width = np.bincount(height)
    first_narrow = int(np.argmax(np.append(width[1:], 0) < _NARROW)) + 1
    num_wide = int(width[:first_narrow].sum())
    changes = np.flatnonzero(np.diff(key[:num_wide])) + 1
    return inner, [0, *changes.tolist(), num_wide] if num_wide else [0], num_wide


def _rank(keys: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rank of each key among the distinct ones, and where each distinct one stands first or at any rate once."""
    order = np.argsort(keys)
    in_order = keys[order]
    is_new = np.empty(len(keys), bool)
    is_new[:1] = True
    np.not_equal(in_order[1:], in_order[:-1], out=is_new[1:])
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.cumsum(is_new) - 1
    return rank, order[is_new]


def _rank_codes(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """:func:`_rank` for small non-negative integers, by counting."""
    last = np.full(int(codes.max()) + 1 if codes.size else 0, -1, np.int64)
    last[codes] = np.arange(len(codes))
    occurs = last >= 0
    return (np.cumsum(occurs) - 1)[codes], last[occurs]


def _rank_inner(
    function: NDArray[np.int64], children: NDArray[np.int64], num_distinct: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank nodes of one height and arity by ``(function, children)``.

    Neighbouring columns are joined into one until one is left: ranks of pairs sort as the pairs do, so the order stays
    that of the whole rows, at a cost that is linear in their length.

    Args:
        function: ``[nodes]``.
        children: ``[nodes, arity]``, numbers below ``num_distinct``.
        num_distinct: how many numbers there are so far.
    """
    num_columns = children.shape[1]
    limit = num_distinct
    while num_columns > 1:
        paired = children[:, : num_columns // 2 * 2]
        keys = paired[:, 0::2] * limit + paired[:, 1::2]
        if num_columns > 2:
            rank, first = _rank(keys.ravel())
            joined = rank.reshape(keys.shape)
            if num_columns % 2:
                joined = np.concatenate([joined, children[:, -1:]], axis=1)
            limit = max(limit, len(first))
        else:
            joined, limit = keys, limit * limit
        children, num_columns = joined, (num_columns + 1) // 2
    num_functions = int(function.max()) + 1
    column = children[:, 0]
    if num_functions * limit < np.iinfo(np.int64).max:
        return _rank(function * limit + column)
    rank, first = _rank(column)
    return _rank(function * len(first) + rank)


def _number_one_by_one(
    forest: Forest,
    function: NDArray[Any],
    nodes: NDArray[np.int64],
    number: NDArray[np.int64],
    num_distinct: int,
) -> NDArray[np.int64]:
    """Number nodes of the narrow upper levels, sorted by (height, arity), writing to ``number``; one node for each."""
    pointer, child = forest.children()
    arity = forest.arity[nodes].astype(np.int64)
    children = child[concatenated_ranges(pointer[nodes], arity)].tolist()
    functions, heights, arities = function[nodes].tolist(), forest.height()[nodes].tolist(), arity.tolist()
    number[nodes] = -1
    numbers = number.tolist()
    representatives: list[int] = []
    level: dict[tuple[int, ...], list[int]] = {}
    first_child = 0
    for place, node in enumerate(nodes.tolist()):
        last_child = first_child + arities[place]
        key = (arities[place], functions[place], *[numbers[below] for below in children[first_child:last_child]])
        level.setdefault(key, []).append(node)
        first_child = last_child
        if place + 1 == len(heights) or heights[place + 1] != heights[place]:
            for equal in (level[key] for key in sorted(level)):
                for node_of_number in equal:
                    numbers[node_of_number] = num_distinct
                representatives.append(equal[0])
                num_distinct += 1
            level.clear()
    number[:] = numbers
    return np.array(representatives, np.int64)
