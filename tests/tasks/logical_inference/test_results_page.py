from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from markdown_pages import table_below

from treemem.errors import RecipeError
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.records import write_records
from treemem.runs import StudyRun, packed_answers, score_row
from treemem.tasks.logical_inference import LogicalInference
from treemem.tasks.logical_inference.results_page import write_page
from treemem.tasks.logical_inference.studies import (
    ALL_PAIRS,
    GOLD_TREES,
    HELD_OUT,
    SEEDS,
    gold_tree_runs,
    held_out_runs,
    longer_runs,
)
from treemem.tasks.sequence_study import small_recipe, small_runs

DATA = (ALL_PAIRS, *HELD_OUT)
OPERATIONS = range(13)
LEARNED = [Score(5, 300, 0.5, 0.5), Score("all", 700, 0.5, 0.5)]


def all_runs() -> list[StudyRun]:
    return gold_tree_runs() + held_out_runs()


def parts_of(run: StudyRun) -> tuple[int, int, int]:
    """The numbers of network, data and seed."""
    name, data = run.row.rsplit(", ", 1)
    return GOLD_TREES.index(name), DATA.index(data), SEEDS.index(run.training.seed)


def accuracy(network: int, data: int, operations: int, seed: int = 1) -> float:
    """No two arguments have the same; the mean over the three seeds is what the second one has."""
    return 0.2 + 0.15 * network + 0.031 * data + 0.0071 * operations + 0.001 * (seed - 1)


def examples(operations: int) -> int:
    return 100 + 3 * operations**2


def record(run: StudyRun, right: str = "1111") -> dict[str, Any]:
    network, data, seed = parts_of(run)
    scores = [
        Score(group, examples(group), accuracy(network, data, group, seed), 0.4 + 0.01 * group) for group in OPERATIONS
    ]
    scores.append(Score("all", 5000, accuracy(network, data, 50, seed), 0.3))
    return {
        "run": run.name,
        "row": run.row,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"name": run.data, "hash": run.data * 64},
        "weights": f"of {run.name}",
        "parameters": 1234,
        "seconds": 3600.0,
        "scores": {
            **{
                part: [score_row(run.row, score, "operations") for score in LEARNED] for part in ("train", "validation")
            },
            "test": [score_row(run.row, score, "operations") for score in scores],
        },
        "right": {"test": packed_answers(np.array([answer == "1" for answer in right]))},
    }


RIGHT = dict(zip(GOLD_TREES, ("1000", "1110", "0000", "1001"), strict=True))
PUBLISHED = {
    "Tree-RNN": ["98", "98", "97", "96", "95", "96"],
    "Tree-LSTM": ["94", "92", "92", "88", "87", "86"],
    "TreeCell": ["98", "96", "96", "95", "93", "92"],
}
PUBLISHED_HELD_OUT = {"Tree-RNN": ["94", "92", "86"], "Tree-LSTM": ["91", "84", "76"], "TreeCell": ["95", "95", "90"]}


def page_of(folder: Path, runs: Iterable[StudyRun]) -> str:
    by_study: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_study.setdefault(run.name.partition("/")[0], []).append(record(run, RIGHT[run.row.rsplit(", ", 1)[0]]))
    for study, records in by_study.items():
        write_records(folder / f"{study}.jsonl", records)
    write_page(folder, folder / "page.md")
    return (folder / "page.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of all runs of the study over given trees."""
    return page_of(tmp_path_factory.mktemp("page"), all_runs())


def mean(value: float) -> str:
    return f"{100 * value:.2f} ± 0.10"


def test_runs_over_given_trees_are_a_row_a_network_and_data_with_each_seed() -> None:
    runs = all_runs()
    assert len({run.name for run in runs}) == len(runs) == len(GOLD_TREES) * len(DATA) * len(SEEDS)
    for study, its_runs in (("gold-trees", gold_tree_runs()), ("gold-trees-held-out", held_out_runs())):
        assert all(run.name == f"{study}/{run.row}/seed-{run.training.seed}" for run in its_runs)
        assert {run.training.seed for run in its_runs[: len(its_runs) // 3]} == {SEEDS[0]}, "a whole table first"
    assert {(run.row, run.data, run.training.seed) for run in runs} == {
        (f"{name}, {data}", data, seed) for name in GOLD_TREES for data in DATA for seed in SEEDS
    }
    with torch.device("meta"):
        for run in runs[: len(GOLD_TREES)]:
            model = Model(LogicalInference(), run.network)
            assert run.network.network == LogicalInference.networks[run.row.rsplit(", ", 1)[0]].network
            assert model.encoder.hidden_size == 100


def test_a_network_that_was_trained_longer_has_a_table_of_its_own(tmp_path: Path) -> None:
    text = page_of(tmp_path, [*gold_tree_runs(), *longer_runs()])
    assert "for 60 epochs, at a rate from 0.003 down" in text
    _, _, ours, published, _ = table_below(text, "### Trained longer")
    assert ours[:2] == ["Tree-RNN", mean(accuracy(0, 0, 1))]
    assert published[7:13] == PUBLISHED["Tree-RNN"]


def test_the_published_row_stands_under_ours_by_number_of_operations(text: str) -> None:
    head, majority, *rows, pairs = table_below(text, "### By number of operations")
    assert head == ["network", *map(str, range(1, 13)), "7-12"]
    assert majority == ["majority class", *(f"{40 + operations}.00" for operations in range(1, 13)), ""]
    expected = []
    for network, name in enumerate(GOLD_TREES):
        beyond = range(7, 13)
        weights = [examples(operations) for operations in beyond]
        of_all = np.average([accuracy(network, 0, operations) for operations in beyond], weights=weights)
        own = [mean(accuracy(network, 0, operations)) for operations in range(1, 13)]
        expected.append([name, *own, mean(float(of_all))])
        if name in PUBLISHED:
            expected.append(["_published_", *[""] * 6, *PUBLISHED[name], ""])
    assert rows == expected
    assert pairs == ["pairs", *(str(examples(operations)) for operations in range(1, 13)), ""]


@pytest.mark.parametrize(("greatest", "beyond"), [(11, True), (6, False)])
def test_numbers_of_operations_that_no_run_was_scored_on_have_no_column(
    tmp_path: Path, greatest: int, beyond: bool
) -> None:
    records = [record(run) for run in gold_tree_runs()]
    for each in records:
        rows = each["scores"]["test"]
        each["scores"]["test"] = [row for row in rows if row["operations"] in ("all", *range(greatest + 1))]
    write_records(tmp_path / "gold-trees.jsonl", records)
    write_page(tmp_path, tmp_path / "page.md")
    head, _, ours, *_ = table_below((tmp_path / "page.md").read_text(encoding="utf-8"), "### By number of operations")
    assert head == ["network", *map(str, range(1, greatest + 1)), "7-12"]
    assert bool(ours[-1]) == beyond


def test_the_published_figure_stands_beside_ours_where_subtrees_were_kept_from_training(text: str) -> None:
    head, *rows = table_below(text, "### With subtrees kept from training")
    assert head == ["network", "A, ours", "A, published", "B, ours", "B, published", "C, ours", "C, published"]
    for network, (name, row) in enumerate(zip(GOLD_TREES, rows, strict=True)):
        assert row[0] == name
        assert row[1::2] == [mean(accuracy(network, data, 50)) for data in (1, 2, 3)]
        assert row[2::2] == PUBLISHED_HELD_OUT.get(name, [""] * 3)


def test_networks_are_compared_with_tree_rnn_on_all_pairs_alone(text: str) -> None:
    _, *rows = table_below(text, "### Against Tree-RNN, pair by pair")
    assert [[row[0], row[1], *row[3:5]] for row in rows] == [
        [GOLD_TREES[1], "+50.00", "6", "0"],
        [GOLD_TREES[2], "-25.00", "0", "3"],
        [GOLD_TREES[3], "+25.00", "3", "0"],
    ]
    assert all(len(row[5].split(", ")) == 3 for row in rows), "a p of each seed"


def test_published_figures_of_sequence_networks_stand_last(text: str) -> None:
    heading = "## Published figures of sequence networks"
    head, *rows = table_below(text, heading)
    assert head == ["network", *map(str, range(7, 13)), *HELD_OUT]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["Ordered Memory"] == [
        "98 ± 0.0", "97 ± 0.4", "96 ± 0.5", "94 ± 0.8", "93 ± 0.5", "92 ± 1.1", "94", "91", "81",
    ]  # fmt: skip
    assert cells["RRNet"] == ["84", "81", "78", "74", "72", "71", "", "", ""]
    assert len(cells) == len(rows) == 7
    assert not cells.keys() & set(GOLD_TREES)
    last = " ".join(text.split(heading)[1].split())
    assert "the trees of Ordered Memory have a parsing F1 of 84.3 ± 14.4." in last
    assert "##" not in last


def test_the_page_says_what_was_run_on_which_data(text: str) -> None:
    joined = " ".join(text.split())
    assert "12 runs of the seeds 1111, 2222, 3333, 12.0 hours of training" in joined
    assert "36 runs of the seeds 1111, 2222, 3333, 36.0 hours of training" in joined
    for data in DATA:
        assert f"{data} `{(data * 64)[:16]}`" in joined
    assert "published pairs of at most 5 operations and are tested on pairs of up to 12." in joined
    assert "1,400 pairs of at most 5 operations every tenth validates" in joined
    assert "20 epochs of Adam, batches of 128, rate 0.003 falling as half a cosine wave, L2 of 1e-05" in joined
    assert "![Accuracy by number of operations](logical_inference_gold_trees.svg)" in joined
    assert "## The small recipe" not in joined


def test_runs_over_given_trees_that_were_trained_otherwise_are_refused(tmp_path: Path) -> None:
    first, second, *_ = gold_tree_runs()
    other = dataclasses.replace(second, training=dataclasses.replace(second.training, epochs=3, clip=0.5))
    with pytest.raises(
        RecipeError, match=f"'{second.name}' was trained with other epochs and clip than '{first.name}'"
    ):
        page_of(tmp_path, [first, other])


def test_runs_of_a_systematic_split_that_were_made_otherwise_are_refused(tmp_path: Path) -> None:
    first, second, *_ = held_out_runs()
    other = dataclasses.replace(second, training=dataclasses.replace(second.training, epochs=3))
    with pytest.raises(RecipeError, match=f"'{second.name}' was trained with other epochs than '{first.name}'"):
        page_of(tmp_path, [first, other])
    again = next(run for run in held_out_runs() if run.row == first.row and run.training.seed != first.training.seed)
    with pytest.raises(RecipeError, match=f"'{again.name}' was trained with other hidden_size than '{first.name}'"):
        page_of(tmp_path, [first, dataclasses.replace(again, network=again.network.replace(hidden_size=3))])


@pytest.mark.parametrize("runs", [longer_runs, held_out_runs])
def test_runs_on_other_data_of_the_same_name_are_refused(tmp_path: Path, runs: Callable[[], list[StudyRun]]) -> None:
    first, *others = runs()
    second = next(run for run in others if run.data == first.data)
    changed = {**record(second), "data": {"name": second.data, "hash": "of other pairs"}}
    write_records(tmp_path / f"{first.name.partition('/')[0]}.jsonl", [record(first), changed])
    problem = f"'{second.name}' is of other data than the first one on '{first.data}'"
    with pytest.raises(RecipeError, match=problem):
        write_page(tmp_path, tmp_path / "page.md")


def test_what_was_not_run_yet_is_left_out_or_empty(tmp_path: Path) -> None:
    runs = [run for run in all_runs() if run.row in ("Tree-LSTM, all", "Tree-LSTM, B", "TreeCell, all")]
    text = page_of(tmp_path, [run for run in runs if run.training.seed == SEEDS[1]])
    _, _, *rows, _ = table_below(text, "### By number of operations")
    assert [row[0] for row in rows] == ["Tree-LSTM", "_published_", "TreeCell", "_published_"]
    assert rows[0][1] == f"{100 * accuracy(1, 0, 1):.2f}", "one seed has no deviation"
    _, *rows = table_below(text, "### With subtrees kept from training")
    assert rows[0] == ["Tree-RNN", "", "94", "", "92", "", "86"]
    assert rows[1] == ["Tree-LSTM", "", "91", f"{100 * accuracy(1, 2, 50):.2f}", "84", "", "76"]
    assert "McNemar's p by seed" not in text
    assert (tmp_path / "logical_inference_gold_trees.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_the_small_recipe_has_a_section_of_its_own(tmp_path: Path) -> None:
    recipe = small_recipe("logical_inference")
    records = []
    for place, run in enumerate(small_runs(recipe)):
        scores = [
            score_row(run.row, Score(group, 10, 0.5 + 0.01 * place, 0.25), "operations") for group in (5, 6, "all")
        ]
        train = [score_row(run.row, Score(group, 123, 0.9, 0.25), "operations") for group in (0, 3, "all")]
        records.append(
            {
                "row": run.row,
                "network": dataclasses.asdict(run.network),
                "training": dataclasses.asdict(run.training),
                "data": {"hash": "abc"},
                "weights": f"of {run.name}",
                "parameters": 1,
                "seconds": 60.0,
                "scores": {"train": train, "validation": scores, "test": scores},
            }
        )
    write_records(tmp_path / "small.jsonl", records)
    write_page(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    head, majority, *rows, _ = table_below(text, "Test accuracy by operations:")
    assert head == ["network", "operations 5", "operations 6", "all"]
    assert [row[0] for row in rows] == list(recipe.networks)
    assert rows[0][1] == "55.00 ± 5.00", "the first network's runs are the 1st, 6th and 11th"
    assert majority[1] == "25.00"
    joined = " ".join(text.split())
    assert "brackets of 123 pairs of at most 3 operations, and are tested on 10 of up to 6." in joined
    assert "Command: `python -m treemem.tasks.logical_inference.reproduce small --processes 2`; 15 runs" in joined
    assert "## Over the given trees" not in joined
