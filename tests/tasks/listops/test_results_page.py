from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from markdown_pages import table_below

import treemem.tasks.listops
from treemem.errors import RecipeError
from treemem.metrics.score import Score
from treemem.records import write_records
from treemem.runs import StudyRun, score_row
from treemem.tasks.listops.results_page import write_page
from treemem.tasks.sequence_study import small_recipe, small_runs

GROUPS = {10: 100, 50: 300, "all": 400}


def record(run: StudyRun, place: int) -> dict[str, Any]:
    scores = [
        score_row(run.row, Score(group, count, 0.2 + 0.01 * place + 0.001 * row, 0.1), "length")
        for row, (group, count) in enumerate(GROUPS.items())
    ]
    train = [score_row(run.row, Score(group, 7000, 0.9, 0.1), "length") for group in (10, 20, "all")]
    return {
        "row": run.row,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"hash": "abc"},
        "weights": f"of {run.name}",
        "parameters": 1000 + place,
        "seconds": 120.0,
        "scores": {"train": train, "validation": scores[-1:], "test": scores},
    }


def page_of(folder: Path, records: list[dict[str, Any]]) -> str:
    if records:
        write_records(folder / "small.jsonl", records)
    write_page(folder, folder / "page.md")
    return (folder / "page.md").read_text(encoding="utf-8")


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The page of all runs of the small recipe; those of the n-th network are the n-th of each five."""
    return page_of(tmp_path, [record(run, place) for place, run in enumerate(small_runs(small_recipe("listops")))])


def test_scores_by_length_are_those_of_the_records(text: str) -> None:
    head, _, *rows, examples = table_below(text, "Test accuracy by length:")
    assert head == ["network", "length 10", "length 50", "all"]
    networks = list(small_recipe("listops").networks)
    for place, (name, row) in enumerate(zip(networks, rows, strict=True)):
        assert row == [name, *(f"{25 + place + 0.1 * group:.2f} ± 5.00" for group in range(3))]
    assert examples == ["examples", "100", "300", "400"]
    _, first, *_ = table_below(text, "## The small recipe")
    assert first == ["Ordered Memory", "1,000", "2.0", "25.20 ± 5.00", "25.20 ± 5.00"]


def test_the_page_says_what_was_trained_on_and_tested(text: str) -> None:
    joined = " ".join(text.split())
    assert "Networks learn from the tokens of 7,000 expressions of up to 20 tokens, and are tested on 400" in joined
    assert "of up to 50. Of lengths, 10 stands for up to 10 tokens, 20 for 11 to 20" in joined
    command = "`python -m treemem.tasks.listops.reproduce small --processes 1`"
    assert f"Command: {command}; 15 runs" in joined, "runs of two threads"
    assert command in (Path(treemem.tasks.listops.__file__).parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("changed", ["hash", "examples"])
def test_records_of_other_data_are_refused(tmp_path: Path, changed: str) -> None:
    first, second, *_ = (record(run, place) for place, run in enumerate(small_runs(small_recipe("listops"))))
    if changed == "hash":
        second["data"] = {"hash": "def"}
    else:
        second["scores"]["test"][0]["examples"] += 1
    with pytest.raises(RecipeError, match="the runs 'Ordered Memory' and 'ON-LSTM' are of other data"):
        page_of(tmp_path, [first, second])


def test_published_figures_stand_in_a_table_of_their_own_and_last(text: str) -> None:
    head, *rows = table_below(text, "## Published figures")
    assert head == ["network", "accuracy", "parsing f1"]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["Ordered Memory"] == ["99.97 ± 0.014", "100"]
    assert cells["LSTM"] == ["71.5 ± 1.5", ""]
    assert cells["RL-SPINN"] == ["60.7 ± 2.6", "71.1"]
    assert cells["Ordered Memory, Tree-RNN cell"] == ["63.1", ""]
    assert len(cells) == len(rows) == 8
    joined = " ".join(text.split())
    assert "has those of LSTM, RL-SPINN and Gumbel Tree-LSTM from Nangia & Bowman 2018." in joined
    assert text.index("## The small recipe") < text.index("## Published figures")


def test_without_records_there_are_the_published_figures_alone(tmp_path: Path) -> None:
    text = page_of(tmp_path, [])
    assert "## Published figures" in text
    assert "## The small recipe" not in text
