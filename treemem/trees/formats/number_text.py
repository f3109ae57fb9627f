"""Numbers as the texts of labels."""

from __future__ import annotations

from typing import Any

from treemem.errors import GraphError

MOST_DIGITS = 1000
"""The most digits that an integer may have."""

_MOST = 10**MOST_DIGITS


def number_text(number: Any) -> str:
    """Return the text of a number.

    Raises:
        GraphError: an integer of more than ``MOST_DIGITS`` digits.
    """
    if isinstance(number, int) and not -_MOST < number < _MOST:
        raise GraphError(f"an integer of {number.bit_length():,} bits; a label has at most {MOST_DIGITS:,} digits")
    return str(number)
