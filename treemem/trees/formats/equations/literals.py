"""Number literals as trees: one leaf where the leaf table has the number, otherwise composed out of its decimal digits.

Integers are composed digit by digit: ``17`` is ``Add(10, 7)``, ``25`` is ``Add(Mul(2, 10), 5)``, ``1000`` is
``Pow(10, 3)``, ``256`` is ``Add(Mul(Add(Mul(2, 10), 5), 10), 6)``. Decimals are an integer times a power of ten:
``2.5`` is ``Mul(Add(Mul(2, 10), 5), Pow(10, -1))``. Nothing is evaluated; trees are linear in the number of digits.
"""

from __future__ import annotations

from treemem.errors import ParseError
from treemem.trees.formats.equations.labels import LEAF_LABELS, NUMBER
from treemem.trees.formats.number_text import MOST_DIGITS
from treemem.trees.tree import Tree

LARGEST_EXPONENT = 9999
"""Largest exponent of ten, either sign, in scientific notation (``2.5e-3``)."""

LEAVES: dict[str, Tree] = {label: Tree(label) for label in LEAF_LABELS}
"""One tree per leaf label; trees are immutable, so every equation can share them."""

MINUS_ONE = LEAVES["NegativeOne:-1"]
HALF = LEAVES["Half:1/2"]
_TEN = LEAVES["Integer:10"]

RATIONAL_LEAVES: dict[str, Tree] = {
    "2/5": LEAVES["Rational:2/5"],
    "1/2": HALF,
    "-1/2": LEAVES["Rational:-1/2"],
}
"""The quotients of the leaf table, by their spelling; any other quotient is a division."""

_LEAF_OF_SPELLING: dict[str, Tree] = {
    **{str(integer): LEAVES[f"Integer:{integer}"] for integer in (*range(11), -2, -3)},
    "-1": MINUS_ONE,
    "0.7": LEAVES["Float:0.7"],
}
_LEAF_OF_VALUE: dict[tuple[bool, str, int], Tree] = {
    **{(False, str(digit), 0): LEAVES[f"Integer:{digit}"] for digit in range(10)},
    (False, "1", 1): _TEN,
    (True, "1", 0): MINUS_ONE,
    (True, "2", 0): LEAVES["Integer:-2"],
    (True, "3", 0): LEAVES["Integer:-3"],
    (False, "7", -1): LEAVES["Float:0.7"],
    (False, "5", -1): HALF,
    (True, "5", -1): LEAVES["Rational:-1/2"],
    (False, "4", -1): LEAVES["Rational:2/5"],
}


def literal_leaf(literal: str, *, negative: bool, numeric: bool, text: str = "", offset: int = 0) -> Tree | None:
    """The one leaf that says a literal, or None where there is none.

    By value, ``3`` and ``3.0`` alike, when not ``numeric``. When ``numeric``, a literal spelled as in the leaf table
    (``3``, ``-3``, ``0.7``) is that leaf and any other (``3.0``, ``17``) a ``Number`` leaf.

    Args:
        literal: digits, with or without a point and an exponent; no sign.
        negative: whether a minus belongs to it.
        numeric: whether numbers outside the table become ``Number`` leaves.
        text: what the literal stands in, for errors.
        offset: where the literal stands in ``text``.

    Raises:
        ParseError: too many digits, or a number that is too large or too small for a ``Number`` leaf.
    """
    digits, exponent = _significant_digits(literal, text, offset)
    if not numeric:
        return _LEAF_OF_VALUE.get((negative, digits, exponent))
    spelling = f"-{literal}" if negative else literal
    leaf = _LEAF_OF_SPELLING.get(spelling)
    if leaf is not None:
        return leaf
    value = float(spelling)
    if value in (float("inf"), float("-inf")) or (value == 0.0 and digits != "0"):
        raise ParseError(
            "a number out of the range of a number leaf", text, offset, "a number between 1e-307 and 1e308 in size"
        )
    return Tree(NUMBER, value=value)


def literal_tree(literal: str, *, text: str = "", offset: int = 0) -> Tree:
    """The tree of a literal that is not negative: a leaf of the table or a composition of such leaves.

    Raises:
        ParseError: more than ``MOST_DIGITS`` digits or an exponent beyond ``LARGEST_EXPONENT``.
    """
    digits, exponent = _significant_digits(literal, text, offset)
    leaf = _LEAF_OF_VALUE.get((False, digits, exponent))
    if leaf is not None:
        return leaf
    if exponent >= 0:
        return _compose_integer(digits, exponent)
    power = Tree("Pow", (_TEN, integer_tree(exponent)))
    return power if digits == "1" else Tree("Mul", (_compose_integer(digits, 0), power))


def integer_tree(integer: int) -> Tree:
    """The tree of an integer of either sign and at most ``MOST_DIGITS`` digits."""
    leaf = _LEAF_OF_SPELLING.get(str(integer))
    if leaf is not None:
        return leaf
    if integer < 0:
        return Tree("Mul", (MINUS_ONE, integer_tree(-integer)))
    return literal_tree(str(integer))


def _significant_digits(literal: str, text: str, offset: int) -> tuple[str, int]:
    """Digits without zeros around them, and the power of ten that they are multiplied with; zero is ``("0", 0)``."""
    mantissa, _, exponent_text = literal.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    if len(whole) + len(fraction) > MOST_DIGITS:
        raise ParseError(
            f"a number of {len(whole) + len(fraction)} digits", text, offset, f"at most {MOST_DIGITS} digits"
        )
    exponent_size = exponent_text.lstrip("+-").lstrip("0") or "0"
    if len(exponent_size) > len(str(LARGEST_EXPONENT)):
        raise ParseError(
            f"a power of ten of {len(exponent_size)} digits", text, offset, f"one of at most {LARGEST_EXPONENT}"
        )
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0", 0
    exponent = int(exponent_size) * (-1 if exponent_text.startswith("-") else 1) - len(fraction)
    significant = digits.rstrip("0")
    return significant, exponent + len(digits) - len(significant)


def _compose_integer(digits: str, zeros: int) -> Tree:
    """The tree of the integer ``digits`` followed by ``zeros`` zeros; ``digits`` begins with 1 to 9."""
    composed = LEAVES[f"Integer:{digits[0]}"]
    shift = 0
    for digit in digits[1:]:
        shift += 1
        if digit != "0":
            composed = Tree("Add", (_shift(composed, shift), LEAVES[f"Integer:{digit}"]))
            shift = 0
    return _shift(composed, shift + zeros)


def _shift(tree: Tree, places: int) -> Tree:
    """``tree`` times ten to the power ``places``."""
    if places == 0:
        return tree
    power = _TEN if places == 1 else Tree("Pow", (_TEN, integer_tree(places)))
    return power if tree is LEAVES["Integer:1"] else Tree("Mul", (tree, power))
