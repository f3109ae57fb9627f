"""Tell texts in brackets from texts in other forms, which would be read as labels."""

from __future__ import annotations

from treemem.errors import TreememError
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.formats.form_signs import INFIX, form_by_signs, form_hint, is_python


def other_form(text: str, excluded: str = "brackets") -> str | None:
    """Return which form a text is in instead of ``excluded``, and what reads it; None if no other form is recognised.

    A text of one word is in another form if it is JSON or a Python list, markup, LaTeX, a nested list in ``[]`` or
    ``{}``, several words joined by commas in brackets, or operands joined by ``+``, ``*`` or ``^``. Labels such as
    ``N/A``, ``-``, ``[UNK]`` and ``well-known`` are not.
    """
    form, text = form_by_signs(text, excluded), text.strip()
    if form == INFIX:
        return _expression(text, excluded) or (
            "an expression in infix; parse_expression(text, functions={...}) reads it if its functions are named, or "
            "write brackets such as (f x y)"
        )
    if form is None and text[:1] not in ("(", "") and any(sign in text for sign in "=+*^") and " " in text:
        return _expression(text, excluded)
    return form


def _expression(text: str, excluded: str) -> str | None:
    """Return which form an expression, an equation or an assignment is in; None if no parser reads it."""
    for parse, form in ((parse_expression, "expression"), (parse_equation, "equation")):
        try:
            parse(text)
        except TreememError:
            continue
        return form_hint(form, excluded=excluded)
    return form_hint("python", excluded=excluded) if is_python(text) else None
