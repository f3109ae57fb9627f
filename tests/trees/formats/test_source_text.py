from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from treemem.errors import ParseError
from treemem.task import TASKS
from treemem.trees import parse_brackets, parse_equation, parse_listops, parse_logic, parse_preorder

PARSERS: dict[str, Callable[[Any], object]] = {
    **{parse.__name__: parse for parse in (parse_brackets, parse_equation, parse_listops, parse_logic, parse_preorder)},
    **{name: TASKS.find(name)().parse for name in TASKS.names()},
}


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_no_text_is_told_by_every_parser_in_the_same_words(name: str) -> None:
    for given in (None, 3):
        with pytest.raises(ParseError, match=f"a text to parse must be str or bytes, not {type(given).__name__}"):
            PARSERS[name](given)
    with pytest.raises(ParseError, match="byte 0xff is not UTF-8"):
        PARSERS[name](b"\xff")


def test_a_pair_of_formulas_may_be_bytes() -> None:
    task = TASKS.find("logical_inference")()
    assert task.parse(b"( not a )\tb") == task.parse("( not a )\tb")
