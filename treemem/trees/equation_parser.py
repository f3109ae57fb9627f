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

from treemem.errors import ParseError
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.equation_literals import HALF, LEAVES, MINUS_ONE, RATIONAL_LEAVES, literal_leaf, literal_tree
from treemem.trees.equation_names import CONSTANTS, Functions, VariableNames, Variables
from treemem.trees.equation_tokens import Token, describe_strange_character, describe_token, read_tokens
from treemem.trees.source_text import decode_source, place
from treemem.trees.tree import Tree

_OPEN, _PLUS, _MINUS_PRODUCT, _TIMES, _MINUS_FACTOR, _INVERSE, _POWER = range(7)
_PRECEDENCE = (0, 1, 2, 3, 4, 4, 5)
_BINARY_LABELS = {_PLUS: "Add", _TIMES: "Mul", _POWER: "Pow"}
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
    names, calls = Variables(variables), Functions(functions)
    left, right = _Parser(text, 2, names, calls, numeric).parse()
    return Tree(EQUALITY, (left, right))


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
    names, calls = Variables(variables), Functions(functions)
    sides = [_Parser(side, 1, names, calls, numeric).parse()[0] for side in (left, right)]
    return Tree(EQUALITY, sides)


def parse_expression(
    text: str | bytes,
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> Tree:
    """Read one expression, without ``=``; arguments and errors are those of :func:`parse_equation`."""
    return _Parser(text, 1, Variables(variables), Functions(functions), numeric).parse()[0]


class _Group:
    """An open parenthesis: of a call, with the arguments read so far, or a plain one."""

    __slots__ = ("arguments", "function", "most", "offset")

    def __init__(self, offset: int, function: str | None, most: int) -> None:
        self.offset = offset
        self.function = function
        self.most = most
        self.arguments: list[Tree] = []


class _Parser:
    """An operator-precedence parser with its own stacks, so that depth is bounded by memory only."""

    def __init__(
        self, source: str | bytes, num_sides: int, variables: Variables, functions: Functions, numeric: bool
    ) -> None:
        self._text = text = decode_source(source)
        self._variables = variables
        self._functions = functions
        self._numeric = numeric
        self._num_sides = num_sides
        self._tokens = read_tokens(text)
        self._position = 0
        self._operands: list[Tree] = []
        self._operators: list[int] = [_OPEN]
        self._groups: list[_Group] = []
        self._sides: list[Tree] = []

    def parse(self) -> list[Tree]:
        """The expressions of the text, ``num_sides`` of them with ``=`` between."""
        num_sides = self._num_sides
        if self._tokens[0].sort == "end":
            raise ParseError("the text is empty", self._text, 0, "an equation" if num_sides == 2 else "an expression")
        while len(self._sides) < num_sides:
            ends_side = "end" if len(self._sides) + 1 == num_sides else "="
            self._read_operand()
            while self._tokens[self._position].sort == ")":
                self._close_group()
            if self._tokens[self._position].sort == ends_side and not self._groups:
                self._reduce(0)
                self._sides.append(self._operands.pop())
                self._position += 1
            else:
                self._read_operator()
        return self._sides

    def _read_operand(self) -> None:
        """Read signs, opening parentheses and calls, up to and with one number or name."""
        signed = False
        while True:
            token = self._tokens[self._position]
            sort = token.sort
            if sort == "number":
                self._operands.append(self._read_literal(token, signed))
                return
            if sort == "name":
                is_call = self._tokens[self._position + 1].sort == "("
                self._position += 1
                if not is_call:
                    self._operands.append(self._read_name(token))
                    return
                self._open_group(token.text, token.offset)
                signed = False
            elif sort == "(":
                self._open_group(None, token.offset)
                signed = False
            elif sort == "-":
                within_product = _PRECEDENCE[self._operators[-1]] >= _PRECEDENCE[_TIMES]
                self._operators.append(_MINUS_FACTOR if within_product else _MINUS_PRODUCT)
                self._position += 1
                signed = True
            elif sort == "+":
                self._position += 1
                signed = False
            else:
                raise self._unexpected(token, _OPERAND)

    def _read_literal(self, token: Token, signed: bool) -> Tree:
        """The tree of the number ``token``; takes the sign before it, if it is ``signed``, where the two are a leaf."""
        tokens, text = self._tokens, self._text
        after = tokens[self._position + 1]
        if after.sort == "/" and tokens[self._position + 2].sort == "number":
            leaf = self._read_rational(token, signed)
            if leaf is not None:
                return leaf
        self._position += 1
        if signed and after.sort != "^":
            leaf = literal_leaf(token.text, negative=True, numeric=self._numeric, text=text, offset=token.offset)
            if leaf is not None:
                self._operators.pop()
                return leaf
        if self._numeric:
            leaf = literal_leaf(token.text, negative=False, numeric=True, text=text, offset=token.offset)
            if leaf is not None:
                return leaf
        return literal_tree(token.text, text=text, offset=token.offset)

    def _read_rational(self, token: Token, signed: bool) -> Tree | None:
        """The leaf of a quotient like ``1/2``, unless it is an exponent, a divisor or has a power as its divisor."""
        if self._tokens[self._position + 3].sort == "^":
            return None
        before = self._operators[-2] if signed else self._operators[-1]
        if before in (_POWER, _INVERSE, _MINUS_FACTOR):
            return None
        quotient = f"{token.text}/{self._tokens[self._position + 2].text}"
        leaf = RATIONAL_LEAVES.get(f"-{quotient}") if signed else None
        if leaf is not None:
            self._operators.pop()
        else:
            leaf = RATIONAL_LEAVES.get(quotient)
        if leaf is not None:
            self._position += 3
        return leaf

    def _read_name(self, token: Token) -> Tree:
        name = token.text
        if name in CONSTANTS:
            return LEAVES[CONSTANTS[name]]
        if name in self._functions:
            after = self._tokens[self._position]
            raise ParseError(f"the function {name!r} without its argument", self._text, after.offset, "'('")
        label = self._variables.label(name, self._text, token.offset)
        return LEAVES.get(label) or Tree(label)

    def _open_group(self, function: str | None, offset: int) -> None:
        most = 1
        if function is not None:
            if function in CONSTANTS:
                raise ParseError(
                    f"the constant {function!r} is no function", self._text, offset, "'*' where a product is meant"
                )
            most = self._functions.arities(function, self._text, offset)[1]
        self._groups.append(_Group(self._tokens[self._position].offset, function, most))
        self._operators.append(_OPEN)
        self._position += 1

    def _close_group(self) -> None:
        token = self._tokens[self._position]
        if not self._groups:
            raise ParseError("')' without a '(' before it", self._text, token.offset, self._after_operand())
        self._reduce(0)
        group = self._groups[-1]
        if group.function is not None:
            least, most = self._functions.arities(group.function)
            arguments = [*group.arguments, self._operands.pop()]
            if len(arguments) < least:
                raise ParseError(
                    f"{group.function!r} takes {least} arguments, not {len(arguments)}", self._text, token.offset, "','"
                )
            self._operands.append(_call(group.function, arguments, most))
        self._groups.pop()
        self._operators.pop()
        self._position += 1

    def _read_operator(self) -> None:
        """Read what joins one operand to the next."""
        token = self._tokens[self._position]
        sort = token.sort
        if sort in ("+", "-"):
            self._reduce(_PRECEDENCE[_PLUS])
            self._operators.append(_PLUS)
            if sort == "-":
                self._operators.append(_MINUS_PRODUCT)
        elif sort in ("*", "/"):
            self._reduce(_PRECEDENCE[_TIMES])
            self._operators.append(_TIMES)
            if sort == "/":
                self._operators.append(_INVERSE)
        elif sort == "^":
            self._operators.append(_POWER)
        elif sort == "," and self._groups and len(self._groups[-1].arguments) + 1 < self._groups[-1].most:
            self._reduce(0)
            self._groups[-1].arguments.append(self._operands.pop())
        else:
            raise self._unexpected(token, self._after_operand())
        self._position += 1

    def _reduce(self, precedence: int) -> None:
        """Apply the operators that bind tighter than ``precedence``, back to the last open parenthesis."""
        operators, operands = self._operators, self._operands
        while _PRECEDENCE[operators[-1]] > precedence:
            operator = operators.pop()
            operand = operands.pop()
            if operator == _INVERSE:
                operands.append(Tree("Pow", (operand, MINUS_ONE)))
            elif operator in (_MINUS_PRODUCT, _MINUS_FACTOR):
                operands.append(Tree("Mul", (MINUS_ONE, operand)))
            else:
                operands.append(Tree(_BINARY_LABELS[operator], (operands.pop(), operand)))

    def _after_operand(self) -> str:
        """What may follow where an operand has just ended."""
        if not self._groups:
            return (
                "an operator or '='" if len(self._sides) + 1 < self._num_sides else "an operator or the end of the text"
            )
        group = self._groups[-1]
        return "an operator, ',' or ')'" if len(group.arguments) + 1 < group.most else "an operator or ')'"

    def _unexpected(self, token: Token, expected: str) -> ParseError:
        if token.sort == "strange":
            problem, instead = describe_strange_character(token.text)
            return ParseError(problem, self._text, token.offset, instead or expected)
        problem = f"unexpected {describe_token(token)}"
        if token.sort in ("number", "name", "(") and expected != _OPERAND:
            problem += " right after a value; a product is written with '*'"
        elif token.sort == "=" and self._sides and not self._groups:
            problem = "a second '='"
        elif token.sort in ("=", "end") and self._groups:
            problem += f"; the '(' at {place(self._text, self._groups[-1].offset)} is not closed"
        elif token.sort == "," and self._groups and self._groups[-1].function is not None:
            group = self._groups[-1]
            problem += f"; {group.function!r} takes {group.most} argument{'s' if group.most > 1 else ''}"
        return ParseError(problem, self._text, token.offset, expected)


def _call(function: str, arguments: list[Tree], most: int) -> Tree:
    if function == "sqrt":
        return Tree("Pow", (arguments[0], HALF))
    if function == "log" and len(arguments) < most:
        arguments.append(LEAVES["Exp1:E"])
    return Tree(function, arguments)
