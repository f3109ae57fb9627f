from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

import pytest

from treemem.errors import ParseError, RecipeError
from treemem.tasks.logical_inference import RELATIONS, read_logic, read_logic_folder


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "header", ["", "n_ops\tlabel\tleft\tright", "Operations\tLabel\tLeft\tRight", "label\tleft\tright"]
)
def test_a_users_file_may_have_blank_lines_and_other_line_ends(tmp_path: Path, end: str, header: str) -> None:
    rows = ["<\t( a ( and b ) )\ta", "", "=\ta\ta", "   "]
    lines = [f"1\t{rows[0]}", "", f"0\t{rows[2]}"] if header.startswith(("n_ops", "Operations")) else rows
    path = tmp_path / "pairs.tsv"
    path.write_bytes(end.join([*([header] if header else []), *lines, ""]).encode())
    pairs = read_logic(path)
    assert [RELATIONS[label] for label in pairs.label] == ["<", "="]
    assert pairs.operations.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"left": ""}', "no label"),
        ('{"id": " "}', "no label"),
        ('{"label": "=", "lhs": "a"}', "no rhs; expected texts"),
        ('{"label": "=", "left": "a", "right": 3}', "the field 'right' is 3"),
    ],
)
def test_a_record_of_blank_fields_is_refused(tmp_path: Path, record: str, said: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"label": "=", "lhs": "a", "rhs": "a"}\n' + record + "\n")
    with pytest.raises(ParseError, match=rf"pairs\.jsonl, line 2: .*{said}"):
        read_logic(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("=\ta", "2 columns, and a pair has 3"),
        ("0\t=\ta", "3 columns, a number of operations, a label and one side; the right side is missing"),
        ("\ta\ta", "the label is missing"),
        ("~\ta\ta", "'~' is no relation"),
        ("<\ta\ta", "'<' contradicts the formulas, whose relation is '='"),
        ("2\t=\ta\ta", "'2' is said to be the number of operations, which is 0"),
        ("=\t( a ( and b )\ta", "is not closed"),
        ("=\ta\tg", "'g' is no variable"),
        ("=\ta\t", "the text holds no tree"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"=\ta\ta\n\n{line}\n=\tb\tb\n")
    with pytest.raises(ParseError, match=r"pairs\.tsv, line 3") as caught:
        read_logic(path)
    assert said in str(caught.value)


def test_the_first_of_several_wrong_lines_is_named(tmp_path: Path) -> None:
    wrong = ["~\ta\ta", "<\ta\ta", "=\tg\ta", "=\t( a\ta", "3\t=\ta\ta", "=\ta", "=\ta\t\udcff"]
    for first, second in itertools.permutations(wrong, 2):
        path = tmp_path / "pairs.tsv"
        path.write_bytes(f"=\ta\ta\n{first}\n{second}\n".encode("utf-8", "surrogateescape"))
        with pytest.raises(ParseError) as caught:
            read_logic(path)
        assert caught.value.line == 2, (first, second)


def test_a_folder_may_have_a_file_for_each_number_of_operations(tmp_path: Path) -> None:
    (tmp_path / "train0").write_text("=\ta\ta\n")
    (tmp_path / "train10").write_text("=\t( not a )\t( not a )\n")
    (tmp_path / "train2.txt").write_text("<\t( a ( and ( not b ) ) )\ta\n")
    (tmp_path / "test0").write_text("#\ta\tb\n")
    (tmp_path / "notes.md").write_text("not of the data\n")
    pairs, is_test = read_logic_folder(tmp_path)
    assert [str(tree) for tree in pairs.forest[::2]] == ["a", "(X a (X and (X not b)))", "(X not a)", "a"]
    assert is_test.tolist() == [False, False, False, True]


def test_a_pair_that_is_in_the_file_of_another_split_than_its_own_is_refused(tmp_path: Path) -> None:
    pair = '{"label": "=", "left": "a", "right": "a", "split": "%s"}\n'
    (tmp_path / "test.jsonl").write_text(pair % "test" + pair % "")
    (tmp_path / "train.jsonl").write_text(pair % "train")
    assert read_logic_folder(tmp_path)[1].tolist() == [False, True, True]
    (tmp_path / "train.jsonl").write_text(pair % "train" + pair % "test")
    with pytest.raises(ParseError, match=r"train\.jsonl, line 2.* is of the split test.*pairs of train alone"):
        read_logic_folder(tmp_path)


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="must hold"):
        read_logic_folder(tmp_path)
    with pytest.raises(RecipeError, match="no folder"):
        read_logic_folder(tmp_path / "nowhere")
    (tmp_path / "own.csv").write_text("label,left,right\n=,a,a\n")
    with pytest.raises(RecipeError, match=r"own\.csv is a file; name its folder"):
        read_logic_folder(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["train.tsv", "train.tsv.gz", "test.tsv"], "train.tsv, train.tsv.gz"),
        (["train.tsv", "train1", "test.tsv"], "train.tsv, train1"),
        (["train.tsv", "test0", "test1.txt", "test1.tsv"], "test0, test1.tsv, test1.txt"),
        (["train1", "train01", "test"], "train01, train1"),
    ],
)
def test_a_folder_that_holds_the_same_pairs_twice_is_refused(tmp_path: Path, names: list[str], named: str) -> None:
    for name in names:
        with (gzip.open if name.endswith(".gz") else open)(tmp_path / name, "wt") as file:
            file.write("=\ta\ta\n")
    kind = "test" if named.startswith("test") else "train"
    with pytest.raises(RecipeError, match=rf"holds {re.escape(named)}, which .* keep the pairs of {kind} once: in one"):
        read_logic_folder(tmp_path)


def test_twelve_operations_or_their_number_may_stand_for_more(tmp_path: Path) -> None:
    formula = "( not " * 14 + "a" + " )" * 14
    path = tmp_path / "pairs.tsv"
    path.write_text(f"12\t=\ta\t{formula}\n14\t=\ta\t{formula}\n")
    assert read_logic(path).operations.tolist() == [12, 12]
    for wrong in (11, 13, 15):
        path.write_text(f"{wrong}\t=\ta\t{formula}\n")
        with pytest.raises(ParseError, match=f"'{wrong}' is said to be the number of operations, which is 14"):
            read_logic(path)


@pytest.mark.parametrize(
    "number", ['"operations": null, "n_ops": 1', '"operations": " ", "n_ops": "1"', '"n_ops": 1.0']
)
def test_the_first_number_of_operations_that_a_record_says_is_checked(tmp_path: Path, number: str) -> None:
    path = tmp_path / "pairs.jsonl"
    sides = '"label": "<", "left": "( a ( and b ) )", "right": "a"'
    path.write_text(f"{{{sides}, {number}}}\n")
    assert read_logic(path).operations.tolist() == [1]
    path.write_text(f"{{{sides}, {number.replace('1', '5')}}}\n")
    with pytest.raises(ParseError, match=r"line 1, .*'5' is said to be the number of operations, which is 1"):
        read_logic(path)
    path.write_text(f"{{{sides}, {number.replace('1', '1.5').replace('5.0', '5')}}}\n")
    with pytest.raises(ParseError, match=r"'1.5' is no number of operations; expected a whole number, or an empty"):
        read_logic(path)
