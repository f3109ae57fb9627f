"""How the rows of a table are divided: by class, by group, and with equal trees together."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.table import TableDataOptions, task_from_table


def divided(table: list[dict[str, Any]], target: Any = "class", **options: Any) -> tuple[list[str], str]:
    """Return the split of each row and the card of the data."""
    of_data = {name: options.pop(name) for name in list(options) if name in TableDataOptions.__dataclass_fields__}
    task = task_from_table(table, tree="tree", target=target, **options)
    data = task.make_data(TableDataOptions(**of_data))
    return data.forest.tree_data["split"].tolist(), data.card


def rows(count: int = 200) -> list[dict[str, Any]]:
    """Rows of different trees, of which one in ten is rare, of persons with ten rows each."""
    return [
        {
            "tree": f"(f {'g' * (row % 7 + 1)} (h {row // 7 % 9} {row // 63}))",
            "class": "rare" if row % 10 == 0 else "usual",
            "also": row % 2,
            "has": int(row % 10 == 0),
            "person": f"p{row // 10}",
            "size": row + 0.5,
        }
        for row in range(count)
    ]


def test_rows_of_different_trees_are_drawn_one_by_one() -> None:
    split, card = divided(rows(), seed=4)
    order = np.random.default_rng(4).permutation(200)
    assert {split[row] for row in order[:20]} == {"test"}
    assert {split[row] for row in order[20:40]} == {"validation"}
    assert Counter(split) == {"train": 160, "validation": 20, "test": 20}
    assert "160 rows for training, 20 for validation, 20 for test." in card


def test_rows_with_equal_trees_stay_in_one_split_unless_they_may_not() -> None:
    table = rows(100) + [{**row, "class": "usual"} for row in rows(100)]
    split, card = divided(table)
    assert split[:100] == split[100:]
    assert Counter(split) == {"train": 160, "validation": 20, "test": 20}
    assert "200 rows stay with others of the same tree or group" in card
    apart, _ = divided(table, duplicates_together=False)
    assert apart[:100] != apart[100:]
    many, card = divided([*rows(70), *[{**rows()[0], "class": "usual"}] * 31], validation=0.2, test=0.2)
    assert set(many[70:]) == {many[0]} == {"train"}, "more rows than validation or test take"
    assert Counter(many) == {"train": 61, "validation": 20, "test": 20}


def test_trees_with_other_numbers_are_other_trees() -> None:
    table = [{"tree": f"(f {row % 50} x)", "class": row % 2} for row in range(100)]
    _, card = divided(table, number="N", duplicates_together=True)
    assert "80 rows for training, 10 for validation, 10 for test. 100 rows stay with others" in card
    split, card = divided(table[:50], number="N")
    assert Counter(split) == {"train": 40, "validation": 5, "test": 5}
    assert "stay with others" not in card


def test_repeated_trees_are_as_frequent_in_each_split_as_in_the_table() -> None:
    table = [*rows(600), *[row for row in rows(800)[600:] for _ in range(3)]]
    shares = {"train": 0.0, "validation": 0.0, "test": 0.0}
    for seed in range(12):
        split = np.array(divided(table, seed=seed)[0])
        for name in shares:
            shares[name] += float((np.flatnonzero(split == name) >= 600).mean()) / 12
    assert all(share == pytest.approx(0.5, abs=0.05) for share in shares.values()), shares


def test_validation_and_test_have_the_rows_of_whole_trees() -> None:
    table = [row for row in rows(20) for _ in range(8)]
    split, card = divided(table, test=0.12)
    assert Counter(split) == {"train": 128, "validation": 16, "test": 16}
    assert "16 for validation, 16 for test; the shares are 16 and 19" in card
    few, _ = divided([row for row in rows(4) for _ in range(50)])
    assert Counter(few) == {"train": 100, "validation": 50, "test": 50}, "and more if they would have no row"
    two, card = divided([row for row in rows(2) for _ in range(50)])
    assert Counter(two) == {"train": 80, "validation": 10, "test": 10}, "as if equal trees need not stay together"
    assert "Equal trees are in several splits, since there are too few different ones." in card
    with pytest.raises(RecipeError, match="no row is left for validation, since there are too few groups"):
        divided(rows(20), group_column="person")


def test_each_class_has_its_shares_if_the_division_is_stratified() -> None:
    split, _ = divided(rows(), stratified=True)
    of_rare = Counter(split[::10])
    assert of_rare == {"train": 16, "validation": 2, "test": 2}
    of_labels, _ = divided(rows(), ["also", "has"], stratified=True)
    assert Counter(of_labels[::10]) == {"train": 16, "validation": 2, "test": 2}
    assert Counter(of_labels[1::2]) == {"train": 80, "validation": 10, "test": 10}
    with pytest.raises(RecipeError, match=r"data.stratified is for classes and labels; leave it out"):
        divided(rows(), "size", stratified=True)
    with pytest.raises(RecipeError, match=r"data.stratified has no effect, since the table has a column 'split'"):
        divided([{**row, "split": "train"} for row in rows()], stratified=True)


def test_rare_classes_are_in_a_stratified_test_as_often_as_their_rows_say() -> None:
    table = [{"tree": f"(f {row})", "class": f"rare {row // 4}" if row < 80 else "usual"} for row in range(180)]
    split, card = divided(table, stratified=True)
    assert "144 rows for training, 18 for validation, 18 for test." in card
    rare = Counter(split[:80])
    assert (rare["test"], rare["validation"]) == (8, 8)
    assert (
        max(Counter(row["class"] for row, name in zip(table[:80], split, strict=False) if name == "test").values()) == 1
    )


def test_a_group_stays_in_one_split_also_through_equal_trees() -> None:
    table = rows()
    table[15] = {**table[15], "tree": table[5]["tree"]}  # the first two persons have a tree in common
    table[199] = {**table[199], "person": None}
    split, card = divided(table, group_column="person", validation=0.2, test=0.2)
    assert all(len(set(split[first : first + 10])) == 1 for first in range(0, 190, 10))
    assert split[0] == split[19]
    assert Counter(split)["test"] in range(30, 41)
    assert "of the same tree or group" in card
    both, _ = divided(table, group_column="person", stratified=True, validation=0.2, test=0.2)
    assert all(len(set(both[first : first + 10])) == 1 for first in range(0, 190, 10))
    with pytest.raises(RecipeError, match="no column 'persn'; did you mean person"):
        divided(table, group_column="persn")


def test_groups_that_equal_trees_join_are_told_apart_from_too_few_groups() -> None:
    table = [{**row, "tree": "(f x)"} if number % 10 == 0 else row for number, row in enumerate(rows())]
    with pytest.raises(
        RecipeError,
        match="the 20 groups have trees in common, which join them to 1: give",
    ):
        divided(table, group_column="person")
    split, _ = divided(table, group_column="person", duplicates_together=False)
    assert Counter(split) == {"train": 160, "validation": 20, "test": 20}


def test_the_card_of_a_divided_table_counts_its_rows() -> None:
    names = ["train"] * 50 + ["validation"] * 6 + ["test"] * 4
    _, card = divided([{**row, "split": name} for row, name in zip(rows(60), names, strict=True)])
    assert "50 rows for training, 6 for validation, 4 for test." in card


def test_classes_that_a_split_does_not_have_are_told(caplog: pytest.LogCaptureFixture) -> None:
    table = [{**row, "split": "train"} for row in rows(60)]
    table[3].update({"class": "once", "split": "test"})
    _, card = divided(table)
    assert "no row for training has the class 'once': it cannot be learned" in caplog.text
    assert "no row for test has the class 'rare', 'usual': scores say nothing about it" in caplog.text
    assert "no row for validation" not in caplog.text, "these data have no validation split"
    assert "Rows of each class:\nonce: 0 train, 1 test\nrare: 6 train, 0 test\nusual: 53 train, 0 test\n" in card
    caplog.clear()
    divided(rows(), stratified=True)
    assert "no row for" not in caplog.text


def test_a_group_of_a_divided_table_is_in_one_split() -> None:
    table = [{**row, "split": "test" if row["person"] == "p3" else "train"} for row in rows()]
    assert Counter(divided(table, group_column="person")[0])["test"] == 10
    table[35]["split"] = "train"
    with pytest.raises(RecipeError, match="row 36: the group 'p3' is in the split 'train', and in 'test' at row 31"):
        divided(table, group_column="person")


def test_known_trees_in_the_test_split_of_a_table_are_told(caplog: pytest.LogCaptureFixture) -> None:
    table = [{**row, "split": "train"} for row in rows(60)] + [{**row, "split": "test"} for row in rows(5)]
    _, card = divided(table)
    assert "Rows with the tree of a training row: 0 for validation, 5 for test." in card
    assert "their scores tell nothing of new trees" in caplog.text


def test_labels_that_occur_once_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    table = [{**row, "split": "train"} for row in rows(60)]
    table[7]["tree"] = "(f once once)"
    table[8].update(tree="(f new h)", split="test")
    with caplog.at_level(logging.WARNING):
        divided(table)
    assert "2 of " in caplog.text
    assert "labels occur in one row, such as 'once', 'new'; 1 labels occur in no training row" in caplog.text
    caplog.clear()
    divided([row for row in table for _ in range(2)])
    assert "occur in one row" not in caplog.text
