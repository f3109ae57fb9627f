from __future__ import annotations

import copy

import pytest

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.parser import parse_expression
from treemem.trees.formats.record_reader import ParsedText, find_refused, read_examples, told_in_a_line
from treemem.trees.tree import Tree

READER = ParsedText(parse_brackets)


def test_examples_are_read_one_by_one_and_bad_ones_are_told() -> None:
    examples = ["(f x)", "(f", {"text": "y"}, {"tree": "(g x)"}, Tree("z"), {}, {"text": 3}, "x\ty"]
    found = read_examples(READER, examples, range(11, 19))
    assert found.forest == Forest.from_trees([parse_brackets(text) for text in ("(f x)", "y", "(g x)", "z")])
    assert found.places == [0, 2, 3, 4]
    assert found.errors == {
        1: "line 12, column 3: the node 'f' is not closed; expected a child or ')'",
        5: "line 16: no example among the fields (none); expected text or tree",
        6: "line 17: the field 'text' is 3; expected a text",
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


@pytest.mark.parametrize(
    ("reader", "example", "expected"),
    [
        (ParsedText(parse_expression), "-" * 2_000_000, "2,000,000 characters; a record may have 1,600,000"),
        (READER, {"text": "(a " * 7_000_000}, "21,000,000 characters; a record may have 1,600,000"),
        (ParsedText(parse_expression), "-" * 100_000 + "x", r"200,001 nodes; a record may have 100,000 \("),
        (READER, Tree("f", [Tree("x")] * 100_000), "100,001 nodes; a record may have 100,000"),
    ],
)
def test_a_record_that_is_too_large_is_refused(reader: ParsedText, example: str, expected: str) -> None:
    reader = copy.copy(reader)
    reader.most_nodes = 100_000
    with pytest.raises(GraphError, match=expected):
        reader.read(example)


def test_the_bound_on_nodes_can_be_set() -> None:
    reader = ParsedText(parse_brackets)
    assert len(reader.read(Tree("f", [Tree("x")] * 100_000))) == 100_001
    reader.most_nodes = 2
    with pytest.raises(GraphError, match=r"this record has 3 nodes; a record may have 2 .*--most-nodes"):
        reader.read("(f x y)")
    reader.most_nodes = 200_000
    assert len(reader.read(Tree("f", [Tree("x")] * 150_000))) == 150_001
