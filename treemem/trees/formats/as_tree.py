"""Trees from the nested data that people have: lists, JSON, Python's syntax trees, sympy."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treemem.errors import GraphError, ParseError, shown
from treemem.trees.formats.number_text import number_text
from treemem.trees.formats.other_forms import other_form
from treemem.trees.tree import Tree, bridge_to, grow_tree

_LABEL_FIELDS = ("label", "type", "name", "op")
_CHILDREN_FIELDS = ("children", "args")
_INDEXED = (
    ". If these are the nodes of a file such as py150, where children are indices, its lines are in the form "
    '"ast_json" of texts: parse_text(line, "ast_json") reads one, and read_trees(file, "ast_json") all'
)


class _Node(NamedTuple):
    label: str
    children: Sequence[Any] = ()
    value: Any = None


def as_tree(data: object, *, number: str | None = None) -> Tree:
    """Return the tree that nested data describe.

    Nothing is evaluated. The data are one of these, and so is each child:

    * a :class:`Tree`;
    * a label, which is a leaf;
    * a number, which is a leaf whose label is the number's text, or with ``number="Number"`` a leaf with that label and
      the number as its value;
    * a list or tuple of a label and children: ``["f", "x", ["g", 3]]``; so too an array of numpy;
    * a dictionary with a label (``label``, ``type``, ``name`` or ``op``) and either children (``children`` or ``args``)
      or a ``value``, as JSON has it: ``{"label": "f", "children": ["x"]}``. Only the label is required. An empty
      ``value`` beside a list of children says nothing;
    * a node of Python's :mod:`ast`; see below;
    * a sympy expression with any functions: labels are the names of functions and symbols.
      Children are in the order of ``args``, so the arguments of a sum or product are in sympy's order. Symbols with
      the same name and different assumptions have the same label, and are refused in one tree. A symbol that is named
      like a constant or a number, such as ``E``, has the label ``Symbol:E``, and a function of your own that is named
      like one of sympy's, such as ``gamma``, the label ``Function:gamma``.
      :func:`~treemem.trees.tree_from_sympy` gives the labels of equation verification.

    In a tree of Python code, operators are labels, names and constants are leaves: ``ast.parse("x + f(3)",
    mode="eval")`` is ``(Add x (Call f 3))``. The fields of a node are its children, up to the first list or the first
    field without content. The content of every later field is under a node with the field's name: ``f(x, y=1)`` is
    ``(Call f x (keywords (keyword y 1)))``, and ``a[:1]`` is ``(Subscript a (Slice (upper 1)))``. A node without
    content has a label that ends in ``()``: ``[]`` is ``List()``. The label ``-`` stands for an empty place in a list.
    So two programs have the same tree only if their syntax trees are equal.

    Args:
        data: the tree.
        number: label of leaves that keep numbers as values; by default numbers are labels.

    Raises:
        GraphError: data of another kind, a list without a label, a dictionary with other fields, a number that is NaN,
            that has more than 1,000 digits, or that is to be a value and is not finite; a text in brackets or another
            form, which a parser reads.

    Example:
        >>> str(as_tree(["f", "x", {"label": "g", "children": [3, 2.5]}]))
        '(f x (g 3 2.5))'
        >>> as_tree(["f", 3], number="Number").children[0].value
        3.0
    """
    if isinstance(data, str) and not data.isalnum() and (form := _form_of_text(data)) is not None:
        raise GraphError(f"{data[:40]!r} is no label: this looks like {form}; a leaf with this label is Tree(label)")
    names: dict[tuple[str, bool], object] = {}
    return grow_tree(data, lambda item: item if isinstance(item, Tree) else _node_of(item, number, names))


def trees_of(items: Iterable[Any], labels: Sequence[str] | None, parse: Callable[[str], Tree]) -> Iterator[Tree]:
    """Yield the trees of items in the forms that :meth:`treemem.Forest.from_trees` takes."""
    for place, item in enumerate(items, start=1):
        if isinstance(item, Tree):
            yield item
            continue
        try:
            if hasattr(item, "in_degrees"):
                if labels is None:
                    raise GraphError("a DGLGraph needs labels: the texts that its node field 'label' indexes")
                forest = bridge_to("dgl").forest_from_dgl(item, labels)
                if not len(forest):
                    raise GraphError("the graph holds no tree")
                yield from forest
            else:
                yield parse(item) if isinstance(item, str) else as_tree(item)
        except ParseError as error:
            raise error.at(place) from error
        except GraphError as error:
            raise GraphError(f"item {place}: {error}") from error


def has_label(item: Mapping[str, Any]) -> bool:
    """Whether a dictionary has a label, as that of a node has."""
    return any(name in item for name in _LABEL_FIELDS)


def is_sympy(data: object) -> bool:
    """Whether this is an expression of sympy; sympy is not imported for it."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(data, sympy.Basic)


def _form_of_text(text: str) -> str | None:
    if len(text) > 2 and text[0] == "(" and text[-1] == ")":
        return other_form(text) or "brackets; parse_brackets(text) reads them"
    return other_form(text)


def _node_of(item: Any, number: str | None, names: dict[tuple[str, bool], object]) -> _Node:
    if isinstance(item, str):
        return _Node(item)
    if isinstance(item, (list, tuple)):
        if not item or not isinstance(item[0], str):
            raise GraphError(
                f"a list describes a node by its label and children, such as ['f', 'x', 3], not {shown(item)}"
                + (_INDEXED if item and isinstance(item[0], Mapping) and has_label(item[0]) else "")
            )
        return _Node(item[0], item[1:])
    if isinstance(item, (int, float, np.integer, np.floating)) and not isinstance(item, bool):
        return _Node(_number_label(item)) if number is None else _Node(number, value=item)
    if isinstance(item, Mapping):
        return _node_of_mapping(_plain(item), number)
    if isinstance(item, ast.AST):
        return _node_of_syntax(item, number)
    if is_sympy(item):
        from treemem.trees.bridges.sympy_labels import sympy_label

        if not item.args and number is not None and item.is_Number:
            return _Node(number, value=float(item))
        return _Node(sympy_label(item, names), item.args)
    plain = _plain(item)
    if plain is not item:
        return _node_of(plain, number, names)
    raise GraphError(
        f"{type(item).__name__} is no tree; give a Tree, a text, a number, a list of a label and children, a "
        "dictionary, a node of ast or a sympy expression"
    )


def _number_label(item: Any) -> str:
    """Return the text of a number.

    Raises:
        GraphError: it is NaN, which marks missing values, or has too many digits.
    """
    if item != item:
        raise GraphError("NaN is no tree: a value is missing here; leave it out, or give a text")
    return number_text(item)


def _plain(item: Any) -> Any:
    """Return an array of numpy as a list, and a scalar or list of pyarrow or pandas as Python's; others as they are."""
    if item is None or type(item) in (dict, str, list, int, float):
        return item
    if isinstance(item, np.ndarray):
        return list(item) if item.ndim else item.item()
    for convert in ("as_py", "to_pylist"):
        if hasattr(item, convert):
            return getattr(item, convert)()
    if type(item).__module__.startswith("pandas.") and hasattr(item, "tolist"):
        return item.tolist()
    return item


def _first_in(item: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        if name in item:
            return name
    return names[0]


def _node_of_mapping(item: Mapping[str, Any], number: str | None) -> _Node:
    label_field, children_field = _first_in(item, _LABEL_FIELDS), _first_in(item, _CHILDREN_FIELDS)
    label, given, value = item.get(label_field), _plain(item.get(children_field)), _plain(item.get("value"))
    children = () if given is None else given
    if not isinstance(label, str) or isinstance(children, (str, Mapping)) or not isinstance(children, Iterable):
        raise GraphError(
            f"a dictionary describes a node by a text 'label' and a list of 'children', not {shown(dict(item))}"
        )
    children = list(children)
    if isinstance(value, str) and not value and given is not None:
        value = None
    if children and value is not None:
        raise GraphError(
            f"{label!r:.100} has {children_field!r} and 'value'; only a leaf has a value. Move the value into the "
            "label or into a child"
        )
    unread = [name for name in item if name not in (label_field, children_field, "value")]
    if unread:
        raise GraphError(
            f"{label!r:.100} has the unknown fields {', '.join(map(repr, unread)):.200}; a node has the fields "
            f"{label_field!r}, {children_field!r} and 'value'. Move what the tree needs into these, and remove the rest"
        )
    is_indexed = label_field in ("type", "name") and children_field == "children"
    if is_indexed and children and all(isinstance(child, (int, np.integer)) for child in children):
        raise GraphError(f"the children of {label!r:.100} are whole numbers, {shown(children, 40)}{_INDEXED}")
    if value is None:
        return _Node(label, children)
    if not isinstance(value, (str, bool, int, float, np.integer, np.floating)):
        raise GraphError(
            f"the value of {label!r:.100} is {shown(value, 40)}; a value is a text or a number. Give nodes as children"
        )
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number is None:
        return _Node(label, [_number_label(value) if is_number else str(value)])
    return _Node(label, value=value) if is_number else _Node(label, [value])


def _node_of_syntax(item: ast.AST, number: str | None) -> _Node:
    if isinstance(item, (ast.Expression, ast.Expr)):
        return _node_of_syntax(item.body if isinstance(item, ast.Expression) else item.value, number)
    if isinstance(item, ast.Name):
        return _Node(item.id)
    if isinstance(item, ast.Constant):
        if isinstance(item.value, int) and not isinstance(item.value, bool):
            return _Node(_number_label(item.value)) if number is None else _Node(number, value=item.value)
        if isinstance(item.value, float) and number is not None:
            return _Node(number, value=item.value)
        return _Node(ast.unparse(item))
    operators: list[str] = []
    children: list[Any] = []
    are_marked = False
    for name, field in ast.iter_fields(item):
        if name in ("op", "ops"):
            operators += [type(part).__name__ for part in (field if isinstance(field, list) else [field])]
            continue
        if isinstance(field, ast.expr_context):
            continue
        parts = field if isinstance(field, list) else [] if field is None else [field]
        parts = ["-" if part is None else part if isinstance(part, (ast.AST, str)) else repr(part) for part in parts]
        if not are_marked:
            children += parts
        elif parts:
            children.append([name, *parts])
        are_marked = are_marked or field is None or isinstance(field, list)
    if isinstance(item, ast.AugAssign):
        operators.insert(0, "AugAssign")
    return _Node(" ".join(operators) or type(item).__name__ + "()" * (not children), children)
