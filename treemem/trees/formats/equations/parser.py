"""Equations as people write them, read into trees without recursion and without evaluating anything.

From loose to tight: ``=``; ``+ -``; a minus before a product; ``* /``; a minus before a factor; ``^`` (or ``**``), to
the right. Parentheses decide; without them chains nest right, ``a + b + c`` as ``Add(a, Add(b, c))``, ``a*b*c`` alike.
Written out in the functions that trees have:

==============  =========================================  ==================================================
text            tree                                       note
==============  =========================================  ==================================================
``a - b``       ``Add(a, Mul(-1, b))``                     also before a number: ``x - 3``
``a / b``       ``Mul(a, Pow(b, -1))``
``-a``          ``Mul(-1, a)``                             ``-a*b`` is ``Mul(-1, Mul(a, b))``
``a - b - c``   ``Add(a, Add(Mul(-1, b), Mul(-1, c)))``
``a / b * c``   ``Mul(a, Mul(Pow(b, -1), c))``
``sqrt(a)``     ``Pow(a, 1/2)``
``log(a)``      ``log(a, e)``                              ``log(value, base)``
``-3``          one leaf                                   but ``-3^2`` is ``Mul(-1, Pow(3, 2))``
``2/5``         one leaf                                   but ``x/2/5`` and ``x^2/5`` divide
``-4``          ``Mul(-1, 4)``                             a ``Number`` leaf when ``numeric``
==============  =========================================  ==================================================

A minus directly before a number belongs to it where the two are one leaf and no ``^`` follows; ``1/2``, ``-1/2`` and
``2/5`` are one leaf where that does not change the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from treemem.errors import ParseError, TreememError
from treemem.trees.formats.equations.labels import EQUALITY, LEAF_LABELS
from treemem.trees.formats.equations.literals import LEAVES, RATIONAL_LEAVES, literal_leaf, literal_tree
from treemem.trees.formats.equations.names import CONSTANTS, Functions, VariableNames, Variables
from treemem.trees.formats.equations.tokens import (
    Token,
    describe_strange_character,
    describe_token,
    read_tokens,
    split_tokens,
)
from treemem.trees.formats.source_text import decode_source, place
from treemem.trees.tree import Node, Tree

_OPEN, _PLUS, _MINUS_PRODUCT, _TIMES, _MINUS_FACTOR, _INVERSE, _POWER = range(7)
_PRECEDENCE = (0, 1, 2, 3, 4, 4, 5)
_LEAVES: dict[str, Node] = {label: (label, 0, None) for label in LEAF_LABELS}
_EQUALITY: Node = (EQUALITY, 2, None)
_MUL: Node = ("Mul", 2, None)
_POW: Node = ("Pow", 2, None)
_BINARY: dict[int, Node] = {_PLUS: ("Add", 2, None), _TIMES: _MUL, _POWER: _POW}
_MINUS_ONE, _HALF, _EULER = _LEAVES["NegativeOne:-1"], _LEAVES["Half:1/2"], _LEAVES["Exp1:E"]
_CONSTANTS = {name: _LEAVES[label] for name, label in CONSTANTS.items()}
_RATIONALS = {spelling: _LEAVES[leaf.label] for spelling, leaf in RATIONAL_LEAVES.items()}
_FUNCTIONS = Functions()
_LONGEST_KEPT = 32  # characters of a literal whose nodes are remembered
_OPERAND = "a number, a name, '(' or '-'"


def parse_equation(
    text: str | bytes,
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> Tree:
    """Read ``left = right`` into a tree whose root is ``Equality``.

    Args:
        text: one equation, at most 2,000,000 characters; bytes must be UTF-8.
        variables: ``"appearance"`` numbers the variables in order of first appearance, whatever their names;
            ``"indexed"`` reads the published names x y z w v4 v5 ..., which keep their index.
        numeric: whether a number outside the leaf table becomes a ``Number`` leaf with its value; otherwise it is
            composed out of leaves of the table.
        functions: arities of own functions, by name, besides the 25 unary ones, ``log`` and ``sqrt``.

    Raises:
        ParseError: the text is no equation; says where and what was expected.
        VocabularyError: more than ten variables, or an own function that cannot be declared.

    Example:
        >>> str(parse_equation("sin(x)^2 = 1 - cos(x)^2").children[0])
        '(Pow (sin Symbol:var_0) Integer:2)'
    """
    return _tree(equation_nodes(text, variables=variables, numeric=numeric, functions=functions))


def parse_equation_sides(
    left: str | bytes,
    right: str | bytes,
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> Tree:
    """Read an equation whose two sides are two texts; a variable is the same one on both sides.

    Arguments and errors are those of :func:`parse_equation`; an error's column counts within its side.
    """
    return _tree(equation_nodes(left, right, variables=variables, numeric=numeric, functions=functions))


def parse_expression(
    text: str | bytes,
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> Tree:
    """Read one expression, without ``=``; arguments and errors are those of :func:`parse_equation`."""
    return _tree(_Parser(text, 1, Variables(variables), _known(functions), numeric).parse())


def equation_nodes(
    text: str | bytes,
    right: str | bytes | None = None,
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> list[Node]:
    """The nodes of an equation in post-order, ``(label, arity, value)`` each: what :func:`parse_equation` reads.

    Args:
        text: the equation, or its left side where the right one is another text.
        right: the right side.
        variables, numeric, functions: see :func:`parse_equation`, which has the errors too.
    """
    names, known = Variables(variables), _known(functions)
    if right is None:
        nodes = _Parser(text, 2, names, known, numeric).parse()
    else:
        nodes = _Parser(text, 1, names, known, numeric).parse()
        nodes += _Parser(right, 1, names, known, numeric).parse()
    nodes.append(_EQUALITY)
    return nodes


def _known(functions: Mapping[str, int] | None) -> Functions:
    return Functions(functions) if functions else _FUNCTIONS


def _tree(nodes: list[Node]) -> Tree:
    """The tree of nodes in post-order; its leaves of the table are those that all equations share."""
    done: list[Tree] = []
    for label, arity, value in nodes:
        if not arity:
            done.append(LEAVES.get(label) or Tree(label, (), value))
        elif arity == 2:
            right = done.pop()
            done[-1] = Tree(label, (done[-1], right))
        else:
            done[-arity:] = [Tree(label, done[-arity:])]
    return done.pop()


@lru_cache(maxsize=4096)
def _literal_nodes(literal: str) -> tuple[Node, ...]:
    """The nodes of a literal that is not negative, composed of leaves where it is none; see :func:`literal_tree`."""
    return tuple((node.label, node.arity, None) for node in literal_tree(literal).postorder())


@lru_cache(maxsize=4096)
def _literal_leaf(literal: str, negative: bool, numeric: bool) -> Node | None:
    """The one leaf that says a literal, or None where there is none; see :func:`literal_leaf`."""
    leaf = literal_leaf(literal, negative=negative, numeric=numeric)
    return None if leaf is None else (leaf.label, 0, leaf.value)


class _Group:
    """An open parenthesis: of a call, with the number of arguments begun, or a plain one.

    Attributes:
        position: its place among the tokens.
        function: the name before it.
        most: the most arguments that there may be.
    """

    __slots__ = ("function", "most", "num_arguments", "position")

    def __init__(self, position: int, function: str | None, most: int) -> None:
        self.position = position
        self.function = function
        self.most = most
        self.num_arguments = 1


class _Parser:
    """An operator-precedence parser with its own stacks, so that depth is bounded by memory only.

    It writes nodes in post-order: those of an operand when it is read, an operator's when both of its operands are
    there. A minus is a product with -1, which is written ahead of what it negates.
    """

    def __init__(
        self, source: str | bytes, num_sides: int, variables: Variables, functions: Functions, numeric: bool
    ) -> None:
        self._text = text = decode_source(source)
        self._variables = variables
        self._functions = functions
        self._numeric = numeric
        self._num_sides = num_sides
        self._sorts, self._pieces = split_tokens(text)
        self._position = 0
        self._nodes: list[Node] = []
        self._operators: list[int] = [_OPEN]
        self._groups: list[_Group] = []
        self._num_read = 0

    def parse(self) -> list[Node]:
        """The nodes of the expressions of the text, ``num_sides`` of them with ``=`` between."""
        num_sides, sorts = self._num_sides, self._sorts
        if sorts[0] == "end":
            raise ParseError("the text is empty", self._text, 0, "an equation" if num_sides == 2 else "an expression")
        while self._num_read < num_sides:
            ends_side = "end" if self._num_read + 1 == num_sides else "="
            self._read_operand()
            while sorts[self._position] == ")":
                self._close_group()
            if sorts[self._position] == ends_side and not self._groups:
                self._reduce(0)
                self._num_read += 1
                self._position += 1
            else:
                self._read_operator()
        return self._nodes

    def _read_operand(self) -> None:
        """Read signs, opening parentheses and calls, up to and with one number or name."""
        sorts = self._sorts
        signed = False
        while True:
            position = self._position
            sort = sorts[position]
            if sort == "name":
                self._position += 1
                if sorts[position + 1] != "(":
                    self._read_name(position)
                    return
                self._open_group(self._pieces[position])
                signed = False
            elif sort == "number":
                self._read_literal(signed)
                return
            elif sort == "(":
                self._open_group(None)
                signed = False
            elif sort == "-":
                within_product = _PRECEDENCE[self._operators[-1]] >= _PRECEDENCE[_TIMES]
                self._operators.append(_MINUS_FACTOR if within_product else _MINUS_PRODUCT)
                self._nodes.append(_MINUS_ONE)
                self._position += 1
                signed = True
            elif sort == "+":
                self._position += 1
                signed = False
            else:
                raise self._unexpected(_OPERAND)

    def _read_literal(self, signed: bool) -> None:
        """Write a number; takes the sign before it, if it is ``signed``, where the two are a leaf."""
        sorts, position, nodes = self._sorts, self._position, self._nodes
        literal, after = self._pieces[position], sorts[position + 1]
        if after == "/" and sorts[position + 2] == "number" and self._read_rational(literal, signed):
            return
        self._position += 1
        is_short = len(literal) <= _LONGEST_KEPT
        leaf_of = _literal_leaf if is_short else _literal_leaf.__wrapped__
        try:
            if signed and after != "^":
                leaf = leaf_of(literal, True, self._numeric)
                if leaf is not None:
                    self._operators.pop()
                    nodes[-1] = leaf  # in place of the -1 of its sign
                    return
            if self._numeric:
                leaf = leaf_of(literal, False, True)
                if leaf is not None:
                    nodes.append(leaf)
                    return
            nodes += _literal_nodes(literal) if is_short else _literal_nodes.__wrapped__(literal)
        except ParseError as error:
            raise ParseError(error.problem, self._text, self._offset(position), error.expected) from error

    def _read_rational(self, literal: str, signed: bool) -> bool:
        """Write the leaf of a quotient like ``1/2``, unless it is an exponent, a divisor or divides by a power."""
        if self._sorts[self._position + 3] == "^":
            return False
        before = self._operators[-2] if signed else self._operators[-1]
        if before in (_POWER, _INVERSE, _MINUS_FACTOR):
            return False
        quotient = f"{literal}/{self._pieces[self._position + 2]}"
        leaf = _RATIONALS.get(f"-{quotient}") if signed else None
        if leaf is not None:
            self._operators.pop()
            self._nodes.pop()
        else:
            leaf = _RATIONALS.get(quotient)
            if leaf is None:
                return False
        self._nodes.append(leaf)
        self._position += 3
        return True

    def _read_name(self, position: int) -> None:
        name = self._pieces[position]
        constant = _CONSTANTS.get(name)
        if constant is not None:
            self._nodes.append(constant)
            return
        if name in self._functions:
            after = self._offset(position + 1)
            raise ParseError(f"the function {name!r} without its argument", self._text, after, "'('")
        try:
            label = self._variables.label(name)
        except TreememError:
            self._variables.label(name, self._text, self._offset(position))
            raise
        self._nodes.append(_LEAVES.get(label) or (label, 0, None))

    def _open_group(self, function: str | None) -> None:
        """Read an opening parenthesis, before which the name of a function may have been read."""
        most = 1
        if function is not None:
            named = self._position - 1
            if function in CONSTANTS:
                raise ParseError(
                    f"the constant {function!r} is no function",
                    self._text,
                    self._offset(named),
                    "'*' where a product is meant",
                )
            if function in self._functions:
                most = self._functions.arities(function)[1]
            else:
                self._functions.arities(function, self._text, self._offset(named))
        self._groups.append(_Group(self._position, function, most))
        self._operators.append(_OPEN)
        self._position += 1

    def _close_group(self) -> None:
        if not self._groups:
            here = self._offset(self._position)
            raise ParseError("')' without a '(' before it", self._text, here, self._after_operand())
        self._reduce(0)
        group = self._groups[-1]
        if group.function is not None:
            least, count = self._functions.arities(group.function)[0], group.num_arguments
            if count < least:
                problem = f"{group.function!r} takes {least} arguments, not {count}"
                raise ParseError(problem, self._text, self._offset(self._position), "','")
            self._write_call(group.function, count, group.most)
        self._groups.pop()
        self._operators.pop()
        self._position += 1

    def _write_call(self, function: str, count: int, most: int) -> None:
        if function == "sqrt":
            self._nodes += (_HALF, _POW)
        elif function == "log" and count < most:
            self._nodes += (_EULER, (function, most, None))
        else:
            self._nodes.append((function, count, None))

    def _read_operator(self) -> None:
        """Read what joins one operand to the next."""
        sort = self._sorts[self._position]
        if sort in ("+", "-"):
            self._reduce(_PRECEDENCE[_PLUS])
            self._operators.append(_PLUS)
            if sort == "-":
                self._operators.append(_MINUS_PRODUCT)
                self._nodes.append(_MINUS_ONE)
        elif sort in ("*", "/"):
            self._reduce(_PRECEDENCE[_TIMES])
            self._operators.append(_TIMES)
            if sort == "/":
                self._operators.append(_INVERSE)
        elif sort == "^":
            self._operators.append(_POWER)
        elif sort == "," and self._groups and self._groups[-1].num_arguments < self._groups[-1].most:
            self._reduce(0)
            self._groups[-1].num_arguments += 1
        else:
            raise self._unexpected(self._after_operand())
        self._position += 1

    def _reduce(self, precedence: int) -> None:
        """Write the operators that bind tighter than ``precedence``, back to the last open parenthesis."""
        operators = self._operators
        while _PRECEDENCE[operators[-1]] > precedence:
            operator = operators.pop()
            if operator == _INVERSE:
                self._nodes += (_MINUS_ONE, _POW)
            elif operator in (_MINUS_PRODUCT, _MINUS_FACTOR):
                self._nodes.append(_MUL)
            else:
                self._nodes.append(_BINARY[operator])

    def _after_operand(self) -> str:
        """What may follow where an operand has just ended."""
        if not self._groups:
            return (
                "an operator or '='" if self._num_read + 1 < self._num_sides else "an operator or the end of the text"
            )
        group = self._groups[-1]
        return "an operator, ',' or ')'" if group.num_arguments < group.most else "an operator or ')'"

    def _token(self, position: int) -> Token:
        return read_tokens(self._text)[position]

    def _offset(self, position: int) -> int:
        """Where a token stands in the text, which nobody needs to know unless something is wrong."""
        return self._token(position).offset

    def _unexpected(self, expected: str) -> ParseError:
        token = self._token(self._position)
        if token.sort == "strange":
            problem, instead = describe_strange_character(token.text)
            return ParseError(problem, self._text, token.offset, instead or expected)
        problem = f"unexpected {describe_token(token)}"
        if token.sort in ("number", "name", "(") and expected != _OPERAND:
            problem += " right after a value; a product is written with '*'"
        elif token.sort == "=" and self._num_read and not self._groups:
            problem = "a second '='"
        elif token.sort in ("=", "end") and self._groups:
            problem += f"; the '(' at {place(self._text, self._offset(self._groups[-1].position))} is not closed"
        elif token.sort == "," and self._groups and self._groups[-1].function is not None:
            group = self._groups[-1]
            problem += f"; {group.function!r} takes {group.most} argument{'s' if group.most > 1 else ''}"
        return ParseError(problem, self._text, token.offset, expected)
