from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markdown_pages import table_below

from treemem.errors import RecipeError
from treemem.metrics.score import Score
from treemem.records import write_records
from treemem.runs import TrainingOptions, score_row
from treemem.tasks.listops import ListOps
from treemem.tasks.sequence_results import sequence_section
from treemem.tasks.sequence_study import BASELINES, tree_page_name

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
        "run": f"small/{network}/seed-{seed}",
        "row": network,
        "network": {"network": "LSTM", "options": {"hidden_size": 4 + number}},
        "training": {"seed": seed},
        "data": {"hash": "abc"},
        "weights": f"of {network}, {seed}",
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
    weights = {f"seed {seed}": f"of {network}, {seed}" for seed in seeds}
    return {"network": network, "weights": weights, "groups": groups}


def section(folder: Path, *records: dict[str, Any]) -> str:
    return sequence_section(list(records), folder, folder, ListOps, "the command", "About the data.")


@pytest.fixture
def text(tmp_path: Path) -> str:
    """A section of one network of two seeds and one of one, whose trees were drawn."""
    write_records(tmp_path / "small-trees.jsonl", [tree_record("A", (1, 3)), tree_record("B", (1,))])
    for network in NETWORKS:
        (tmp_path / tree_page_name("listops", network)).touch()
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


def test_a_page_of_trees_that_is_not_there_is_not_linked(tmp_path: Path) -> None:
    write_records(tmp_path / "small-trees.jsonl", [tree_record("A", (1, 3)), tree_record("B", (1, 3))])
    (tmp_path / "listops_b_trees.html").touch()
    runs = [record(network, seed) for seed in (1, 3) for network in NETWORKS]
    assert "every run has the right answer: [B](listops_b_trees.html)." in section(tmp_path, *runs)
    (tmp_path / "listops_b_trees.html").unlink()
    text = section(tmp_path, *runs)
    assert "trees that they find" in text
    assert "every run has the right answer" not in text


def test_trees_of_some_of_the_runs_alone_are_left_out(tmp_path: Path) -> None:
    write_records(tmp_path / "small-trees.jsonl", [tree_record("A", (1,)), tree_record("B", (1,))])
    _, *rows = table_below(section(tmp_path, record("A", 1), record("B", 1), record("A", 3)), "### The trees that")
    assert "B" in {row[0] for row in rows}
    assert "A" not in {row[0] for row in rows}


def test_trees_of_other_weights_than_those_of_the_runs_are_left_out(tmp_path: Path) -> None:
    write_records(tmp_path / "small-trees.jsonl", [tree_record("A", (1, 3)), tree_record("B", (1,))])
    text = section(tmp_path, record("A", 1), record("B", 1), {**record("A", 3), "weights": "of a run made anew"})
    _, *rows = table_below(text, "### The trees that they find")
    assert "B" in {row[0] for row in rows}
    assert "A" not in {row[0] for row in rows}


def test_the_section_says_what_was_run_on_which_data_and_how_long_it_took(text: str) -> None:
    joined = " ".join(text.split())
    assert (
        "About the data. Settings stand in the records; they are those of the recipe `listops/small` when it was run."
        in joined
    )
    assert "Command: `the command small --processes 2`; 3 runs of the seeds 1, 3, 0.1 hours of training" in joined
    assert "SHA-256 of trees, labels and splits: `abc`." in joined


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_run_that_was_not_scored_on_a_part_is_named(tmp_path: Path, part: str) -> None:
    scores = {name: own for name, own in record("A", 3)["scores"].items() if name != part}
    with pytest.raises(RecipeError, match=f"the record of 'small/A/seed-3' has no scores on '{part}'; remove it"):
        section(tmp_path, record("A", 1), {**record("A", 3), "scores": scores})


def test_runs_of_two_threads_are_made_one_at_a_time(tmp_path: Path) -> None:
    runs = [{**record("A", seed), "training": {"seed": seed, "threads": 2}} for seed in (1, 3)]
    assert "`the command small --processes 1`" in section(tmp_path, *runs)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"training": {"seed": 3, "epochs": 7, "clip": 0.5}}, "with other epochs and clip than 'small/A/seed-1'"),
        ({"network": {"network": "LSTM", "options": {"hidden_size": 9}}}, "with other hidden_size than"),
        ({"network": {"network": "RNN", "options": {"hidden_size": 4}}}, "with other network"),
        ({"task": {"dropout": 0.9}}, r"with other task_options\.dropout than"),
    ],
)
def test_runs_that_were_made_otherwise_than_the_first_are_refused(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RecipeError, match=f"the run 'small/A/seed-3' was trained {problem}"):
        section(tmp_path, record("A", 1), record("B", 1), {**record("A", 3), **changed})


def test_an_option_that_a_record_lacks_was_at_its_default(tmp_path: Path) -> None:
    whole = {
        **record("A", 3),
        "network": {"network": "LSTM", "options": {"hidden_size": 4, "num_layers": 1}},
        "training": {"seed": 3, "epochs": TrainingOptions().epochs},
        "task": ListOps().options,
    }
    assert "2 runs of the seeds 1, 3" in section(tmp_path, record("A", 1), whole)


def test_without_records_of_trees_there_is_no_section_about_them(tmp_path: Path) -> None:
    text = section(tmp_path, record("A", 1))
    assert "Test accuracy by length" in text
    assert "trees that they find" not in text
