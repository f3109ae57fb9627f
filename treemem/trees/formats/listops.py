"""ListOps expressions as text: ``[MAX 2 9 [MIN 4 7 ] 0 ]``, plain or in the published binary brackets.

In the published files (Nangia & Bowman 2018) each list branches to the left: its operator takes one argument after the
other, and last its ``]``, so ``[SM 6 5 ]`` is written ``( ( ( [SM 6 ) 5 ) ] )``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from treemem.checked_options import checked_choice
from treemem.errors import GraphError, ParseError, near_names
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import decode_source, place, shorten
from treemem.trees.tree import Tree, words_of

ListOpsForm = Literal["binary", "nary"]

DIGITS = tuple("0123456789")
OPERATORS = ("[MIN", "[MAX", "[FIRST", "[LAST", "[MED", "[SM")
RARE_OPERATORS = ("[PM", "[FLSUM")
"""Operators of some published files: the product, and the sum of the first two arguments, modulo 10."""

END = "]"

_TOKEN = re.compile(r"[()\]]|[^ \t\r\n\f\v()\]]+")


def parse_listops(text: str | bytes, form: ListOpsForm = "binary") -> Tree:
    """Read one expression, plain or in binary brackets.

    Args:
        text: the expression. Where it has round brackets at all, it must have all of the published form.
        form: ``"binary"``: the published tree: operators, digits and ``]`` are leaves, inner nodes have two children
            and the label ``X``; ``"nary"``: each list is a node labelled with its operator, its arguments are the
            children.

    Raises:
        ParseError: the text is not one expression; says where, and what was expected.
        RecipeError: another ``form``.

    Example:
        >>> str(parse_listops("[MAX 2 [MIN 4 7 ] ]", form="nary"))
        '([MAX 2 ([MIN 4 7))'
        >>> str(parse_listops("( ( ( [SM 6 ) 5 ) ] )"))
        '(X (X (X [SM 6) 5) ])'
    """
    checked_choice("form", form, get_args(ListOpsForm))
    text = decode_source(text)
    reader = _Reader(text, form)
    for token in _TOKEN.finditer(text):
        word, offset = token.group(), token.start()
        if word == ")":
            reader.close_bracket(offset)
            continue
        reader.check_goes_on(word, offset)
        if word == "(":
            reader.open_bracket(offset)
        elif word in _ALL_OPERATORS:
            reader.open_list(word, offset)
        elif word == END:
            reader.close_list(offset)
        elif word in DIGITS:
            reader.add(Tree(word), word, offset)
        else:
            raise _unknown(word, text, offset)
    return reader.finish()


def _unknown(word: str, text: str, offset: int) -> ParseError:
    if re.fullmatch(r"[-+]?[0-9.]+", word):
        return ParseError(f"{shorten(word)} is no digit", text, offset, "a whole number from 0 to 9")
    near = near_names(word, _ALL_OPERATORS)
    return ParseError(f"unknown operator {shorten(word)}{near}", text, offset, f"a digit, ] or one of {_OPERATOR_LIST}")


_ALL_OPERATORS = (*OPERATORS, *RARE_OPERATORS)
_OPERATOR_LIST = " ".join(_ALL_OPERATORS)


@dataclass
class _OpenList:
    """A list that is being read; ``brackets`` is how many ``(`` stand before it, the first at ``begin``."""

    operator: str
    offset: int
    brackets: int
    begin: int
    tree: Tree
    arguments: list[Tree] = field(default_factory=list)
    num_arguments: int = 0


class _Reader:
    """Builds the tree of one text from its tokens."""

    def __init__(self, text: str, form: ListOpsForm) -> None:
        self.text, self.form = text, form
        self.bracketed = "(" in text or ")" in text
        self.lists: list[_OpenList] = []
        self.tree: Tree | None = None
        self.pending = 0  # "(" since the last token that was none
        self.pending_begin = 0
        self.due = 0  # ")" that must come next
        self.last = ""

    def check_goes_on(self, word: str, offset: int) -> None:
        """Whether something other than ``)`` may stand here."""
        if self.due:
            raise self._error(f"{shorten(word)} where the bracket around {self.last!r} must be closed", offset, "')'")
        if self.tree is not None:
            raise self._error(f"{shorten(word)} after the end of the expression", offset, "the end of the text")
        if self.pending and (word in DIGITS or word == END):
            problem = f"'(' before {word!r}: lists branch to the left, ( ( ( [SM 6 ) 5 ) ] )"
            raise self._error(problem, self.pending_begin, "'(' only before an operator")

    def open_bracket(self, offset: int) -> None:
        """One more ``(``."""
        if not self.pending:
            self.pending_begin = offset
        self.pending += 1

    def close_bracket(self, offset: int) -> None:
        """One ``)``, which must be due."""
        if not self.due:
            after_end = self.tree is not None
            problem = "')' after the end of the expression" if after_end else "')' closes no bracket here"
            raise self._error(problem, offset, "the end of the text" if after_end else "an argument or ']'")
        self.due -= 1

    def open_list(self, operator: str, offset: int) -> None:
        """An operator."""
        begin = self.pending_begin if self.pending else offset
        self.lists.append(_OpenList(operator, offset, self.pending, begin, Tree(operator)))
        self.pending = 0

    def close_list(self, offset: int) -> None:
        """A ``]``."""
        if not self.lists:
            raise self._error("']' closes no list", offset, "an operator or a digit")
        closed = self.lists.pop()
        count = closed.num_arguments
        if not count:
            raise self._error(f"the operator {closed.operator!r} has no arguments", offset, "a digit or a list")
        if self.bracketed and closed.brackets != count + 1:
            problem = f"{closed.brackets} '(' before {closed.operator!r}, whose list has {_arguments(count)}"
            raise self._error(problem, closed.begin, f"{count + 1}: one for each argument and one for its ']'")
        if self.form == "binary":
            tree = Tree(CONSTITUENT, [closed.tree, Tree(END)])
        else:
            tree = Tree(closed.operator, closed.arguments)
        self.due = int(self.bracketed)
        self.add(tree, END, offset)

    def add(self, tree: Tree, last: str, offset: int) -> None:
        """A whole digit or list: an argument, or the expression itself."""
        self.last = last
        if not self.lists:
            if self.bracketed and last != END:
                raise self._error(f"a lone digit {last!r} in brackets", offset, "an operator after '('")
            self.tree = tree
            return
        within = self.lists[-1]
        within.num_arguments += 1
        if self.form == "binary":
            within.tree = Tree(CONSTITUENT, [within.tree, tree])
        else:
            within.arguments.append(tree)
        self.due += int(self.bracketed)

    def finish(self) -> Tree:
        """The tree, at the end of the text."""
        end = len(self.text)
        if self.due:
            raise self._error(f"the bracket around {self.last!r} is not closed", end, "')'")
        if self.lists:
            opened = self.lists[-1]
            problem = f"the list {opened.operator!r} of {place(self.text, opened.offset)} is not closed"
            raise self._error(problem, end, "an argument or ']'")
        if self.pending:
            raise self._error("the text ends after '('", end, "an operator")
        if self.tree is None:
            raise self._error("the text holds no expression", end, "an operator or a digit")
        return self.tree

    def _error(self, problem: str, offset: int, expected: str) -> ParseError:
        return ParseError(problem, self.text, offset, expected)


def _arguments(count: int) -> str:
    return f"{count} argument{'s' * (count != 1)}"


def format_listops(tree: Tree, *, brackets: bool = False) -> str:
    """The text that :func:`parse_listops` reads back, in the form of ``tree``, as the same tree.

    Args:
        tree: an expression in either form.
        brackets: write the published binary brackets.

    Raises:
        GraphError: the tree is no expression.

    Example:
        >>> tree = parse_listops("[MAX 2 [MIN 4 7 ] ]", form="nary")
        >>> format_listops(tree)
        '[MAX 2 [MIN 4 7 ] ]'
        >>> format_listops(tree, brackets=True)
        '( ( ( [MAX 2 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )'
    """
    form: ListOpsForm = "binary" if tree.label == CONSTITUENT else "nary"
    plain = " ".join(leaf.label for leaf in tree.leaves()) if form == "binary" else " ".join(_words(tree, False))
    try:
        same = parse_listops(plain, form) == tree
    except ParseError as error:
        raise GraphError(f"this tree is no expression of ListOps: {error}") from error
    if not same:
        raise GraphError(f"this tree is not the {form} one of {shorten(plain)}; lists branch to the left")
    if not brackets:
        return plain
    return " ".join(_words(tree if form == "nary" else parse_listops(plain, "nary"), True))


def _words(tree: Tree, brackets: bool) -> list[str]:
    """The words of an n-ary tree."""
    closing = [")"] * brackets

    def parts(node: Tree) -> list[Tree | str]:
        if not node.children:
            return [node.label]
        items: list[Tree | str] = ["("] * ((node.arity + 1) * brackets)
        items.append(node.label)
        for child in node.children:
            items += [child, *closing]
        return [*items, END, *closing]

    return words_of([tree], parts)
