"""JSON of any depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import ParseError
from treemem.trees.formats.json_text import _parse, parse_json

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_DATA = st.recursive(_PLAIN, lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts), max_leaves=20)


@given(data=_DATA, indent=st.none() | st.just(1))
def test_the_reader_with_a_stack_reads_what_python_reads(data: object, indent: int | None) -> None:
    assert _parse(json.dumps(data, indent=indent)) == data


@given(data=_DATA, cut=st.integers(0, 30), junk=st.sampled_from(["", ",", "]", "}", "x", ":", "0", '"']))
def test_it_refuses_what_python_refuses(data: object, cut: int, junk: str) -> None:
    text = json.dumps(data)[:cut] + junk
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises((json.JSONDecodeError, StopIteration)):
            _parse(text)
    else:
        assert _parse(text) == expected or text == "NaN"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1,", "column 4: this is not JSON: Expecting value"),
        ("[" * 5000, "column 5001: this is not JSON"),
        ('{"a": {"label": "f", "label": "g"}}', "two fields have one name, 'label'"),
        ('["f", ' * 1500 + '{"label": "f", "label": "g"}' + "]" * 1500, "two fields have one name, 'label'"),
        ("1" * 5000, "this JSON cannot be read: Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        parse_json(text)
