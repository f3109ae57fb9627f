"""The forms of texts that a column of trees may have, and signs that a column is in another form than it is read in."""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, TreememError, near_names, shown
from treemem.trees.formats.brackets import format_brackets, parse_brackets
from treemem.trees.formats.equations.labels import NUMBER
from treemem.trees.formats.form_signs import form_hint, may_be_other_form
from treemem.trees.formats.forms import FORMS, TEXT_FORMS, Form, TextForm, described_forms
from treemem.trees.formats.other_forms import other_form
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Tree, tree_from_postorder


class LabelledTrees(Protocol):
    """What is read of a :class:`~treemem.trees.forest.Forest`."""

    labels: tuple[str, ...]
    label: NDArray[np.int32]
    arity: NDArray[np.int32]
    value: NDArray[np.float64] | None

    def __len__(self) -> int: ...

    def children(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...


_DECIMAL = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NUMBER_LABEL = re.compile(
    rf"(?:(?:Integer|Float|NegativeOne|One):)?({_DECIMAL})|(?:Rational|Half):(-?[0-9]+)(?:/([0-9]+))?"
)
_PLAIN_NUMBER = re.compile(_DECIMAL)
_FIELD = re.compile(r"[a-z_]+:")
_TREE_SITTER_WORD = re.compile(r"[a-z_][a-z_0-9]*:?|[^A-Za-z0-9]+")
_SIGNS = "+", "-", "*", "/", "%", "//", "^", "**", "=", "==", "!=", "<", ">", "<=", ">="
_OPERATORS = frozenset((*_SIGNS, "&", "|", "&&", "||", "->", "=>", "<->", "<=>", "and", "or", "xor", "implies", "iff"))


def parse_text(text: str, form: TextForm = "brackets", *, number: str | None = None, values: bool = False) -> Tree:
    """Return the tree that a text of this form describes.

    Args:
        text: the text.
        form: one of :data:`~treemem.trees.formats.forms.FORMS`.
        number: the label of leaves that keep numbers as values. By default numbers are labels.
        values: whether ``label=2.5`` in brackets is a leaf with a value even if ``number`` is another label.

    Raises:
        ParseError: the text is not in this form; says in which form it seems to be.
        GraphError, VocabularyError: it describes no tree.
        RecipeError: there is no such form.

    Example:
        >>> str(parse_text("( ( a b ) c )", "unlabelled")), str(parse_text('["f", 2]', "json", number="N"))
        ('(X (X a b) c)', '(f N=2.0)')
    """
    entry = checked_form(form)
    if entry.parse is parse_brackets or form == "unlabelled":
        return entry.parse(text, number=number, values=values)
    text = decode_source(text).removeprefix("\ufeff")
    try:
        tree = entry.parse(text, number=number) if entry.keeps_numbers else entry.parse(text)
    except (ParseError, GraphError) as error:
        is_too_deep = isinstance(error.__cause__, (RecursionError, MemoryError))
        if is_too_deep or (seen := _seen_form(text, form)) is None:
            raise
        problem, offset, expected = str(error), 0, f"the form {form!r}"
        if isinstance(error, ParseError):
            problem, offset, expected = error.problem, error.offset, error.expected
        raise ParseError(f"this looks like {seen}; as {form!r}: {problem}", text, offset, expected) from error
    return tree if number is None or form in ("json", "python", "newick") else _with_values(tree, number)


def format_text(tree: Tree, form: TextForm = "brackets", *, number: str | None = None) -> str:
    """Return the text of a tree in this form, which :func:`parse_text` reads back.

    Args:
        tree: the tree.
        form: one of :data:`~treemem.trees.formats.forms.FORMS`.
        number: the label of leaves with values, which are written as numbers.

    Raises:
        GraphError: the form cannot hold the tree.
        VocabularyError: it has no spelling for a label.
        RecipeError: there is no such form, or it has no writer, since a tree does not say all that it holds.

    Example:
        >>> format_text(Tree("f", ["x y", Tree("N", value=2)]), "smtlib", number="N")
        '(f |x y| 2)'
    """
    entry = checked_form(form)
    if entry.write is None:
        raise RecipeError(f"the form {form!r} is only read: a tree does not say all that its texts hold")
    if entry.write is format_brackets:
        return entry.write(tree)
    if form in ("json", "newick"):
        return entry.write(tree, number)
    nodes = list(tree.postorder())
    if number is not None:
        labels = [node.label if node.value is None or node.label != number else _written(node.value) for node in nodes]
        values = [None if node.label == number else node.value for node in nodes]
        nodes = list((tree := tree_from_postorder(labels, [node.arity for node in nodes], values)).postorder())
    valued = next((node for node in nodes if node.value is not None), None)
    if valued is not None and form not in ("preorder", "expression", "equation"):
        raise GraphError(f"{str(valued)!r:.100} has a value, which the form {form!r} keeps for number={valued.label!r}")
    return entry.write(tree)


def checked_form(name: str) -> Form:
    """Return the form of a name.

    Raises:
        RecipeError: there is no such form; the message lists all.
    """
    if name not in FORMS:
        near = near_names(str(name), TEXT_FORMS)
        raise RecipeError(f"there is no form {shown(name)}{near or '.'} The forms of texts are\n{described_forms()}")
    return FORMS[name]


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _seen_form(text: str, form: str) -> str | None:
    """Return which other form a text seems to be in, and what reads it."""
    seen = other_form(text, form.partition(":")[0])
    if seen is not None or text.lstrip()[:1] != "(":
        return seen
    for name in ("brackets", "unlabelled"):
        try:
            FORMS[name].parse(text)
        except TreememError:
            continue
        return form_hint(name, excluded=form)
    return None


def _with_values(tree: Tree, number: str) -> Tree:
    """Return a tree whose leaves that are numbers have the label ``number`` and a value."""
    nodes = list(tree.postorder())
    labels, values = [], []
    for node in nodes:
        value = node.value
        match = None if node.children or value is not None else _NUMBER_LABEL.fullmatch(node.label)
        if match is not None:
            value = float(match[1]) if match[1] else float(match[2]) / float(match[3] or 1)
        labels.append(number if match is not None or (value is not None and node.label == NUMBER) else node.label)
        values.append(value)
    return tree_from_postorder(labels, [node.arity for node in nodes], values)


class TextReader:
    """Reads the texts of a column, and tells whether they seem to be in another form.

    A single text may be read in both ways: in ``( - ( -4 6 ) )`` the first word is a label, or a child. A column tells.

    Args:
        form: the form of the texts.
        number: the label of leaves that keep numbers as values; see :func:`parse_text`.
        values: whether ``label=2.5`` in brackets is a leaf with a value.

    Raises:
        RecipeError: there is no such form.
    """

    def __init__(self, form: TextForm, number: str | None = None, *, values: bool = True) -> None:
        checked_form(form)
        self.form = form
        self.number = number
        self.values = values
        self._is_sign = form == "brackets"
        self._num_words = self._num_odd_words = self._num_bracketed = self._num_spaced = 0
        self._example = ""

    def parse(self, text: str) -> Tree:
        """Return the tree of a text; see :func:`parse_text` for the errors."""
        tree = parse_text(text, self.form, number=self.number, values=self.values)
        if self._is_sign:
            self._watch(text)
        return tree

    def _watch(self, text: str) -> None:
        if "(" in text:
            self._num_bracketed += 1
            self._num_spaced += "( " in text
        else:
            self._num_words += 1
            if may_be_other_form(text.strip()):
                self._num_odd_words += 1
                self._example = text

    def check_brackets(self, forest: LabelledTrees) -> None:
        """Check the trees of all texts.

        Raises:
            RecipeError: the texts are brackets, and seem to have no labels, or commas between the children.
        """
        if self._num_bracketed and (example := _before_comma(forest)) is not None:
            raise RecipeError(
                f"every child but the last of its node ends in a comma, such as {example!r}: these seem to be lists "
                'with commas. Write (f x y), or give text="labelled" if the commas belong to the labels'
            )
        if self._num_bracketed and (names := _other_words(forest)) is not None:
            example, form = names
            raise RecipeError(
                f"these brackets have items such as {example!r}, as {form} has. Give the form of the trees, or "
                'text="labelled" if these are labels'
            )
        if self._num_bracketed and (sign := self._unlabelled(forest)):
            raise RecipeError(
                f'these brackets look unlabelled: {sign}. Give text="unlabelled" if the first item of a bracket is a '
                'child like the others, and text="labelled" if it is the label of the node'
            )

    def check_column(self, forest: LabelledTrees) -> None:
        """Check the trees of a column that a model is trained on.

        Raises:
            RecipeError: the texts seem to be in another form, or no tree has a number that ``number`` could keep.
        """
        if self.number is not None and (forest.value is None or self.number not in forest.labels):
            raise RecipeError(
                f"number={self.number!r} has no effect: no leaf is a number. Leave number out, or give numbers"
            )
        if len(forest) == self._num_words > 1 and 2 * self._num_odd_words >= self._num_words:
            raise RecipeError(
                f"every tree is a single label, such as {self._example[:40]!r}; these texts seem to be in another form."
                ' Give text= the form of the trees, or text="labelled" if these are labels'
            )
        self.check_brackets(forest)

    def _unlabelled(self, forest: LabelledTrees) -> str:
        """Return the sign that the first item of a bracket is a child, not a label; nothing if there is none."""
        is_inner = forest.arity > 0
        if not is_inner.any():
            return ""
        inner = {forest.labels[label] for label in np.unique(forest.label[is_inner])}
        leaves = {forest.labels[label] for label in np.unique(forest.label[~is_inner])}
        is_spaced = self._num_spaced == self._num_bracketed
        if int(forest.arity.max()) == 1:
            numbers = {label for label in inner if _PLAIN_NUMBER.fullmatch(label)}
            if is_spaced:
                return "every bracket has two items, and a space after its '('"
            if numbers and numbers != inner:
                return f"every bracket has two items, and some begin with a number such as {min(numbers)!r}"
            if shared := inner & leaves:
                return f"every bracket has two items, and {min(shared)!r} stands in both places"
            return ""
        is_number = np.array([_PLAIN_NUMBER.fullmatch(label) is not None for label in forest.labels])[forest.label]
        named = forest.arity[is_inner & ~is_number]
        if is_number[is_inner].any() and len(named) and int(named.max()) == 1:
            example = forest.labels[forest.label[np.argmax(is_inner & is_number)]]
            return f"some brackets begin with a number such as {example!r}, and the others have two items"
        if is_spaced and 2 * len(shared := inner & leaves) > len(inner):
            return f"{min(shared)!r} and others stand in every place of a bracket"
        if self._is_infix(forest, is_inner):
            return "brackets of three items have an operator in the middle"
        return ""

    @staticmethod
    def _is_infix(forest: LabelledTrees, is_inner: NDArray[np.bool_]) -> bool:
        """Whether every bracket is ``(a + b)`` or ``(- a)``, and some are ``(a + b)``."""
        is_binary = forest.arity == 2
        if (forest.arity[is_inner] > 2).any() or not is_binary.any():
            return False
        pointer, child = forest.children()
        first = child[pointer[:-1][is_binary]]
        names = {forest.labels[label].lower() for label in np.unique(forest.label[first])}
        return not forest.arity[first].any() and names <= _OPERATORS


def _before_comma(forest: LabelledTrees) -> str | None:
    """Return a leaf such as ``x,`` if all leaves but the last of their nodes are such, as in ``(f x, y)``."""
    ends = np.array([len(label) > 1 and label.endswith(",") for label in forest.labels], bool)
    if not ends.any():
        return None
    pointer, child = forest.children()
    is_last = np.zeros(len(forest.label), bool)
    is_last[child[pointer[1:][forest.arity > 0] - 1]] = True
    is_child = np.zeros(len(forest.label), bool)
    is_child[child] = True
    is_leaf = (forest.arity == 0) & is_child
    has_comma = ends[forest.label] & is_leaf
    if not has_comma.any() or not np.array_equal(has_comma, is_leaf & ~is_last):
        return None
    return forest.labels[forest.label[np.argmax(has_comma)]]


def _other_words(forest: LabelledTrees) -> tuple[str, str] | None:
    """Return a leaf that is the name of a field or half of a symbol in another form of brackets, and the form."""
    halves = [label for label in forest.labels if len(label) > 1 and (label[0] == "|") != (label[-1] == "|")]
    if len({label[0] == "|" for label in halves}) == 2:
        return halves[0], 'text="smtlib" or "lisp"'
    is_field = np.array([_FIELD.fullmatch(label) is not None for label in forest.labels], bool)
    if not is_field.any() or not all(map(_TREE_SITTER_WORD.fullmatch, forest.labels)):
        return None
    pointer, child = forest.children()
    is_last = np.ones(len(forest.label), bool)
    is_last[child] = False
    is_last[child[pointer[1:][forest.arity > 0] - 1]] = True
    chosen = is_field[forest.label]
    if (chosen & (is_last | (forest.arity > 0))).any():
        return None
    return forest.labels[forest.label[np.argmax(chosen)]], 'text="tree_sitter"'
