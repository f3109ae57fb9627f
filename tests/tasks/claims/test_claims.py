"""The page of claims says what the records say, and gives each claim a verdict."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from treemem.errors import RecipeError
from treemem.runs.results_page import write_page
from treemem.tasks.claims.claims import FOLDER, gaps, published, queued

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PAGE = (RESULTS / "claims.md").read_text(encoding="utf-8")
VERDICTS = {"holds", "holds in part", "does not hold", "not tried"}


def test_the_page_is_what_reproduce_writes_from_the_committed_records(tmp_path: Path) -> None:
    write_page(FOLDER, RESULTS, tmp_path / "claims.md")
    assert (tmp_path / "claims.md").read_text(encoding="utf-8") == PAGE


def test_each_source_has_a_table_in_which_each_row_has_a_verdict() -> None:
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) == 5
    for section in sections:
        head, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
        assert head.startswith("| verdict |")
        assert {row.split(" | ")[0].removeprefix("| ") for row in rows} <= VERDICTS
        assert {row.count(" |") for row in rows} == {head.count(" |")}, "each row has the columns of the head"
        assert not [row for row in rows if row.startswith("| not tried") and "| because" not in row]


def test_figures_that_nobody_published_and_studies_that_nobody_runs_are_refused() -> None:
    assert published("logical_inference", "Ordered Memory", "test, 12 operations") == "92 ± 1.1"
    with pytest.raises(RecipeError, match="listops has no published accuracy of TreeCell on test"):
        published("listops", "TreeCell", "test")
    page = SimpleNamespace(records=lambda study: [{}] * 2 if study == "listops/data-size" else [])
    assert (
        queued(page, "listops/published", "listops/data-size")
        == "`listops/published` and `listops/data-size` (2 recorded)"
    )
    with pytest.raises(RecipeError, match="the queue has no study 'listops/small'"):
        queued(page, "listops/small")


def test_a_gap_is_the_difference_between_mean_accuracies_by_group() -> None:
    def run(shallow: float, deep: float, both: float) -> dict[str, object]:
        scores = {"depth": [8, 9, "all"], "examples": [10, 10, 20], "accuracy": [shallow, deep, both]}
        return {"run": "x", "scores": {"test": scores}}

    found = gaps([run(0.9, 0.8, 0.85), run(0.7, 0.8, 0.75)], [run(0.7, 0.9, 0.8)], "test")
    assert found == pytest.approx({8: 10, 9: -10, "all": 0})
