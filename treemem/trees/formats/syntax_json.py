"""Syntax trees in JSON: nodes with a type, of py150 and js150, of ESTree and of tree-sitter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treemem.errors import GraphError, ParseError, quoted, shown
from treemem.trees.formats.json_text import parse_json
from treemem.trees.formats.number_text import number_text
from treemem.trees.tree import Tree, grow_tree

_Expanded = Tree | tuple[str, Sequence[Any], None]

_PLACES = (
    *("start", "end", "loc", "range", "raw", "extra", "sourceType", "interpreter", "directive", "comments", "tokens"),
    *("errors", "leadingComments", "trailingComments", "innerComments", "parent"),
)
_FIELDS = (
    *("kind", "computed", "static", "async", "generator", "await", "delegate", "optional", "method", "shorthand"),
    *("decorators", "id", "callee", "object", "meta", "tag", "discriminant", "init", "test", "key", "left", "operator"),
    *(
        "prefix",
        "right",
        "property",
        "quasi",
        "update",
        "superClass",
        "params",
        "argument",
        "arguments",
        "typeParameters",
    ),
    *(
        "typeAnnotation",
        "returnType",
        "imported",
        "exported",
        "local",
        "label",
        "block",
        "param",
        "handler",
        "finalizer",
    ),
    *("consequent", "alternate", "elements", "properties", "declarations", "declaration", "specifiers", "source"),
    *("quasis", "expression", "expressions", "openingElement", "name", "attributes", "value", "body", "children"),
    *("cases", "closingElement"),
)
"""The order of the fields of a node, since the order in a file is that of the program that wrote it."""
_PLACE_OF_FIELD = {name: place for place, name in enumerate(_FIELDS)}
_OF_TREE_SITTER = re.compile(
    r"(?:type|children|text|id|named|missing|extra|error|kind_?[iI]d|grammar\w+|range|field(?:_?[nN]ame)?|parent_?[iI]d)\Z"
    r"|(?:start|end|is|has)(?![a-z])|\w+_?[cC]ount\Z"
)
_NAME = {"Identifier", "JSXIdentifier"}
_LITERAL = {
    *("Literal", "StringLiteral", "NumericLiteral", "BooleanLiteral", "NullLiteral", "BigIntLiteral", "RegExpLiteral"),
    *("DecimalLiteral", "DirectiveLiteral", "JSXText"),
}


def parse_ast_json(text: str) -> Tree:
    """Read a syntax tree of nodes with ``type``, ``value`` and ``children``, nested or with the indices of nodes.

    The nodes of py150 and js150 are a list, whose first node is the root, and ``children`` are indices. A value is the
    first child of its node: ``{"type": "FunctionDef", "value": "f", "children": [...]}`` is ``(FunctionDef f ...)``.

    Raises:
        ParseError: the text is not JSON, or not such nodes; a node with two parents, or with none.

    Example:
        >>> text = '[{"type": "Assign", "children": [1, 2]}, {"type": "Name", "value": "x"}, {"type": "Num"}]'
        >>> str(parse_ast_json(text))
        '(Assign (Name x) Num)'
    """
    return _grown(text, _ast_node, lambda data: data if isinstance(data, Mapping) else _nested(data))


def format_ast_json(tree: Tree) -> str:
    """Return a tree as a list of nodes whose children are indices, from the root down, as :func:`parse_ast_json` reads.

    Raises:
        GraphError: a leaf with a value.
    """
    places: dict[int, list[int]] = {}
    nodes: list[dict[str, Any]] = []
    pending: list[tuple[Tree, int]] = [(tree, -1)]
    while pending:
        node, parent = pending.pop()
        if parent >= 0:
            places.setdefault(parent, []).append(len(nodes))
        pending.extend((child, len(nodes)) for child in reversed(node.children))
        nodes.append({"type": node.label})
    for parent, children in places.items():
        nodes[parent]["children"] = children
    return json.dumps(nodes, ensure_ascii=False)


def parse_estree(text: str) -> Tree:
    """Read a syntax tree of ESTree, which parsers of JavaScript such as esprima, acorn and Babel write.

    A field that is not empty is a child with its name; identifiers and literals are leaves: ``f(x)`` is
    ``(CallExpression (callee f) (arguments x))``. The order of the fields does not depend on the file. Places,
    comments and the spelling of literals are left out.

    Raises:
        ParseError: the text is not JSON, or not such a tree.

    Example:
        >>> text = '{"type": "UnaryExpression", "operator": "-", "argument": {"type": "Literal", "value": 3}}'
        >>> str(parse_estree(text))
        '(UnaryExpression (operator -) (argument 3))'
    """
    return _grown(text, _estree_node, _program)


def parse_tree_sitter_json(text: str) -> Tree:
    """Read nodes of tree-sitter with ``type``, ``children`` and ``text``.

    A leaf whose text is not its type has the text as its child: ``{"type": "identifier", "text": "x"}`` is
    ``(identifier x)``. The text of other nodes, places and names of fields are left out.

    Raises:
        ParseError: the text is not JSON, or not such nodes.

    Example:
        >>> str(parse_tree_sitter_json('{"type": "sum", "children": [{"type": "id", "text": "x"}, {"type": "+"}]}'))
        '(sum (id x) +)'
    """
    return _grown(text, _tree_sitter_node, lambda data: data)


def _grown(text: str, expand: Callable[[Any], _Expanded], root_of: Callable[[Any], Any]) -> Tree:
    data = parse_json(text)
    try:
        return grow_tree(root_of(data), expand)
    except GraphError as error:
        raise ParseError(str(error), text, 0, "nodes with a type") from error


def _type_of(node: Any) -> str:
    if not isinstance(node, Mapping) or not isinstance(node.get("type"), str):
        raise GraphError(f"a node is an object with a text 'type', not {shown(node)}")
    return str(node["type"])


def _children_of(node: Mapping[str, Any]) -> list[Any]:
    children = node.get("children") or []
    if not isinstance(children, list):
        raise GraphError(f"the children of {node['type']!r:.100} are {shown(children, 40)}, not a list")
    return children


def _scalar(value: Any) -> str:
    if isinstance(value, (bool, type(None))):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return number_text(value)
    if not isinstance(value, str):
        raise GraphError(f"{shown(value, 40)} is no text or number")
    return value


def _program(data: Any) -> Any:
    """Return the root, which in a file of Babel is its program."""
    _type_of(data)
    return data["program"] if isinstance(data.get("program"), Mapping) else data


def _nested(nodes: Any) -> Any:
    """Put nodes that are a list in the places of their indices, and return the root."""
    if isinstance(nodes, list) and len(nodes) > 1 and nodes[-1] == 0:
        nodes = nodes[:-1]  # the files of js150 end each tree in a 0
    if not isinstance(nodes, list) or not nodes:
        raise GraphError(f"a list of nodes is needed, of which the first is the root, not {shown(nodes)}")
    num_parents = [1] + [0] * (len(nodes) - 1)
    below = []
    for number, node in enumerate(nodes):
        _type_of(node)
        below.append(_children_of(node))
        for child in below[-1]:
            if type(child) is not int or not 0 <= child < len(nodes):
                raise GraphError(f"node {number} has the child {shown(child, 40)}; the nodes are 0 to {len(nodes) - 1}")
            num_parents[child] += 1
    wrong = next((number for number, count in enumerate(num_parents) if count != 1), None)
    if wrong is not None:
        count = num_parents[wrong] - (not wrong)
        raise GraphError(
            f"node {wrong} is the child of {count} nodes; the root, node 0, is that of none, others of one"
        )
    reached, pending = 0, [0]
    while pending:
        reached += 1
        pending.extend(below[pending.pop()])
    if reached < len(nodes):
        raise GraphError(f"{len(nodes) - reached} nodes are not below the root, node 0, but below each other")
    grown = [dict(node) for node in nodes]
    for node, children in zip(grown, below, strict=True):
        if "children" in node:
            node["children"] = [grown[child] for child in children]
    return grown[0]


def _ast_node(node: Any) -> _Expanded:
    if isinstance(node, Tree):
        return node
    label, children = _type_of(node), _children_of(node)
    if unread := [name for name in node if name not in ("type", "value", "children")]:
        raise GraphError(
            f"{label!r:.100} has the fields {quoted(unread):.200}; a node has 'type', 'value' and 'children'"
        )
    value = node.get("value")
    if value is None or (value == "" and node.get("children") is not None):
        return label, children, None
    return label, [Tree(_scalar(value)), *children], None


def _estree_node(part: Any) -> _Expanded:
    if isinstance(part, tuple):  # the name of a field, and what it has
        name, items = part
        return name, items, None
    if part is None:
        return "-", (), None
    if not isinstance(part, Mapping):
        return _scalar(part), (), None
    label = _type_of(part)
    if not label[:1].isupper() or ("children" in part and not label.startswith("JSX")):
        raise GraphError(
            f"{label!r:.100} is no node of ESTree, in which types begin with a capital and fields have names"
        )
    if label in _LITERAL:
        return _literal(part), (), None
    fields = {name: value for name, value in part.items() if name != "type" and name not in _PLACES}
    fields = {name: value for name, value in fields.items() if value is not None and value is not False and value != []}
    if label in _NAME and set(fields) == {"name"}:
        return _scalar(fields["name"]), (), None
    if label == "TemplateElement":
        value = part.get("value")
        return json.dumps(value.get("raw", "") if isinstance(value, Mapping) else "", ensure_ascii=False), (), None
    names = sorted(fields, key=lambda name: (_PLACE_OF_FIELD.get(name, len(_FIELDS)), name))
    parts = []
    for name in names:
        value = fields[name]
        parts.append((name, [] if value is True else value if isinstance(value, list) else [value]))
    return label, parts, None


def _literal(node: Mapping[str, Any]) -> str:
    """Return a literal as JSON, and one that JSON cannot hold as in the source."""
    value, raw = node.get("value", node.get("pattern")), node.get("raw")
    extra = node.get("extra")
    raw = extra.get("raw") if raw is None and isinstance(extra, Mapping) else raw
    if "Literal" not in (label := node["type"]) or label in ("StringLiteral", "NumericLiteral", "BooleanLiteral"):
        return json.dumps(value, ensure_ascii=False)
    is_plain = isinstance(value, (str, int, float)) and not {"bigint", "regex", "pattern"} & set(node)
    if label == "Literal" and (is_plain or raw in (None, "null")):
        return json.dumps(value, ensure_ascii=False)
    if label == "NullLiteral":
        return "null"
    if label == "RegExpLiteral":
        return f"/{node.get('pattern', '')}/{node.get('flags', '')}"
    return _scalar(raw if raw is not None else value)


def _tree_sitter_node(node: Any) -> _Expanded:
    if isinstance(node, Tree):
        return node
    label, children = _type_of(node), _children_of(node)
    if unread := [name for name in node if not _OF_TREE_SITTER.match(name)]:
        raise GraphError(
            f"{label!r:.100} has the fields {quoted(unread):.200}; tree-sitter has 'type', 'children', 'text' "
            "and places, whose names begin with start or end"
        )
    text = node.get("text")
    if children or text is None or text == label:
        return label, children, None
    return label, [Tree(_scalar(text))], None
