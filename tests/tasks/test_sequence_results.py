from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markdown_pages import table_below

from treemem.records import write_records
from treemem.task import Score
from treemem.tasks.sequence_results import sequence_section
from treemem.tasks.sequence_study import BASELINES
from treemem.training import score_row

NETWORKS = ("A", "B")
GROUPS = {10: 3, 20: 7, "all": 10}
PARTS = ("train", "validation", "test")


def accuracy(network: int, part: int, group: int, seed: int) -> float:
    """No two arguments have the same; the mean over the seeds 1 and 3 is what seed 2 would have."""
    return 0.3 * network + 0.1 * part + 0.02 * group + 0.001 * (seed - 2) + 0.05


def record(network: str, seed: int) -> dict[str, Any]:
    number = NETWORKS.index(network)
    scores = {
        part: [
            score_row(network, Score(group, count, accuracy(number, place, row, seed), 0.1 + 0.01 * row), "length")
            for row, (group, count) in enumerate(GROUPS.items())
        ]
        for place, part in enumerate(PARTS)
    }
    return {
        "row": network,
        "training": {"seed": seed},
        "data": {"hash": "abc"},
        "parameters": 12345 + number,
        "seconds": 60.0 * (seed + number),
        "scores": scores,
    }


def f1(network: int, group: int, average: int, seed: int) -> float:
    return 0.4 * network + 0.2 * group + 0.07 * average + 0.001 * (seed - 2) + 0.01


def trivial(group: int, average: int, branching: int) -> float:
    return 0.5 + 0.2 * group + 0.07 * average + 0.013 * branching


def tree_record(network: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    groups = []
    for group, name in enumerate(("short", "long")):
        part: dict[str, Any] = {"group": name, "sentences": 100 + group}
        for place, average in enumerate(("corpus", "sentence")):
            part[average] = {
                "f1": {f"seed {seed}": f1(NETWORKS.index(network), group, place, seed) for seed in seeds},
                "agreement": None if len(seeds) == 1 else 0.9 + 0.01 * group,
                **{branching: trivial(group, place, number) for number, branching in enumerate(BASELINES)},
            }
        groups.append(part)
    return {"network": network, "weights": {f"seed {seed}": "abc" for seed in seeds}, "groups": groups}


def section(folder: Path, *records: dict[str, Any]) -> str:
    return sequence_section(list(records), folder, "listops", "the command", "length", "About the data.")


@pytest.fixture
def text(tmp_path: Path) -> str:
    """A section of one network of two seeds and one of one."""
    write_records(tmp_path / "small-trees.jsonl", [tree_record("A", (1, 3)), tree_record("B", (1,))])
    return section(tmp_path, record("A", 1), record("B", 1), record("A", 3))


def percent(value: float, *, several: bool) -> str:
    return f"{100 * value:.2f}" + (" ± 0.14" if several else "")


def test_each_network_has_its_size_its_minutes_and_its_scores_over_all_groups(text: str) -> None:
    head, *rows = table_below(text, "## The small recipe")
    assert head == ["network", "weights", "minutes a run", "validation", "test"]
    assert rows == [
        ["A", "12,345", "2.0", *(percent(accuracy(0, part, 2, 2), several=True) for part in (1, 2))],
        ["B", "12,346", "2.0", *(percent(accuracy(1, part, 2, 1), several=False) for part in (1, 2))],
    ]


def test_accuracy_by_group_is_that_of_the_test(text: str) -> None:
    head, majority, *rows, examples = table_below(text, "Test accuracy by length:")
    assert head == ["network", "length 10", "length 20", "all"]
    assert majority == ["majority class", "10.00", "11.00", "12.00"]
    assert rows == [
        ["A", *(percent(accuracy(0, 2, group, 2), several=True) for group in range(3))],
        ["B", *(percent(accuracy(1, 2, group, 1), several=False) for group in range(3))],
    ]
    assert examples == ["examples", "3", "7", "10"]


def test_trees_stand_by_group_and_average_with_the_trivial_ones_below_them(text: str) -> None:
    head, *rows = table_below(text, "### The trees that they find")
    assert head == ["trees", "sentences", "number", "average", "F1", "agreement between seeds"]
    expected = []
    for group, name in enumerate(("short", "long")):
        for place, average in enumerate(("corpus", "sentence")):
            about = [name, str(100 + group), average]
            agreement = f"{90 + group}.00"
            expected.append(["A", *about, percent(f1(0, group, place, 2), several=True), agreement])
            expected.append(["B", *about, percent(f1(1, group, place, 1), several=False), ""])
            for number, branching in enumerate(BASELINES):
                expected.append([f"_{branching}_", *about, percent(trivial(group, place, number), several=False), ""])
    assert rows == expected


def test_the_pages_of_trees_of_networks_with_several_seeds_are_linked(text: str) -> None:
    assert "every run has the right answer: [A](listops_a_trees.html)." in text
    assert "listops_b_trees.html" not in text


def test_the_section_says_what_was_run_on_which_data_and_how_long_it_took(text: str) -> None:
    joined = " ".join(text.split())
    assert (
        "About the data. Settings stand in the records; they are those of the recipe `listops/small` when it was run."
        in joined
    )
    assert "Command: `the command small --processes 2`; 3 runs of the seeds 1, 3, 0.1 hours of training" in joined
    assert "SHA-256 of trees, labels and splits: `abc`." in joined


def test_without_records_of_trees_there_is_no_section_about_them(tmp_path: Path) -> None:
    text = section(tmp_path, record("A", 1))
    assert "Test accuracy by length" in text
    assert "trees that they find" not in text
