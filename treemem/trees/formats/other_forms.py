"""Tell texts in brackets from texts in other forms, which would be read as labels."""

from __future__ import annotations

from treemem.errors import TreememError
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.formats.form_signs import INFIX, form_by_signs


def other_form(text: str) -> str | None:
    """Return which form a text is in instead of brackets, and what reads it; None if no other form is recognised.

    A text of one word is in another form if it is JSON or a Python list, markup, LaTeX, a nested list in ``[]`` or
    ``{}``, several words joined by commas in brackets, or operands joined by ``+``, ``*`` or ``^``. Labels such as
    ``N/A``, ``-``, ``[UNK]`` and ``well-known`` are not.
    """
    form, text = form_by_signs(text), text.strip()
    if form == INFIX:
        return _expression(text)
    if form is None and text[:1] not in ("(", "") and any(sign in text for sign in "=+*^") and " " in text:
        expression_form = _expression(text)
        return expression_form if "text=" in expression_form else None
    return form


def _expression(text: str) -> str:
    for parse, form in ((parse_expression, "expression"), (parse_equation, "equation")):
        try:
            parse(text)
        except TreememError:
            continue
        return f'an {form} in infix; parse_{form}(text) reads it, and text="{form}" in a table'
    return (
        "an expression in infix; parse_expression(text, functions={...}) reads it if its functions are named, or write "
        "brackets such as (f x y)"
    )
