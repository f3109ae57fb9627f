"""Trees in XML, and formulas in content MathML. Documents with a DTD are refused, so no entity is expanded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from treemem.errors import GraphError, ParseError
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree, words_of

EMPTY = "()"
"""What ends the label of an element without content, so that ``<x/>`` is not the text ``x``."""

_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"[^\W\d][\w.-]*(?::[^\W\d][\w.-]*)?")
_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PRESENTATION = {"mi", "mn", "mo", "mrow", "msup", "msub", "mfrac", "msqrt", "mroot", "mfenced", "mtable", "mstyle"}
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_ELEMENTS = """
plus minus times divide power root abs exp ln log sin cos tan sec csc cot sinh cosh tanh sech csch coth arcsin arccos
arctan arcsec arccsc arccot arcsinh arccosh arctanh eq neq lt gt leq geq equivalent approx and or xor not implies
forall exists in notin subset union intersect setdiff sum product int diff partialdiff limit min max gcd lcm rem
quotient factorial floor ceiling conjugate real imaginary determinant transpose scalarproduct pi exponentiale
imaginaryi infinity true false emptyset notanumber eulergamma reals integers rationals naturalnumbers complexes primes
ident compose inverse domain codomain image selector outerproduct vectorproduct cartesianproduct card arg tendsto
factorof prsubset notsubset notprsubset curl grad divergence laplacian mean sdev variance median mode moment
"""
_SYMBOLS = frozenset(_ELEMENTS.split())
_CONTAINER_ELEMENTS = """
bvar lambda degree lowlimit uplimit logbase condition domainofapplication interval set list vector matrix matrixrow
piecewise piece otherwise bind momentabout reln fn declare share cerror
"""
_CONTAINERS = frozenset(_CONTAINER_ELEMENTS.split())
_TEXTS = {"ci", "cn", "csymbol", "cs"}
_SEPARATOR = "sep" + EMPTY  # no text "sep"


class _Element(NamedTuple):
    name: str
    attributes: dict[str, str]
    children: list[Tree]
    text: list[str]


def parse_xml(text: str) -> Tree:
    """Read one document. An element is a node with its name; its attributes ``@name``, texts and elements are children.

    Spaces around texts are left out, and so are comments and instructions. A text is a leaf. An element without content
    is a leaf whose label ends in ``()``.

    Raises:
        ParseError: the text is not XML, or has a DTD.

    Example:
        >>> str(parse_xml('<call line="3"><name>f</name><nothing/></call>'))
        '(call (@line 3) (name f) "nothing()")'
    """
    return _parsed(text, _element_node)


def parse_mathml(text: str) -> Tree:
    """Read a formula in content MathML. The first child of ``apply`` is the label of its node.

    ``ci``, ``cn`` and ``csymbol`` are leaves, and so are elements without content, such as ``pi``. ``math`` and
    ``semantics`` stand for their first child. A number with ``sep`` has the separator of its type: ``1/2``, ``1e3``.

    Raises:
        ParseError: the text is not XML, has a DTD, or is presentation MathML, which says how a formula looks.

    Example:
        >>> str(parse_mathml("<math><apply><plus/><ci>x</ci><apply><sin/><cn>2</cn></apply></apply></math>"))
        '(plus x (sin 2))'
    """
    return _parsed(text, _content_node)


def format_xml(tree: Tree) -> str:
    """Return the document of a tree, as :func:`parse_xml` reads it.

    Raises:
        GraphError: a label that XML cannot hold in its place; the root is a leaf that is a text; or two texts are
            neighbours, which XML cannot tell from one.

    Example:
        >>> format_xml(Tree("call", [Tree("@line", ["3"]), Tree("name", ["f"]), "nothing()"]))
        '<call line="3"><name>f</name><nothing/></call>'
    """
    if _is_text(tree):
        raise GraphError(f"the root {shorten(tree.label)} is a text; XML has an element as its root")
    return "".join(words_of([tree], _written))


def _written(node: Tree) -> Sequence[Tree | str]:
    if _is_text(node):
        return [escape(_checked_text(node.label))]
    if not node.children:
        return [f"<{node.label.removesuffix(EMPTY)}/>"]
    name = _checked_name(node.label)
    attributes, children = [], list(node.children)
    while children and children[0].label[:1] == "@" and children[0].arity == 1 and not children[0].children[0].children:
        attribute = children.pop(0)
        value = _checked_text(attribute.children[0].label, is_value=True)
        attributes.append(f" {_checked_name(attribute.label[1:])}={quoteattr(value)}")
    if len({attribute.partition("=")[0] for attribute in attributes}) < len(attributes):
        raise GraphError(f"the node {shorten(node.label)} has two attributes with one name")
    if any(one and other for one, other in itertools.pairwise(map(_is_text, children))):
        raise GraphError(f"the node {shorten(node.label)} has two texts side by side, which are one text in XML")
    if not children:
        return [f"<{name}{''.join(attributes)}/>"]
    return [f"<{name}{''.join(attributes)}>", *children, f"</{name}>"]


def _is_text(node: Tree) -> bool:
    """Return whether a node is a text, not an element."""
    is_empty = node.label.endswith(EMPTY) and _NAME.fullmatch(node.label.removesuffix(EMPTY)) is not None
    return not node.children and not is_empty


def _checked_name(label: str) -> str:
    if not _NAME.fullmatch(label):
        raise GraphError(
            f"{shorten(label)} cannot be the name of an element: it has other signs than letters and digits"
        )
    return label


def _checked_text(label: str, *, is_value: bool = False) -> str:
    if _ILLEGAL.search(label) or (not is_value and (not label or _SPACE.sub(" ", label).strip() != label)):
        raise GraphError(
            f"{shorten(label)} cannot be a text of XML: it is empty, has other spaces or a control character"
        )
    return label


def format_mathml(tree: Tree) -> str:
    """Return a formula in content MathML, as :func:`parse_mathml` reads it.

    Labels that are no elements of MathML are names of functions and variables, ``ci``, or numbers, ``cn``.

    Raises:
        GraphError: a label that XML cannot hold.

    Example:
        >>> format_mathml(Tree("plus", ["x", Tree("f", ["2"])]))
        '<math><apply><plus/><ci>x</ci><apply><ci>f</ci><cn>2</cn></apply></apply></math>'
    """
    return f"<math>{''.join(words_of([tree], _written_content))}</math>"


def _written_content(node: Tree) -> Sequence[Tree | str]:
    label = node.label
    has_operator = label == "apply" and bool(node.children and node.children[0].children)  # that is a formula itself
    if has_operator or (node.children and label in _CONTAINERS):
        return [f"<{label}>", *node.children, f"</{label}>"]
    if node.children:
        return ["<apply>", _symbol(label), *node.children, "</apply>"]
    if label.endswith(EMPTY) and len(label) > len(EMPTY):
        return ["<apply>", _symbol(label.removesuffix(EMPTY)), "</apply>"]
    return [_symbol(label)]


def _symbol(label: str) -> str:
    if label in _SYMBOLS:
        return f"<{label}/>"
    name = "cn" if _DECIMAL.fullmatch(label) else "ci"
    return f"<{name}>{escape(_checked_text(label))}</{name}>"


def _parsed(text: str, node_of: Callable[[_Element], Tree]) -> Tree:
    """Return what ``node_of`` makes of the root, given each element when it ends."""
    text = text.removeprefix("\ufeff")
    open_elements: list[_Element] = []
    trees: list[Tree] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    lines: list[int] = []

    def place() -> int:
        if not lines:
            lines.extend(match.end() for match in re.finditer("\n", text))
        line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber
        return (lines[line - 2] if line > 1 else 0) + column

    def refuse_dtd(*_: object) -> None:
        raise ParseError("the document has a DTD, whose entities can fill the memory", text, place(), "XML without DTD")

    def end_text() -> None:
        if open_elements and open_elements[-1].text:
            content = _SPACE.sub(" ", "".join(open_elements[-1].text)).strip()
            open_elements[-1].text.clear()
            if content:
                open_elements[-1].children.append(Tree(content))

    def start(name: str, attributes: dict[str, str]) -> None:
        end_text()
        open_elements.append(_Element(name, attributes, [], []))

    def end(name: str) -> None:
        end_text()
        try:
            tree = node_of(open_elements.pop())
        except GraphError as error:
            raise ParseError(str(error), text, place(), "content MathML") from error
        (open_elements[-1].children if open_elements else trees).append(tree)

    parser.StartDoctypeDeclHandler = refuse_dtd
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda data: open_elements[-1].text.append(data)
    try:
        parser.Parse(text, True)  # a text; the encoding that its declaration names does not count
    except expat.ExpatError as error:
        raise ParseError(f"this is not XML: {expat.ErrorString(error.code)}", text, place(), "one document") from error
    except ValueError as error:  # a lone surrogate
        if isinstance(error, ParseError):
            raise
        raise ParseError(f"this is not XML: {error}", text, 0, "one document") from error
    return trees[0]


def _element_node(element: _Element) -> Tree:
    attributes = [Tree(f"@{name}", [value]) for name, value in element.attributes.items()]
    children = attributes + element.children
    return Tree(element.name if children else element.name + EMPTY, children)


def _content_node(element: _Element) -> Tree:
    name, children = element.name.rpartition(":")[2], element.children
    if name in _PRESENTATION:
        raise GraphError(f"<{name}> is presentation MathML, which says how a formula looks, not what it is")
    if name in ("math", "semantics", "annotation", "annotation-xml"):
        if name == "math" and len(children) != 1:
            raise GraphError(f"<math> has {len(children)} children; one formula is needed")
        if name == "semantics" and not children:
            raise GraphError("<semantics> has no child")
        return children[0] if children else Tree(name)
    if name in _TEXTS:
        return Tree(_content_text(element))
    if name == "apply":
        if not children:
            raise GraphError("<apply> has no operator")
        operator, *operands = children
        if operator.children:
            return Tree("apply", children)
        return Tree(operator.label, operands) if operands else Tree(operator.label + EMPTY)
    if name == "sep":
        return Tree(_SEPARATOR)
    if name not in _SYMBOLS and name not in _CONTAINERS:
        raise GraphError(f"<{name}> is no element of content MathML")
    return Tree(name, children)


def _content_text(element: _Element) -> str:
    parts = [child.label for child in element.children]
    if not parts or any(child.children for child in element.children):
        raise GraphError(f"<{element.name}> has no text")
    if _SEPARATOR not in parts:
        if len(parts) > 1:
            raise GraphError(f"<{element.name}> has {len(parts)} parts")
        return parts[0]
    separators = {"rational": "/", "e-notation": "e"}
    separator = separators.get(element.attributes.get("type", ""))
    if separator is None or len(parts) != 3 or parts[1] != _SEPARATOR:
        raise GraphError(f"<cn> with <sep/> has the type {' or '.join(separators)} and two parts")
    return parts[0] + separator + parts[2]
