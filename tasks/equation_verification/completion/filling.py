"""Equations with every candidate in their blanks, as forests and as schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.schedule import Level, Schedule, SubtreeIndex, TreeBatch
from treemem.schedule.schedule import distinct_numbers, make_levels, nodes_of_trees, run_starts
from treemem.tasks.equation_verification.completion.blanks import Blanks
from treemem.trees.forest import Forest
from treemem.trees.postorder import concatenated_ranges
from treemem.trees.vocabulary import Vocabulary

Integers = NDArray[np.int64]


def filled_forest(equations: Forest, blanks: Blanks, candidates: Forest) -> Forest:
    """Fill every blank with every candidate: tree ``b * len(candidates) + c`` has candidate ``c`` in blank ``b``."""
    source = Forest.concatenate([forest.with_data() for forest in (equations, candidates)])
    before, blank = source.begin[blanks.tree], source.subtree_begin()[blanks.node]
    after, end = blanks.node + 1, source.begin[blanks.tree + 1]
    own_begin, own_end = source.begin[len(equations) : -1], source.begin[len(equations) + 1 :]
    begins = np.stack(np.broadcast_arrays(before[:, None], own_begin, after[:, None]), axis=-1)
    ends = np.stack(np.broadcast_arrays(blank[:, None], own_end, end[:, None]), axis=-1)
    counts = ends - begins  # [blanks, candidates, 3]
    node = concatenated_ranges(begins.ravel(), counts.ravel())
    return Forest(
        source.labels,
        source.label[node],
        source.arity[node],
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts.sum(-1))]),
        None if source.value is None else source.value[node],
    )


class Fillings:
    """Schedules of filled equations, which share all rows that do not depend on the candidate.

    A batch has a row for each distinct subtree of its equations and of the candidates. Each node on the path from a
    blank to the root of its side has a row for each distinct candidate. Candidates that networks read alike (``One:1``
    and ``Integer:1``) share a row, and so a score.

    Attributes:
        num_distinct: number of distinct candidates.
        distinct_of_candidate: int64 ``[candidates]``, number of the distinct candidate.
        path_length: int64 ``[blanks]``, number of nodes between a blank and the root of its side, the root included.

    Raises:
        VocabularyError: the vocabulary does not know a label.
    """

    def __init__(self, equations: Forest, blanks: Blanks, candidates: Forest, vocabulary: Vocabulary) -> None:
        forest = Forest.concatenate([equations.split_roots().with_data(), candidates.with_data()])
        self._index = SubtreeIndex(forest, vocabulary)
        self._tree, self._node = (
            blanks.tree,
            blanks.node - blanks.tree,
        )  # split_roots removed a root for each tree before
        first_candidate = 2 * len(equations)
        self._candidate_trees = np.arange(first_candidate, len(forest))
        roots = self._index.number[forest.begin[first_candidate + 1 :] - 1]
        self._candidate_number, self.distinct_of_candidate = np.unique(roots, return_inverse=True)
        self._candidate_height = int(self._index.height[self._candidate_number].max())
        self.num_distinct = len(self._candidate_number)
        self.path_length = forest.depth()[self._node]
        pointer, child = forest.children()
        self._position = np.zeros(forest.num_nodes, np.int64)  # of each node among its parent's children
        self._position[child] = np.arange(len(child)) - np.repeat(pointer[:-1], np.diff(pointer))

    def batch(self, first: int, last: int) -> TreeBatch:
        """Return a batch of the blanks ``first`` to ``last - 1``, each filled with all distinct candidates in turn.

        An example is a pair of sides. Blank ``b`` with distinct candidate ``d`` is example
        ``(b - first) * num_distinct + d``.
        """
        index, count = self._index, self.num_distinct
        sides = 2 * self._tree[first:last, None] + np.arange(2)
        node, _ = nodes_of_trees(index.forest.begin, np.concatenate([sides.ravel(), self._candidate_trees]))
        distinct, row_of_number = distinct_numbers(index.number[node], index.num_distinct)
        paths = self._paths(self._node[first:last])
        numbers = np.concatenate([distinct, index.number[paths.node]])
        rows = _lay_out(
            np.concatenate([index.height[distinct], paths.level]),
            index.arity[numbers],
            index.kind[numbers],
            index.symbol[numbers],
            np.repeat((1, count), (len(distinct), len(paths.node))),
        )
        shared, of_path = rows.begin[: len(distinct)], rows.begin[len(distinct) :, None] + np.arange(count)

        def shared_row(number: Integers) -> Integers:
            return shared[row_of_number(number)]

        in_blank = shared_row(self._candidate_number)
        child = np.empty(int(rows.arity.sum()), np.int64)
        edge = concatenated_ranges(index.child_pointer[distinct], index.arity[distinct])
        child[concatenated_ranges(rows.first_child[shared], index.arity[distinct])] = shared_row(index.child[edge])
        self._put_path_children(child, rows, paths, of_path, in_blank, shared_row)
        root = np.repeat(shared_row(index.number[index.forest.begin[sides + 1] - 1])[:, None], count, axis=1)
        filled = np.where(paths.top[:, None] < 0, in_blank, of_path[paths.top] if len(of_path) else in_blank)
        side = (self._node[first:last] >= index.forest.begin[sides[:, 1]]).astype(np.int64)
        np.put_along_axis(root, side[:, None, None], filled[:, :, None], axis=2)

        leaves = distinct[: rows.levels[0].end]
        every_row = torch.arange(len(rows.arity))
        schedule = Schedule(
            num_rows=len(every_row),
            num_nodes=len(every_row),
            num_trees=root.size,
            levels=rows.levels,
            child=torch.from_numpy(child),
            row_of_node=every_row,
            row_of_root=torch.from_numpy(root.ravel()),
            node_of_row=every_row,
            kind_of_row=torch.from_numpy(rows.kind),
            symbol=torch.from_numpy(rows.symbol[: len(leaves)]),
            function=torch.from_numpy(rows.symbol[len(leaves) :]),
            value=torch.from_numpy(index.value[leaves]),
            shared=True,
        )
        return TreeBatch(schedule, index.vocabulary, trees_per_example=2)

    def _paths(self, blank: Integers) -> _Paths:
        """Return the paths from some blanks, nodes of the index's forest, to the roots of their sides."""
        forest = self._index.forest
        top = np.full(len(blank), -1)
        paths = [np.empty((4, 0), np.int64)]
        going, below, level = np.arange(len(blank)), blank, np.full(len(blank), self._candidate_height)
        num_found = 0
        while len(going):
            above = forest.parent()[below]
            inside = above >= 0
            going, below, level, above = going[inside], below[inside], level[inside], above[inside]
            level = np.maximum(level + 1, forest.height()[above])
            paths.append(np.stack([above, self._position[below], top[going], level]))
            top[going] = np.arange(num_found, num_found + len(going))
            num_found += len(going)
            below = above
        node, position, lower, level = np.concatenate(paths, axis=1)
        return _Paths(node, position, lower, level, top)

    def _put_path_children(
        self,
        child: Integers,
        rows: _Rows,
        paths: _Paths,
        of_path: Integers,
        in_blank: Integers,
        shared_row: Callable[[Integers], Integers],
    ) -> None:
        """Write the children of path nodes into ``child``: the node below on the path, and shared rows beside it."""
        index, count = self._index, len(in_blank)
        number = index.number[paths.node]
        for arity in np.unique(index.arity[number]).tolist():
            chosen = np.flatnonzero(index.arity[number] == arity)
            beside = shared_row(index.child[index.child_pointer[number[chosen], None] + np.arange(arity)])
            children = np.repeat(beside[:, None], count, axis=1)  # [path nodes, candidates, arity]
            below = np.where(paths.below[chosen, None] < 0, in_blank, of_path[paths.below[chosen]])
            np.put_along_axis(children, paths.position[chosen, None, None], below[:, :, None], axis=2)
            first_child = rows.first_child[of_path[chosen, 0]]
            child[first_child[:, None] + np.arange(count * arity)] = children.reshape(len(chosen), -1)


class _Paths(NamedTuple):
    """The nodes whose states depend on the candidate in a blank.

    Attributes:
        node: int64 ``[path nodes]``, in the index's forest.
        position: int64 ``[path nodes]``, index of the child that leads to the blank.
        below: int64 ``[path nodes]``, the path node that is this child, -1 if it is the blank.
        level: int64 ``[path nodes]``, greater than that of each child for all candidates.
        top: int64 ``[blanks]``, the path node that is the root of the side, -1 if the blank is.
    """

    node: Integers
    position: Integers
    below: Integers
    level: Integers
    top: Integers


class _Rows(NamedTuple):
    """Rows in running order: ``begin`` int64 ``[blocks]``; ``arity`` to ``first_child`` int64 ``[rows]``."""

    begin: Integers
    arity: Integers
    kind: Integers
    symbol: Integers
    first_child: Integers
    levels: tuple[Level, ...]


def _lay_out(level: Integers, arity: Integers, kind: Integers, symbol: Integers, size: Integers) -> _Rows:
    """Sort blocks of ``size`` rows by level, arity and kind; the sort is stable."""
    key = (level * (int(arity.max()) + 1) + arity) * (int(kind.max()) + 1) + kind
    order = np.argsort(key, kind="stable")
    begin = np.empty(len(order), np.int64)
    begin[order] = np.cumsum(size[order]) - size[order]
    row_arity = np.repeat(arity[order], size[order])
    segment = order[run_starts(key[order])]
    levels = make_levels(len(row_arity), begin[segment], level[segment], row_arity, kind[segment])
    row_kind, row_symbol = (np.repeat(array[order], size[order]) for array in (kind, symbol))
    return _Rows(begin, row_arity, row_kind, row_symbol, np.cumsum(row_arity) - row_arity, levels)
