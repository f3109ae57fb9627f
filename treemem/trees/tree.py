"""One ordered labelled tree."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from treemem.errors import GraphError, shown
from treemem.trees.formats.label_text import format_label
from treemem.trees.formats.number_text import number_text

if TYPE_CHECKING:
    import dgl
    import networkx
    import sympy
    from torch_geometric.data import Data


Part = TypeVar("Part")


def _is_label(child: object) -> bool:
    return isinstance(child, (str, int, float)) and not isinstance(child, bool)


Node = tuple[str, int, "float | None"]
"""A label, a number of children, and the number that a leaf stands for."""


class Tree:
    """An immutable ordered tree whose nodes carry labels.

    No method recurses, so a chain of 100,000 nodes is a tree like any other. Two trees are equal when their shapes,
    labels and values are.

    Args:
        label: what the root says, for example ``"Add"`` or ``"Symbol:var_0"``.
        children: the root's subtrees, in order. A text or a number is a leaf with that label.
        value: the number that a number leaf stands for; only leaves have one.

    Attributes:
        size: number of nodes.
        height: longest way down to a leaf, in edges; a leaf has 0.

    Raises:
        GraphError: a child that is no ``Tree``, a value at an inner node, or a value that is not finite.

    Example:
        >>> tree = Tree("Add", ["Symbol:var_0", "Integer:2"])
        >>> str(tree)
        '(Add Symbol:var_0 Integer:2)'
        >>> tree.size, tree.height
        (3, 1)
    """

    __slots__ = ("_hash", "children", "height", "label", "size", "value")

    label: str
    children: tuple[Tree, ...]
    value: float | None
    size: int
    height: int
    _hash: int

    def __init__(self, label: str, children: Iterable[Tree | str | float] = (), value: float | None = None) -> None:
        if isinstance(children, str):
            raise GraphError(
                f"the children of {label!r} must be several; put the single {shown(children, 40)} in a list"
            )
        try:
            subtrees: tuple[Any, ...] = tuple(
                [
                    Tree(str(child) if isinstance(child, str) else number_text(child)) if _is_label(child) else child
                    for child in children
                ]
            )
        except TypeError as error:
            if isinstance(children, Iterable):
                raise
            hint = "put the single Tree in a list" if isinstance(children, Tree) else f"not {type(children).__name__}"
            raise GraphError(f"the children of {label!r} must be several Trees; {hint}") from error
        if not isinstance(label, str):
            raise GraphError(f"a label must be a string, not {type(label).__name__}")
        size, height = 1, -1
        for position, child in enumerate(subtrees):
            if not isinstance(child, Tree):
                given = f"{type(child).__name__}; as_tree reads nested lists"
                raise GraphError(f"child {position} of {label!r} must be a Tree, not {given}")
            size += child.size
            height = max(height, child.height)
        if value is not None:
            if subtrees:
                raise GraphError(f"{label!r} has children and a value; only a leaf stands for a number")
            try:
                number = float(value) + 0.0  # -0.0 and 0.0 are one number
            except (TypeError, ValueError, OverflowError) as error:
                raise GraphError(f"the value of {label!r} must be a finite number, not {shown(value, 40)}") from error
            if not math.isfinite(number):
                raise GraphError(f"the value of {label!r} must be finite, not {number}")
            value = number
        assign = object.__setattr__
        assign(self, "label", label)
        assign(self, "children", subtrees)
        assign(self, "value", value)
        assign(self, "size", size)
        assign(self, "height", height + 1)
        assign(self, "_hash", hash((label, value, *[child._hash for child in subtrees])))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Tree cannot be changed; build a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tree cannot be changed; {name!r} cannot be deleted")

    @property
    def arity(self) -> int:
        """Number of children of the root."""
        return len(self.children)

    @property
    def is_leaf(self) -> bool:
        """Whether the root has no children."""
        return not self.children

    def preorder(self) -> Iterator[Tree]:
        """Every subtree, a parent before its children, children from left to right."""
        stack = [self]
        while stack:
            tree = stack.pop()
            yield tree
            stack.extend(reversed(tree.children))

    def postorder(self) -> Iterator[Tree]:
        """Every subtree, children from left to right before their parent."""
        stack: list[tuple[Tree, int]] = [(self, 0)]
        while stack:
            tree, position = stack.pop()
            if position < len(tree.children):
                stack.append((tree, position + 1))
                stack.append((tree.children[position], 0))
            else:
                yield tree

    def leaves(self) -> Iterator[Tree]:
        """The leaves, from left to right."""
        return (tree for tree in self.preorder() if not tree.children)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        pairs = [(self, other)]
        while pairs:
            left, right = pairs.pop()
            if left is right:
                continue
            if (
                left._hash != right._hash
                or left.size != right.size
                or left.label != right.label
                or left.value != right.value
                or len(left.children) != len(right.children)
            ):
                return False
            pairs.extend(zip(left.children, right.children, strict=True))
        return True

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        nodes = list(self.postorder())
        labels = [node.label for node in nodes]
        return tree_from_postorder, (labels, [node.arity for node in nodes], [node.value for node in nodes])

    def __str__(self) -> str:
        return format_brackets(self)

    def __repr__(self) -> str:
        text = str(self) if self.size <= 50 else f"{self.label!r} with {self.size} nodes, height {self.height}"
        return f"<Tree {text}>"

    def binarize(self, direction: Literal["left", "right"] = "right") -> Tree:
        """Split every node of more than two children into nodes of two, all of the same label.

        ``"right"`` turns ``(f a b c)`` into ``(f a (f b c))``, ``"left"`` into ``(f (f a b) c)``.
        """
        if direction not in ("left", "right"):
            raise GraphError(f'direction must be "left" or "right", not {direction!r}')
        done: list[Tree] = []
        for node in self.postorder():
            first = len(done) - node.arity
            parts = done[first:]
            del done[first:]
            while len(parts) > 2 and direction == "right":
                parts[-2:] = [Tree(node.label, parts[-2:])]
            if len(parts) > 2:
                nested = parts[0]
                for part in parts[1:-1]:
                    nested = Tree(node.label, [nested, part])
                parts = [nested, parts[-1]]
            done.append(Tree(node.label, parts, node.value))
        return done.pop()

    @classmethod
    def from_sympy(
        cls,
        expression: sympy.Basic,
        *,
        variables: Literal["appearance", "indexed"] | None = None,
        numeric: bool = False,
        functions: Mapping[str, int] | None = None,
    ) -> Tree:
        """The tree of a sympy expression or ``Eq``, as it stands: nothing is simplified or evaluated.

        See :func:`tree_from_sympy` for the options.
        """
        return bridge_to("sympy").tree_from_sympy(expression, variables=variables, numeric=numeric, functions=functions)

    def to_sympy(self) -> sympy.Basic:
        """The unevaluated sympy expression that this tree says."""
        return bridge_to("sympy").tree_to_sympy(self)

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph) -> Tree:
        """The tree of a graph whose edges run from child to parent; see :func:`tree_from_networkx`."""
        return bridge_to("networkx").tree_from_networkx(graph)

    def to_networkx(self) -> networkx.DiGraph:
        """A graph with edges from child to parent; see :func:`tree_to_networkx`."""
        return bridge_to("networkx").tree_to_networkx(self)

    @classmethod
    def from_dgl(cls, graph: dgl.DGLGraph, labels: tuple[str, ...]) -> Tree:
        """The tree of a DGL graph whose node field ``label`` indexes ``labels``; see :func:`tree_from_dgl`."""
        return bridge_to("dgl").tree_from_dgl(graph, labels)

    def to_dgl(self, labels: tuple[str, ...]) -> dgl.DGLGraph:
        """A DGL graph with edges from child to parent; node fields ``label``, ``value``, edge field ``position``."""
        return bridge_to("dgl").tree_to_dgl(self, labels)

    @classmethod
    def from_pyg(cls, data: Data, labels: tuple[str, ...]) -> Tree:
        """The tree of a PyG graph whose field ``label`` indexes ``labels``; see :func:`tree_from_pyg`."""
        return bridge_to("pyg").tree_from_pyg(data, labels)

    def to_pyg(self, labels: tuple[str, ...]) -> Data:
        """A PyG graph with edges from child to parent and fields ``label``, ``value`` and ``position``."""
        return bridge_to("pyg").tree_to_pyg(self, labels)


def bridge_to(library: str) -> Any:
    """The module that converts trees from and to another library, which is imported on first use."""
    return importlib.import_module(f"treemem.trees.bridges.{library}")


def tree_from_postorder(
    labels: Iterable[str], arities: Iterable[int], values: Iterable[float | None] | None = None
) -> Tree:
    """Build one tree from its nodes in post-order.

    Raises:
        GraphError: the arities do not describe exactly one tree.
    """
    labels, arities = list(labels), list(arities)
    values = [None] * len(labels) if values is None else list(values)
    done: list[Tree] = []
    for number, (label, arity, value) in enumerate(zip(labels, arities, values, strict=True), start=1):
        if not 0 <= arity <= len(done):
            raise GraphError(f"node {number} ({label!r}) wants {arity} children, and {len(done)} precede it")
        first = len(done) - arity
        done[first:] = [Tree(label, done[first:], value)]
    if len(done) != 1:
        raise GraphError(f"these nodes make {len(done)} trees, not one")
    return done.pop()


def grow_tree(root: Part, expand: Callable[[Part], Tree | tuple[str, Sequence[Part], Any]]) -> Tree:
    """Return the tree that nested data describe, however deep.

    Args:
        root: what stands for the root.
        expand: given what stands for a node, returns its tree, or its label, what stands for its children, and the
            number that it stands for, if it is a leaf.
    """
    pending = [root]
    nodes = []
    while pending:
        node = expand(pending.pop())
        nodes.append(node)
        if not isinstance(node, Tree):
            pending.extend(reversed(node[1]))
    done: list[Tree] = []
    for node in reversed(nodes):
        if isinstance(node, Tree):
            done.append(node)
            continue
        label, parts, value = node
        children = [done.pop() for _ in parts]
        done.append(Tree(label, children, value))
    return done.pop()


def words_of(parts: Sequence[str | Part], expand: Callable[[Part], Sequence[str | Part]]) -> list[str]:
    """The words of a text from left to right.

    Args:
        parts: what the text is made of: words, and parts such as subtrees.
        expand: says what a part is made of.
    """
    words: list[str] = []
    pending = [*reversed(parts)]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            words.append(part)
        else:
            pending.extend(reversed(expand(part)))
    return words


def format_brackets(tree: Tree) -> str:
    """The text of ``tree`` that ``parse_brackets`` reads back.

    Example:
        >>> format_brackets(Tree("plus", [Tree("my x"), Tree("Number", value=2.5)]))
        '(plus "my x" Number=2.5)'
    """
    parts: list[str] = []
    pending: list[Tree | None] = [tree]
    while pending:
        node = pending.pop()
        if node is None:
            parts.append(")")
            continue
        label = format_label(node.label, is_inner=bool(node.children), is_root=not parts and not node.children)
        if node.value is not None:
            label += f"={node.value!r}"
        if node.children:
            parts.append(f" ({label}")
            pending.append(None)
            pending.extend(reversed(node.children))
        else:
            parts.append(f" {label}")
    return "".join(parts)[1:]


def tree_nodes(tree: Tree) -> list[Node]:
    """The nodes of a tree."""
    nodes, pending = [], [tree]
    while pending:
        node = pending.pop()
        nodes.append((node.label, len(node.children), node.value))
        pending.extend(node.children)
    nodes.reverse()
    return nodes
