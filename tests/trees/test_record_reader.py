from __future__ import annotations

import pytest

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError
from treemem.trees.brackets import parse_brackets
from treemem.trees.forest import Forest
from treemem.trees.record_reader import ParsedText, find_refused, read_examples, told_in_a_line
from treemem.trees.tree import Tree

READER = ParsedText(parse_brackets)


def test_examples_are_read_one_by_one_and_bad_ones_are_told() -> None:
    examples = ["(f x)", "(f", {"text": "y"}, {"tree": "(g x)"}, Tree("z"), {}, {"text": 3}, "x\ty"]
    found = read_examples(READER, examples, range(11, 19))
    assert found.forest == Forest.from_trees([parse_brackets(text) for text in ("(f x)", "y", "(g x)", "z")])
    assert found.places == [0, 2, 3, 4]
    assert found.errors == {
        1: "line 12, column 3: the node 'f' is not closed; expected a child or ')'",
        5: "line 16, column 1: no example among the fields (none); expected text or tree",
        6: "line 17, column 1: the field 'text' is 3; expected a text",
        7: "line 18, column 2: 2 parts between tabs; expected text",
    }


def test_trees_of_an_example_are_one_unless_the_task_says_more() -> None:
    assert READER.joined([Tree("x")]) == Tree("x")
    with pytest.raises(GraphError, match="an example is one tree, not 2"):
        READER.joined([Tree("x"), Tree("y")])


def test_an_error_is_told_in_one_line_with_its_place() -> None:
    assert told_in_a_line(ParseError("no", "a\tb", 2), 7) == "line 7, column 3: no"
    assert told_in_a_line(VocabularyError("unknown"), 7) == "line 7: unknown"
    assert told_in_a_line(GraphError("a  cycle"), 7) == "line 7: a cycle"


def test_halving_finds_what_a_check_of_several_refuses() -> None:
    def check(begin: int, end: int) -> None:
        for number in {2, 3, 9} & set(range(begin, end)):
            raise TreememError(str(number))

    assert {number: str(error) for number, error in find_refused(10, check).items()} == {2: "2", 3: "3", 9: "9"}
    assert find_refused(2, check) == find_refused(0, check) == {}
