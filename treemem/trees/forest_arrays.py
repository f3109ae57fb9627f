"""What the arrays of a forest must be, and how two sets of them compare and join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError
from treemem.trees.postorder import offsets, stack_sizes
from treemem.trees.tree import Node

_DATA_SORTS = "biufU"
_NODES_AT_ONCE = 1 << 22


class ForestArrays(NamedTuple):
    """The arrays of a forest, as :class:`treemem.trees.forest.Forest` names and describes them."""

    labels: Sequence[str]
    label: NDArray[Any]
    arity: NDArray[Any]
    begin: NDArray[Any]
    value: NDArray[Any] | None
    node_data: Mapping[str, NDArray[Any]]
    tree_data: Mapping[str, NDArray[Any]]


def checked_integers(name: str, array: ArrayLike, dtype: type[np.int32] | type[np.int64]) -> NDArray[Any]:
    """``array`` as one-dimensional integers of ``dtype``, without a copy where it is that already.

    Raises:
        GraphError: it has another number of dimensions, holds no integers, or does not fit.
    """
    given = np.asarray(array)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise GraphError(f"{name} must be a one-dimensional array of integers, not {given.dtype} {given.shape}")
    limits = np.iinfo(dtype)
    if given.size and given.dtype != dtype and (int(given.max()) > limits.max or int(given.min()) < limits.min):
        raise GraphError(f"{name} holds {int(given.max())} or {int(given.min())}, beyond {dtype.__name__}")
    return given.astype(dtype, copy=False)


def checked_values(array: ArrayLike) -> NDArray[np.float64]:
    """``array`` as one-dimensional float64.

    Raises:
        GraphError: it has another number of dimensions or holds no numbers.
    """
    given = np.asarray(array)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iuf"):
        raise GraphError(f"value must be a one-dimensional array of numbers, not {given.dtype} {given.shape}")
    return given.astype(np.float64, copy=False)


def checked_data(kind: str, data: Mapping[str, ArrayLike] | None, length: int) -> dict[str, NDArray[Any]]:
    """The arrays of ``node_data`` or ``tree_data``.

    Raises:
        GraphError: an array whose length is not ``length``, or that holds neither numbers, booleans nor strings.
    """
    checked = {}
    for name, array in (data or {}).items():
        given = np.asarray(array)
        if given.dtype.kind == "O" and all(isinstance(item, str) for item in given.flat):
            given = given.astype(str)
        if given.dtype.kind not in _DATA_SORTS:
            raise GraphError(f"{kind}[{name!r}] must hold numbers, booleans or strings, not {given.dtype}")
        if given.ndim < 1 or len(given) != length:
            raise GraphError(f"{kind}[{name!r}] has shape {given.shape}; its first dimension must be {length}")
        checked[str(name)] = given
    return checked


def check_nodes(
    labels: Sequence[str],
    label: NDArray[np.int32],
    arity: NDArray[np.int32],
    begin: NDArray[np.int64],
    value: NDArray[np.float64] | None,
) -> None:
    """Check every node, some millions at a time so that a forest larger than memory can be checked too.

    Raises:
        GraphError: the first node or tree that is wrong.
    """
    for trees, nodes in blocks_of_trees(begin):
        part_begin = begin[trees.start : trees.stop + 1] - begin[trees.start]
        _check_part(
            labels, label[nodes], arity[nodes], part_begin, None if value is None else value[nodes], trees.start
        )


def blocks_of_trees(begin: NDArray[np.int64]) -> Iterator[tuple[slice, slice]]:
    """Yield some trees after the other, with some millions of nodes together, and these nodes."""
    first = 0
    while first < len(begin) - 1:
        limit = begin[first] + _NODES_AT_ONCE
        last = max(int(np.searchsorted(begin, limit, side="right")) - 1, first + 1)
        yield slice(first, last), slice(int(begin[first]), int(begin[last]))
        first = last


def _check_part(
    labels: Sequence[str],
    label: NDArray[np.int32],
    arity: NDArray[np.int32],
    begin: NDArray[np.int64],
    value: NDArray[np.float64] | None,
    first_tree: int,
) -> None:
    def refuse(wrong: NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            node = int(np.argmax(wrong))
            tree = int(np.searchsorted(begin, node, side="right")) - 1
            raise GraphError(
                f"tree {first_tree + tree + 1}, node {node - int(begin[tree]) + 1} (in post-order): {problem}"
            )

    refuse((label < 0) | (label >= len(labels)), f"its label is no index into the table of {len(labels)} labels")
    refuse(arity < 0, "its arity is negative")
    stack_size = stack_sizes(arity, begin)
    refuse(stack_size < 1, "it wants more children than nodes precede it in its tree")
    left_over = stack_size[begin[1:] - 1] - 1
    if left_over.any():
        tree = int(np.argmax(left_over != 0))
        raise GraphError(
            f"tree {first_tree + tree + 1}: its nodes make {int(left_over[tree]) + 1} trees, not one; check arity and "
            "begin"
        )
    if value is not None:
        refuse(np.isinf(value), "its value is infinite")
        refuse(~np.isnan(value) & (arity > 0), "it has children and a value; only a leaf stands for a number")


def joined_data(parts: Sequence[Mapping[str, NDArray[Any]]], kind: str) -> dict[str, NDArray[Any]]:
    """The data of several forests, one after the other.

    Raises:
        GraphError: parts with data of different names or shapes.
    """
    if not parts:
        return {}
    for index, part in enumerate(parts):
        if part.keys() != parts[0].keys():
            raise GraphError(f"forest {index} has {kind} {sorted(part)} and forest 0 has {sorted(parts[0])}")
    joined = {}
    for name in parts[0]:
        shapes = {part[name].shape[1:] for part in parts}
        sorts = {part[name].dtype.kind == "U" for part in parts}
        if len(shapes) > 1 or len(sorts) > 1:
            raise GraphError(f"the forests' {kind}[{name!r}] differ in shape or type and cannot be joined")
        joined[name] = np.concatenate([part[name] for part in parts])
    return joined


def same_data(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> bool:
    """Whether two sets of data hold the same names and entries, NaN equal to NaN."""
    return first.keys() == second.keys() and all(same_array(first[name], second[name]) for name in first)


def same_array(first: NDArray[Any] | None, second: NDArray[Any] | None) -> bool:
    """Whether two arrays hold the same entries, NaN equal to NaN; None equals only None."""
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f" and second.dtype.kind == "f")


def arrays_of_nodes(trees: Iterable[Sequence[Node]]) -> ForestArrays:
    """Return the arrays of trees that are given by their nodes, children before their parent."""
    number = _Numbers()
    size: list[int] = []

    def all_nodes() -> Iterator[Node]:
        for nodes in trees:
            size.append(len(nodes))
            yield from nodes

    place: NDArray[np.int64] = np.fromiter(map(number.__getitem__, all_nodes()), np.int64)
    labels = {label: index for index, label in enumerate(dict.fromkeys(label for label, _, _ in number))}
    label = np.array([labels[label] for label, _, _ in number], np.int32)
    arity = np.array([arity for _, arity, _ in number], np.int32)
    value = None
    if any(value is not None for _, _, value in number):
        value = np.array([value for _, _, value in number], np.float64)[place]
    return ForestArrays(tuple(labels), label[place], arity[place], offsets(size), value, {}, {})


class _Numbers(dict[Node, int]):
    """Numbers each distinct node when it is first asked for."""

    def __missing__(self, node: Node) -> int:
        self[node] = number = len(self)
        return number
