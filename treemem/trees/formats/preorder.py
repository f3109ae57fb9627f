"""Equation trees in the published preorder form: labels a space apart, a function before its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from treemem.errors import GraphError, ParseError, near_names
from treemem.trees.formats.equations.labels import FUNCTION_ARITIES, LEAF_LABELS, NUMBER, UNIFIED_LABELS
from treemem.trees.formats.equations.names import Functions, check_function
from treemem.trees.formats.source_text import decode_source, shorten
from treemem.trees.tree import Tree

_DECIMAL = r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NUMBER_LEAF = re.compile(rf"{NUMBER}:({_DECIMAL})\Z")
_OTHER_LEAF = re.compile(rf"(?:Symbol:[^\s:]+|Integer:-?[0-9]+|Rational:-?[0-9]+(?:/[0-9]+)?|Float:{_DECIMAL})\Z")


def parse_preorder(text: str | bytes, *, unify: bool = True, functions: Mapping[str, int] | None = None) -> Tree:
    """Read one tree from its labels in preorder, for example ``Equality sin Symbol:var_0 Integer:0``.

    Args:
        text: labels with white space between; a function's label says its arity, and a leaf is ``Class:value``.
            ``Number:2.5`` is a ``Number`` leaf with that value.
        unify: whether ``One:1`` is read as ``Integer:1`` and ``Rational:0`` as ``Integer:0``.
        functions: arities of own functions, by name.

    Raises:
        ParseError: an unknown label, with the near names; a missing argument; or labels after the end of the tree.
        VocabularyError: an own function that cannot be declared.
    """
    text = decode_source(text)
    Functions(functions)
    arities = {**FUNCTION_ARITIES, **(functions or {})}
    words = re.finditer(r"\S+", text)
    return read_prefix(text, words, arities, lambda label, offset: _read_leaf(label, arities, unify, text, offset))


def read_prefix(
    text: str, words: Iterable[re.Match[str]], arities: Mapping[str, int], read_leaf: Callable[[str, int], Tree]
) -> Tree:
    """Return the tree of words in which a function stands before its arguments.

    Args:
        text: where the words stand.
        words: from left to right.
        arities: of the functions.
        read_leaf: returns the leaf of another word, given where it stands.

    Raises:
        ParseError: a missing argument, or words after the end of the tree.
    """
    leaves: dict[str, Tree] = {}
    open_nodes: list[tuple[str, int, list[Tree]]] = []
    tree: Tree | None = None
    for match in words:
        label = match.group()
        if tree is not None and not open_nodes:
            raise ParseError(f"{shorten(label)} after the end of the tree", text, match.start(), "the end of the text")
        arity = arities.get(label)
        if arity is not None:
            open_nodes.append((label, arity, []))
            continue
        tree = leaves.get(label)
        if tree is None:
            tree = leaves[label] = read_leaf(label, match.start())
        while open_nodes:
            function, arity, children = open_nodes[-1]
            children.append(tree)
            if len(children) < arity:
                break
            open_nodes.pop()
            tree = Tree(function, children)
    if open_nodes:
        function, arity, children = open_nodes[-1]
        raise ParseError(
            f"{function} has {len(children)} of its {arity} arguments", text, len(text.rstrip()), "another label"
        )
    if tree is None:
        raise ParseError("the text is empty", text, 0, "the labels of a tree in preorder")
    return tree


def _read_leaf(label: str, arities: Mapping[str, int], unify: bool, text: str, offset: int) -> Tree:
    match = _NUMBER_LEAF.match(label)
    if match:
        try:
            return Tree(NUMBER, value=float(match[1]))
        except GraphError as error:
            raise ParseError(str(error), text, offset, "a number below 1e308 in size") from error
    if label not in LEAF_LABELS and not _OTHER_LEAF.match(label):
        near = near_names(label, [*arities, *LEAF_LABELS])
        raise ParseError(
            f"unknown label {shorten(label)}{near}",
            text,
            offset,
            "a function or a leaf such as Symbol:var_0 or Integer:2",
        )
    return Tree(UNIFIED_LABELS.get(label, label) if unify else label)


def format_preorder(tree: Tree) -> str:
    """The labels of an equation tree in preorder, as :func:`parse_preorder` reads them.

    Raises:
        GraphError: a function with a wrong number of arguments, a leaf that has no preorder form, a ``Number`` without
            a value or another leaf with one.
        VocabularyError: an own function whose name :func:`parse_equation` could not read.
    """
    words = []
    for node in tree.preorder():
        label = node.label
        if node.children:
            check_function(node)
        elif (label == NUMBER) != (node.value is not None):
            raise GraphError(
                f"the leaf {shorten(label)} has the value {node.value}; {NUMBER} leaves have one, others none"
            )
        elif label == NUMBER:
            label = f"{NUMBER}:{node.value!r}"
        elif label not in LEAF_LABELS and not _OTHER_LEAF.match(label):
            near = near_names(label, LEAF_LABELS)
            raise GraphError(f"{shorten(label)} cannot be a leaf in preorder text{near}")
        words.append(label)
    return " ".join(words)
