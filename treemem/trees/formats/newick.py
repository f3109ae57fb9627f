"""Trees in Newick's form, as phylogenetics writes them: ``(A:0.1,(B,C)name:0.2);``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from treemem.errors import GraphError, ParseError
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import place, shorten
from treemem.trees.tree import Tree, words_of

BRANCH = "Branch"
"""The label of the node above a node that has a length, if lengths are kept. The length is its second child."""

_TOKEN = re.compile(
    r"(?P<space>\s+)|\[(?P<comment>[^\]]*)\]|'(?P<quoted>(?:[^']|'')*)'|(?P<sign>[(),:;])|(?P<bare>[^\s()\[\]':;,]+)"
    r"|(?P<wrong>.)",
    re.DOTALL,
)
_WRONG_SIGN = {
    "'": ("a name in quotes is not closed", "a quote at its end; a quote within a name is ''"),
    "[": ("a comment is not closed", "']' at its end"),
    "]": ("']' ends no comment", "comments without brackets in them"),
}
_LENGTH = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_PLAIN = re.compile(r"[^\s()\[\]':;,]+")
_MARK, _COMMENT_END = re.compile(r"'[^']*'|\[|;"), re.compile(r"\]")
"""A name in quotes, the beginning of a comment or the end of a tree; and the end of a comment."""

_ONE_TREE = "one tree, as after '=' in the lines 'tree NAME = ...' of NEXUS, with the names of its block 'translate'"


def parse_newick(text: str, number: str | None = None) -> Tree:
    """Read one tree. A node without a name gets the label ``X``. Comments in ``[]`` are left out.

    Names keep their underscores, and names in quotes their spaces; ``''`` is a quote in such a name.

    Args:
        text: the tree, with the semicolon at its end.
        number: the label of leaves that hold the lengths of branches. Then a node with a length is the first child of a
            node ``Branch``, whose second child is the length. By default lengths are left out.

    Raises:
        ParseError: the text is not one tree; says where.

    Example:
        >>> str(parse_newick("(A:0.1,(B,'C d')e:2)[a comment];"))
        '(X A (e B "C d"))'
        >>> str(parse_newick("(A:0.1,B);", number="length"))
        '(X (Branch A length=0.1) B)'
    """
    if text.lstrip()[:6].upper() == "#NEXUS":
        raise ParseError("this is a file of NEXUS", text, text.index("#"), _ONE_TREE)
    open_nodes: list[list[Tree]] = [[]]  # the children that are read, of the root's place and of each open bracket
    opened: list[int] = []  # where the open brackets are
    children: list[Tree] = []  # of the node that is being read
    label: str | None = None
    length: float | None = None
    after_colon = is_closed = is_ended = False

    def end_node() -> None:
        nonlocal children, label, length, is_closed
        node = Tree(CONSTITUENT if label is None else label, children)
        if number is not None and length is not None:
            node = Tree(BRANCH, [node, Tree(number, value=length)])
        open_nodes[-1].append(node)
        children, label, length, is_closed = [], None, None, False

    def not_closed(offset: int) -> ParseError:
        more = f", and {len(opened) - 1} before it" if len(opened) > 1 else ""
        return ParseError(f"the bracket of {place(text, opened[-1])} is not closed{more}", text, offset, "')'")

    for token in _TOKEN.finditer(text):
        sort, word = token.lastgroup, token.group()
        if sort in ("space", "comment"):
            continue
        if is_ended:
            raise ParseError(f"{shorten(word)} after the end of the tree", text, token.start(), "the end of the text")
        if after_colon:
            if sort != "bare" or not _LENGTH.fullmatch(word):
                raise ParseError(
                    f"the length of a branch is {shorten(word)}", text, token.start(), "a number after ':'"
                )
            length, after_colon = float(word), False
            if not math.isfinite(length):
                raise ParseError(f"the length {shorten(word)} is too large", text, token.start(), "a number in float64")
        elif word == "(" and sort == "sign":
            if is_closed or label is not None or length is not None:
                raise ParseError("a bracket after a node", text, token.start(), "',' or ')'" if opened else "';'")
            open_nodes.append([])
            opened.append(token.start())
        elif word == ":" and sort == "sign":
            if length is not None:
                raise ParseError("a second length of one branch", text, token.start(), "',' or ')'")
            after_colon = True
        elif word in (",", ")") and sort == "sign":
            if not opened:
                raise ParseError(f"{word!r} outside of all brackets", text, token.start(), "';', or '(' before it")
            end_node()
            if word == ")":
                children, is_closed = open_nodes.pop(), True
                opened.pop()
        elif sort == "sign":
            if opened:
                raise not_closed(token.start())
            end_node()
            is_ended = True
        elif sort == "wrong":
            problem, expected = _WRONG_SIGN[word]
            raise ParseError(problem, text, token.start(), expected)
        elif label is not None and label.lower() in ("tree", "utree", "begin", "translate"):
            raise ParseError(f"{shorten(label)} before the tree", text, 0, _ONE_TREE)
        elif label is not None or length is not None:
            raise ParseError(f"a second name of one node, {shorten(word)}", text, token.start(), "one name, or quotes")
        else:
            label = token["quoted"].replace("''", "'") if sort == "quoted" else word
    if opened:
        raise not_closed(len(text))
    if not is_ended:
        raise ParseError("the tree has no end", text, len(text), "';' at the end of a tree")
    return open_nodes[0][0]


def format_newick(tree: Tree, number: str | None = None) -> str:
    """Return the text of a tree, as :func:`parse_newick` reads it with the same ``number``.

    Raises:
        GraphError: a node ``Branch`` that is not a node and its length.

    Example:
        >>> format_newick(Tree("X", ["A", Tree("e", ["B", "C d"])]))
        "(A,(B,'C d')e);"
    """

    def expand(node: Tree) -> list[Tree | str]:
        length = ""
        if number is not None and node.label == BRANCH:
            if node.arity != 2 or node.children[1].value is None or node.children[0].label == BRANCH:
                raise GraphError(f"a node {BRANCH!r} has a node and a length as its children, not {shorten(str(node))}")
            length = f":{node.children[1].value!r}"
            node = node.children[0]
        if node.value is not None:
            raise GraphError(f"the leaf {shorten(node.label)} has a value, and is no length of a branch")
        name = "" if node.label == CONSTITUENT else _name(node.label)
        between = [part for child in node.children for part in (",", child)]
        return [*(["(", *between[1:], ")"] if between else []), name + length]

    return "".join([*words_of([tree], expand), ";"])


def newick_texts(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the trees of lines, each with its first line. They end in semicolons, and may span lines."""
    first, in_comment = 0, False
    parts: list[str] = []
    for number, line in lines:
        first = first if parts else number
        begin = end = 0
        while (mark := (_COMMENT_END if in_comment else _MARK).search(line, end)) is not None:
            end = mark.end()
            if mark.group() == ";":
                yield first, "".join([*parts, line[begin:end]])
                first, parts, begin = number, [], end
            in_comment = mark.group() == "["
        if parts or line[begin:].strip():
            parts.append(line[begin:] + "\n")
    if parts:
        yield first, "".join(parts)


def _name(label: str) -> str:
    quoted = label.replace("'", "''")
    return label if _PLAIN.fullmatch(label) else f"'{quoted}'"
