"""The structure of trees that lie in post-order, found from their arities alone by whole-array steps.

The nodes of many trees stand one after the other, children before their parent. Read as a stack machine, a node pops
its children and pushes itself; ``stack_size[j]`` is the size of that stack after node ``j``, counted from the start of
``j``'s tree. Everything here follows from it, whatever the shape of the trees: no step goes node by node or level by
level, so a chain of 100,000 nodes costs what 100,000 nodes cost anywhere.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

_RADIX_BITS = 16
_Scalar = TypeVar("_Scalar", bound=np.generic)


class Postorder(NamedTuple):
    """Who is whose child, for nodes in post-order.

    Attributes:
        pointer: int64 ``[nodes + 1]``; the children of node ``j`` are ``child[pointer[j]:pointer[j + 1]]``.
        child: int64 ``[edges]``, from left to right.
        subtree_begin: int64 ``[nodes]``; the subtree of node ``j`` is the nodes ``subtree_begin[j]`` to ``j``.
    """

    pointer: NDArray[np.int64]
    child: NDArray[np.int64]
    subtree_begin: NDArray[np.int64]


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A view of ``array`` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def offsets(count: ArrayLike) -> NDArray[np.int64]:
    """Where each of some parts begins, and where the last one ends: int64 ``[parts + 1]``, from 0."""
    count = np.asarray(count)
    begin = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=begin[1:])
    return begin


def stable_order(keys: NDArray[np.integer]) -> NDArray[np.int64]:
    """The stable sorting order of non-negative integers, in linear time: one radix pass for every 16 bits in use."""
    if keys.size == 0:
        return np.empty(0, np.int64)
    bits = int(keys.max()).bit_length()
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(_RADIX_BITS, bits, _RADIX_BITS):
        digit = (keys >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def concatenated_ranges(begin: NDArray[np.int64], count: NDArray[np.integer]) -> NDArray[np.int64]:
    """``begin[0], begin[0] + 1, ...`` for ``count[0]`` numbers, then the same from ``begin[1]``, and so on."""
    end = np.cumsum(count, dtype=np.int64)
    total = int(end[-1]) if end.size else 0
    return np.repeat(begin - (end - count), count) + np.arange(total)


def stack_sizes(arity: NDArray[np.integer], begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """Size of the stack after each node, from 1 up within each tree; a root leaves 1.

    Args:
        arity: ``[nodes]``.
        begin: ``[trees + 1]``, where each tree starts.
    """
    return np.cumsum(1 - arity.astype(np.int64)) - np.repeat(np.arange(len(begin) - 1), np.diff(begin))


def find_children(arity: NDArray[np.integer], begin: NDArray[np.int64]) -> Postorder:
    """Find the children and the first node of every subtree.

    Child ``k`` of node ``j`` is the last node before ``j`` that leaves a stack of ``stack_size[j] + k``: for ``k = 0``
    its predecessor among the nodes sorted by stack size, for the last child ``j - 1``. A subtree begins at the last
    leaf up to ``j`` that leaves a stack as large as ``j`` does.

    Args:
        arity: ``[nodes]``, of trees known to be whole.
        begin: ``[trees + 1]``, where each tree starts.
    """
    num_nodes = len(arity)
    pointer = offsets(arity)
    child = np.empty(int(pointer[-1]), np.int64)
    subtree_begin = np.empty(num_nodes, np.int64)
    if not num_nodes:
        return Postorder(pointer, child, subtree_begin)

    stack_size = stack_sizes(arity, begin)
    by_stack_size = stable_order(stack_size)
    is_leaf = arity == 0
    last_leaf = np.maximum.accumulate(np.where(is_leaf[by_stack_size], np.arange(num_nodes), 0))
    subtree_begin[by_stack_size] = by_stack_size[last_leaf]

    place = np.flatnonzero(~is_leaf[by_stack_size])
    parent = by_stack_size[place]
    child[pointer[parent]] = by_stack_size[place - 1]
    child[pointer[parent + 1] - 1] = parent - 1

    wide = np.flatnonzero(arity > 2)
    if wide.size:
        inner_count = arity[wide].astype(np.int64) - 2
        position = concatenated_ranges(np.ones(len(wide), np.int64), inner_count)
        parent = np.repeat(wide, inner_count)
        keys = stack_size[by_stack_size] * num_nodes + by_stack_size
        wanted = (stack_size[parent] + position) * num_nodes + parent
        child[pointer[parent] + position] = by_stack_size[np.searchsorted(keys, wanted) - 1]
    return Postorder(pointer, child, subtree_begin)


def find_depths(subtree_begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of edges from each node up to its root: of the subtrees that have begun, those not yet complete."""
    num_nodes = len(subtree_begin)
    begun = np.bincount(subtree_begin, minlength=num_nodes).cumsum()
    return begun - np.arange(1, num_nodes + 1)


def find_heights(subtree_begin: NDArray[np.int64], depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """Longest way from each node down to a leaf: the largest depth within its subtree, less its own.

    The maximum over a subtree is that of two overlapping windows whose width is a power of two, so the whole costs one
    pass over the nodes for each doubling of the largest subtree's size.
    """
    num_nodes = len(subtree_begin)
    height = np.zeros(num_nodes, np.int64)
    node = np.flatnonzero(subtree_begin < np.arange(num_nodes))
    size = node - subtree_begin[node] + 1
    deepest, width = depth, 1  # deepest[i] is the largest depth among the width nodes from i on
    while node.size:
        now = size < 2 * width
        covered = node[now]
        height[covered] = np.maximum(deepest[subtree_begin[covered]], deepest[covered - width + 1]) - depth[covered]
        node, size = node[~now], size[~now]
        deepest = np.maximum(deepest[:-width], deepest[width:]) if node.size else deepest
        width *= 2
    return height


class PostorderTrees:
    """The structure of trees in post-order, whatever their labels; each array is found on first need and kept.

    Attributes:
        arity: int32 ``[nodes]``, number of children.
        begin: int64 ``[trees + 1]``; tree ``i`` is the nodes ``begin[i]`` to ``begin[i + 1] - 1``, its root the last.
    """

    def __init__(self, arity: NDArray[np.int32], begin: NDArray[np.int64]) -> None:
        self.arity = read_only(arity)
        self.begin = read_only(begin)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all trees."""
        return len(self.arity)

    def __len__(self) -> int:
        return len(self.begin) - 1

    @cached_property
    def _postorder(self) -> Postorder:
        structure = find_children(self.arity, self.begin)
        return Postorder(*(read_only(array) for array in structure))

    @cached_property
    def _parent(self) -> NDArray[np.int64]:
        pointer, child, _ = self._postorder
        parent = np.full(self.num_nodes, -1, np.int64)
        parent[child] = np.repeat(np.arange(self.num_nodes), np.diff(pointer))
        return read_only(parent)

    @cached_property
    def _depth(self) -> NDArray[np.int64]:
        return read_only(find_depths(self._postorder.subtree_begin))

    @cached_property
    def _height(self) -> NDArray[np.int64]:
        return read_only(find_heights(self._postorder.subtree_begin, self._depth))

    def children(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(pointer [nodes + 1], child [edges])``: the children of ``j`` are ``child[pointer[j]:pointer[j + 1]]``."""
        return self._postorder.pointer, self._postorder.child

    def parent(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``: the parent of each node, -1 for a root."""
        return self._parent

    def depth(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``: number of edges from each node up to its root."""
        return self._depth

    def height(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``: longest way from each node down to a leaf, in edges."""
        return self._height

    def subtree_begin(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``: the first node of each node's subtree, which ends at the node itself."""
        return self._postorder.subtree_begin

    def subtree_size(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``: number of nodes of each node's subtree, itself included."""
        return np.arange(1, self.num_nodes + 1) - self._postorder.subtree_begin

    def node_name(self, node: int) -> str:
        """How messages call a node: its tree, and its place there in post-order, both counted from 1."""
        tree = int(np.searchsorted(self.begin, node, side="right")) - 1
        return f"tree {tree + 1}, node {node - int(self.begin[tree]) + 1} (in post-order)"
