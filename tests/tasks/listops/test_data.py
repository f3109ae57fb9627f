from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.records import write_records
from treemem.tasks.listops import ListOps, ListOpsDataOptions, ListOpsDistribution, evaluate_expressions
from treemem.tasks.listops.data import make_listops_data
from treemem.tasks.listops.generation import study_sets
from treemem.tasks.listops.generation.expression_sets import EXTRAPOLATION_SETS, NAMED_SETS, find_set
from treemem.trees import Forest, format_listops
from treemem.trees.formats.listops_arrays import Expressions, expressions_of_forest

SMALL: dict[str, Any] = {"training_size": 300, "validation_size": 50, "test_size": 60, "pool": 500}


def made(**options: Any) -> Forest:
    return make_listops_data(ListOpsDataOptions(**{**SMALL, **options})).forest


def expressions_of(forest: Forest, **chosen: str) -> Expressions:
    """The expressions whose ``split`` or ``set`` is the given one."""
    keep = np.all([forest.tree_data[name] == value for name, value in chosen.items()], axis=0)
    return expressions_of_forest(forest[keep].with_data())


def write(path: Path, expressions: Expressions) -> None:
    forest = expressions.forest()
    rows = zip(evaluate_expressions(forest).tolist(), forest, strict=True)
    write_records(path, ({"label": label, "tree": format_listops(tree, brackets=True)} for label, tree in rows))


def test_splits_have_their_sizes_and_no_expression_in_common() -> None:
    forest = made(test_sets=["iid", "31-50", "length 4"])  # the shortest, of which there are 400
    sets = list(zip(forest.tree_data["split"].tolist(), forest.tree_data["set"].tolist(), strict=True))
    assert [sets.count(each) for each in dict.fromkeys(sets)] == [300, 50, 60, 60, 60]
    assert list(dict.fromkeys(sets)) == [
        ("train", "training"), ("validation", "iid"), ("test", "iid"), ("test", "31-50"), ("test", "length 4"),
    ]  # fmt: skip
    spellings = expressions_of_forest(forest.with_data()).spellings()
    assert len(set(spellings)) == len(spellings) == 530


def test_labels_are_what_the_expressions_come_to_in_both_forms() -> None:
    options = ListOpsDataOptions(**SMALL)
    binary, nary = (make_listops_data(options, form).forest for form in ("binary", "nary"))  # type: ignore[arg-type]
    assert binary.tree_data["label"].tolist() == evaluate_expressions(nary.with_data()).tolist()
    assert [format_listops(tree) for tree in binary] == [format_listops(tree) for tree in nary]


def test_the_default_training_expressions_have_12_tokens_or_more_on_average() -> None:
    length = expressions_of(make_listops_data(ListOpsDataOptions(training_size=5000)).forest, split="train").length()
    assert length.mean() >= 12
    assert length.max() <= 30
    assert length.min() >= 4  # no bare digit


def test_named_sets_are_what_they_say() -> None:
    for name in ("31-50", *EXTRAPOLATION_SETS[::3]):
        first, last = map(int, name.split("-"))
        length = expressions_of(made(test_sets=[name], test_size=20), set=name).length()
        assert first <= length.min() <= length.max() <= last
    forest = made(test_sets=["10 arguments"], test_size=20)
    wide = expressions_of(forest, set="10 arguments")
    assert wide.forest("nary").arity.max() in range(6, 11)
    assert wide.depth().max() <= 8
    assert wide.length().min() >= 100


def test_the_split_by_depth_trains_on_shallow_and_tests_on_deep_expressions() -> None:
    forest = made(min_length=20, max_length=100, max_depth=5, validation_set="depth 7", test_sets=["deeper"])
    depth = {split: expressions_of(forest, split=split).depth() for split in ("train", "validation", "test")}
    assert depth["train"].max() == 5
    assert set(depth["validation"].tolist()) == {7}
    assert set(depth["test"].tolist()) == {8, 9}


def test_sets_named_by_published_lengths_leave_both_ends_out() -> None:
    assert len(EXTRAPOLATION_SETS) == 8
    for name in EXTRAPOLATION_SETS:
        first, last = map(int, name.split("-"))
        found = find_set(name, ListOpsDistribution())
        assert (found.min_length, found.max_length) == (first + 1, last - 1)
    for name in NAMED_SETS:
        find_set(name, ListOpsDataOptions().distribution)


def test_a_data_set_of_a_study_has_labelled_expressions_of_its_set() -> None:
    forest = study_sets.expressions_of("10 arguments", 20, seed=1)
    found = expressions_of_forest(forest.with_data())
    assert len(set(found.spellings())) == 20
    assert ((found.length() >= 100) & (found.length() <= 1000)).all()
    assert 5 < found.forest("nary").arity.max() <= 10
    assert forest.tree_data["label"].tolist() == evaluate_expressions(forest).tolist()


def test_a_data_set_may_have_fewer_training_examples() -> None:
    split = np.array(["train", "test", "train", "validation", "train"])
    forest = study_sets.expressions_of("10 arguments", 5, seed=1).with_data(tree_data={"split": split})
    fewer = study_sets.with_fewer_examples(forest, 2)
    assert fewer.tree_data["split"].tolist() == ["train", "test", "train", "validation"]
    assert fewer == forest[:4]
    with pytest.raises(RecipeError, match="there are 3 training examples, fewer than 4"):
        study_sets.with_fewer_examples(forest, 4)


@pytest.mark.parametrize("name", ["", "31-5", "length", "length 5-", "arguments 2-3", "width 3", "depth 2 depth 3"])
def test_other_sets_are_refused(name: str) -> None:
    with pytest.raises(RecipeError, match=r"no set .* write such as 'length 31-50"):
        ListOpsDataOptions(test_sets=[name])


def test_longer_training_expressions_are_left_out_where_that_is_asked_for() -> None:
    options = {"max_length": 100, "pool": 400, "training_length": 20}
    forest = made(**options)
    train, test = (expressions_of(forest, split=split) for split in ("train", "test"))
    assert len(train) < 300
    assert train.length().max() <= 20 < test.length().max()
    whole = expressions_of(made(**{**options, "training_length": None}), split="train")
    kept = [spelling for spelling, length in zip(whole.spellings(), whole.length(), strict=True) if length <= 20]
    assert train.spellings() == kept
    assert 20 in train.length()
    card = make_listops_data(ListOpsDataOptions(**{**SMALL, **options})).card
    assert f"{300 - len(train)} training expressions of over 20 tokens are left out" in card


def test_files_take_the_place_of_generated_sets(tmp_path: Path) -> None:
    generated = made()
    paths = {split: tmp_path / f"{split}.tsv.gz" for split in ("train", "validation", "test")}
    for split, path in paths.items():
        write(path, expressions_of(generated, split=split))
    forest = made(
        training_file=str(paths["train"]), validation_file=str(paths["validation"]), test_file=str(paths["test"])
    )
    for split in paths:
        ours, theirs = (expressions_of(each, split=split).spellings() for each in (forest, generated))
        assert sorted(ours) == sorted(theirs)
    held_out = made(training_file=str(paths["train"]), training_size=None, test_sets=["iid", "31-50"])
    assert [(held_out.tree_data["set"] == name).sum() for name in ("training", "iid", "31-50")] == [190, 110, 60]
    train_and_iid = expressions_of_forest(held_out[held_out.tree_data["set"] != "31-50"].with_data()).spellings()
    assert sorted(train_and_iid) == sorted(expressions_of(generated, split="train").spellings())


@pytest.mark.parametrize("option", ["training_file", "validation_file", "test_file"])
def test_a_file_with_expressions_of_another_split_is_refused(tmp_path: Path, option: str) -> None:
    path, (lists, task) = tmp_path / "lists.jsonl", (made(), ListOps())
    write_records(path, task.records_of(lists))
    own = option.removesuffix("_file").removesuffix("ing")
    others = {"train": 110, "validation": 360, "test": 350}[own]
    problem = rf"data\.{option} is .*lists\.jsonl, and {others} of its 410 expressions are not of the split {own}: line"
    with pytest.raises(RecipeError, match=problem):
        made(**{option: str(path)})
    write_records(path, task.records_of(lists[lists.tree_data["split"] == own]))
    found = made(**{option: str(path), "training_size": 190})
    spellings = expressions_of(found, split=own).spellings()
    assert set(spellings) <= set(expressions_of(lists, split=own).spellings())
    assert len(spellings) == {"train": 190, "validation": 50, "test": 60}[own]


def test_generated_expressions_avoid_those_of_the_files(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_length": 4, "training_size": 200, "validation_size": 50, "pool": 0}
    path = tmp_path / "test.tsv"
    test = expressions_of(made(**options, test_size=150), split="test")
    write(path, test)
    forest = made(**options, test_file=str(path))
    train = expressions_of(forest, split="train")
    assert len(train) == 200
    assert not set(train.spellings()) & set(test.spellings())


def test_a_training_size_takes_so_many_of_a_training_file_as_the_seed_shuffles_them(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    write(path, expressions_of(made(), split="train"))
    options: dict[str, Any] = {"training_file": str(path), "validation_size": 20, "test_size": 30}
    all_of_it, some, others = (
        expressions_of(made(**options, training_size=size, seed=seed), split="train").spellings()
        for size, seed in ((None, 1), (40, 1), (40, 2))
    )
    assert (len(all_of_it), len(some), len(others)) == (250, 40, 40)
    assert some == all_of_it[:40]
    assert sorted(some) != sorted(others)
    made(**options, training_size=250)
    with pytest.raises(RecipeError, match=r"leaves 250, and data.training_size is 251; data.training_size=null takes"):
        made(**options, training_size=251)


def test_a_warning_counts_the_training_expressions_that_are_tested_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("9\t[MAX 2 9 ]\n9\t[MAX 9 2 ]\n2\t[MIN 9 2 ]\n")
    test.write_text("9\t( ( ( [MAX 2 ) 9 ) ] )\n3\t[MIN 3 9 ]\n")
    options: dict[str, Any] = {"training_size": None, "training_file": str(train), "validation_set": "31-50"}
    data = make_listops_data(ListOpsDataOptions(**{**SMALL, **options}, test_file=str(test)))
    assert f"1 of the 3 expressions taken from {train} stand in the files to validate and test with" in caplog.text
    assert "1 of those held out or taken stand in the other files too" in data.card
    caplog.clear()
    test.write_text("3\t[MIN 3 9 ]\n")
    made(**options, test_file=str(test))
    assert not caplog.records


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"training_size": 0}, "data.training_size must be at least 1, not 0"),
        ({"test_sets": ["iid", "iid"]}, "data.test_sets names a set twice: iid, iid"),
        (
            {"validation_set": "31-50", "validation_file": "own.tsv"},
            "data.validation_set is '31-50', and data.validation_file names .*choose one",
        ),
        ({"max_length": 4}, "410 different expressions were asked for"),
        ({"test_sets": ["deeper"]}, "the set 'deeper': 60 different expressions .* less rare in .*max_length=30"),
        ({"training_length": 3}, "data.training_length is 3, and every training expression is longer"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        made(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"test_sets": ["length 2-3"]}, "the set 'length 2-3': no expression has 2 to 3 tokens"),
        ({"validation_set": "length 201-299 depth 1-2"}, "1-2': no expression has 201 to 299 tokens with at most 2"),
        ({"test_sets": ["deeper"], "max_length": 24}, "'deeper': no expression of at most 24 tokens is 8 lists deep"),
    ],
)
def test_a_set_without_expressions_is_named_before_any_is_drawn(
    options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treemem.tasks.listops.data.draw_distinct", None)
    with pytest.raises(RecipeError, match=problem):
        made(**options)


def test_the_shortest_expression_of_a_depth_can_be_drawn() -> None:
    forest = made(test_sets=["depth 3 length 10"], test_size=1)
    assert expressions_of(forest, set="depth 3 length 10").depth().tolist() == [3]


def test_a_file_with_too_few_expressions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("9\t[MAX 2 9 ]\n")
    with pytest.raises(RecipeError, match=r"holds 1 different expressions .* 110 of them .* leaves 0; ask for fewer"):
        made(training_file=str(path))
    with pytest.raises(RecipeError, match=r"110 of them .* leaves 0; ask for fewer"):
        made(training_file=str(path), training_size=None)
    path.write_text("\n")
    with pytest.raises(RecipeError, match="there are no expressions in"):
        made(test_file=str(path))
