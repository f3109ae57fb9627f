"""Programs (Zaremba & Sutskever 2014, section 3), and what they print.

A program is a few lines of Python: assignments, loops, and a last line that prints a number. Products and loops have a
small factor, so that one pass from left to right with little memory is enough to compute it.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator

from treemem.errors import ParseError

SYMBOLS = (*string.digits, *string.ascii_lowercase, *"()+-*=<>: \n")
"""The characters of programs."""
OUTPUTS = (*string.digits, "-")
"""The characters of what a program prints."""
OPERATIONS = ("add", "subtract", "multiply", "conditional", "assign", "loop")
_NAMES = "abcdefghij"
MAX_NESTING = len(_NAMES)
"""Each operation may need a variable of its own."""
_TOKEN = re.compile(r"[0-9]+|[a-z]+|[-+]=|[-+*()<>=:]")


def draw_program(length: int, nesting: int, generator: random.Random) -> str:
    """Return a program.

    It has ``nesting`` operations, each of which has the result of the one before as an operand.

    Args:
        length: numbers have at most this many digits; the factor of a product, and the number of rounds of a loop, is
            at most ``4 * length``.
        nesting: number of operations, at most ``MAX_NESTING``.
        generator: draws operations, numbers and names.
    """
    names = iter(generator.sample(_NAMES, len(_NAMES)))
    lines: list[str] = []

    def number() -> str:
        return str(generator.randint(1, 10**length - 1))

    def small() -> str:
        return str(generator.randint(1, 4 * length))

    def pair(one: str, operator: str, other: str) -> str:
        one, other = (one, other) if generator.random() < 0.5 else (other, one)
        return f"({one}{operator}{other})"

    result = number()
    for operation in generator.choices(OPERATIONS, k=nesting):
        if operation == "add":
            result = pair(result, "+", number())
        elif operation == "subtract":
            result = pair(result, "-", number())
        elif operation == "multiply":
            result = pair(result, "*", small())
        elif operation == "conditional":
            one, other = (result, number()) if generator.random() < 0.5 else (number(), result)
            result = f"({one} if {number()}{generator.choice('<>')}{number()} else {other})"
        else:
            name = next(names)
            lines.append(f"{name}={result}")
            if operation == "assign":
                result = pair(name, generator.choice("+-"), number())
            else:
                lines.append(f"for x in range({small()}):{name}{generator.choice('+-')}={number()}")
                result = name
    return "\n".join([*lines, f"print({result})"])


def printed(program: str) -> int:
    """Return the number that a program prints. The text is parsed, and not given to Python.

    Raises:
        ParseError: the text is not a program of the task.

    Example:
        >>> printed("j=8584\\nfor x in range(8):j+=920\\nb=(1500+j)\\nprint((b+7567))")
        25011
    """
    values: dict[str, int] = {}
    *statements, last = program.split("\n")
    for number, line in enumerate(statements, start=1):
        _Line(line, number, values).statement()
    reader = _Line(last, len(statements) + 1, values)
    reader.take("print", "(")
    value = reader.expression()
    reader.take(")", "")
    return value


class _Line:
    """Reads a line.

    Args:
        text: the line.
        number: in the program, from 1.
        values: of the variables so far; a statement changes them.
    """

    def __init__(self, text: str, number: int, values: dict[str, int]) -> None:
        self.text, self.number, self.values = text, number, values
        self.place = self.end = 0  # of the token
        self._tokens = self._read()
        self.token = next(self._tokens)

    def _read(self) -> Iterator[str]:
        """Yield the tokens, and then empty texts."""
        while True:
            while self.text[self.end : self.end + 1] == " ":
                self.end += 1
            match = _TOKEN.match(self.text, self.end)
            self.place = self.end
            if match is None and self.end < len(self.text):
                raise self.error("a number, a name or an operator")
            self.end = match.end() if match else self.end
            yield match.group() if match else ""

    def error(self, expected: str) -> ParseError:
        return ParseError("this is no line of a program", self.text, self.place, expected, line=self.number)

    def take(self, *tokens: str) -> None:
        """Go over these tokens; the empty text is the end of the line."""
        for token in tokens:
            if self.token != token:
                raise self.error(repr(token) if token else "the end of the line")
            self.token = next(self._tokens)

    def one_of(self, *tokens: str) -> str:
        """Return the next token, which must be one of these."""
        token = self.token
        if token not in tokens:
            raise self.error(f"one of {' '.join(tokens)}")
        self.take(token)
        return token

    def integer(self) -> int:
        token = self.token
        if not token.isdigit():
            raise self.error("a number")
        self.take(token)
        return int(token)

    def name(self) -> str:
        token = self.token
        if len(token) != 1 or not token.isalpha():
            raise self.error("a variable, which is a letter")
        self.take(token)
        return token

    def statement(self) -> None:
        """``name=expression`` or ``for x in range(number):name+=number``."""
        if self.token != "for":
            name = self.name()
            self.take("=")
            self.values[name] = self.expression()
        else:
            self.take("for", "x", "in", "range", "(")
            rounds = self.integer()
            self.take(")", ":")
            name = self.known_name()
            sign = 1 if self.one_of("+=", "-=") == "+=" else -1
            self.values[name] += sign * rounds * self.integer()
        self.take("")

    def known_name(self) -> str:
        if self.token.isalpha() and self.token not in self.values:
            raise self.error(f"a variable with a value, and {self.token} has none")
        return self.name()

    def expression(self) -> int:
        """A number, a name, ``(a+b)``, ``(a-b)``, ``(a*b)`` or ``(a if b<c else d)``."""
        if self.token.isdigit():
            return self.integer()
        if self.token != "(":
            return self.values[self.known_name()]
        self.take("(")
        first = self.expression()
        operator = self.one_of("+", "-", "*", "if")
        second = self.expression()
        if operator == "if":
            relation = self.one_of("<", ">")
            third = self.expression()
            self.take("else")
            otherwise = self.expression()
            value = first if (second < third if relation == "<" else second > third) else otherwise
        else:
            value = {"+": first + second, "-": first - second, "*": first * second}[operator]
        self.take(")")
        return value
