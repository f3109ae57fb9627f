from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.records import write_records
from treemem.task import SPLITS, Score
from treemem.tasks.equation_verification.generator import generate_equations
from treemem.tasks.equation_verification.reproduce import main
from treemem.tasks.equation_verification.results_page import write_page
from treemem.tasks.equation_verification.studies import SEEDS, TABLE_2, TOKEN_READER, token_reader_record
from treemem.tasks.equation_verification.study_data import DEEP_VALIDATION, DEEPER
from treemem.tasks.equation_verification.study_list import STUDIES
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.training import OddsCount, StudyRun, packed_answers, right_answers, score_row
from treemem.training.state import data_digest


@pytest.mark.parametrize("name", STUDIES)
def test_runs_of_a_study_have_names_of_their_own_and_networks_that_can_be_made(name: str) -> None:
    runs = STUDIES[name]()
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.name.startswith(f"{name}/") for run in runs)
    for run in {run.row: run for run in runs}.values():
        run.network.constructor()
    assert not [run for run in runs if run.training.seed not in SEEDS]


def test_the_first_runs_of_table_2_are_a_whole_table_of_one_seed() -> None:
    first = STUDIES["table-2"]()[: len(TABLE_2)]
    assert [run.row for run in first] == list(TABLE_2)
    assert {run.training.seed for run in first} == {SEEDS[0]}


EQUATIONS = generate_equations(400, seed=3).forest
TEST = EQUATIONS.tree_data["split"] == "test"
HASH = data_digest(EquationVerification().examples(EQUATIONS))


def record_of(run: StudyRun, accuracy: float) -> dict[str, Any]:
    right = np.arange(TEST.sum()) < TEST.sum() * accuracy
    scores = [score_row(run.row, Score(group, 100, accuracy, 0.5, 0.7, 0.8, 0.75), "depth") for group in (8, 9, "all")]
    parts = (*SPLITS, DEEP_VALIDATION, DEEPER, "published_dev", "published_sample, holds all")
    odds = OddsCount.of(np.where(right, 0.9, 0.2), right).to_lists()
    return {
        "run": run.name,
        "row": run.row,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"name": run.data, "hash": HASH},
        "files": {DEEP_VALIDATION: "d" * 64, DEEPER: "e" * 64},
        "parameters": 1,
        "best_epoch": 1,
        "epochs": 1,
        "seconds": 3600.0,
        "trees_per_second": 1.0,
        "scores": dict.fromkeys(parts, scores),
        "right": {"test": packed_answers(right)},
        "odds": dict.fromkeys(parts, odds),
    }


def test_the_page_says_what_the_records_say(tmp_path: Path) -> None:
    for name, make in STUDIES.items():
        accuracy = iter(np.tile([0.8, 0.82, 0.84], 100))
        runs = sorted(make(), key=lambda run: (run.row, run.training.seed))
        write_records(tmp_path / f"{name}.jsonl", [record_of(run, float(next(accuracy))) for run in runs])
    page = tmp_path / "page.md"
    write_records(tmp_path / f"{TOKEN_READER}.jsonl", [token_reader_record(EQUATIONS, {"published_dev": EQUATIONS})])
    write_page(tmp_path, page, EQUATIONS)
    text = re.sub(" +", " ", page.read_text(encoding="utf-8"))  # columns are in line
    assert "| Tree-LSTM+stack | 82.00 ± 2.00 |" in text
    assert "83.64 ± 1.23" in text, "the published figure stands beside it"
    assert "| Tree-LSTM+stack | +0.00 |" in text, "compared with Tree-LSTM example by example"
    assert "21 runs of the seeds 12093, 12345, 45678, 21.0 hours" in text
    assert "boosted trees on token counts" in text
    assert "| false by grow | " in text
    for heading in (
        "The rate", "Table 2", "Sample efficiency", "Ablation", "On published equations", "judged wrongly",
        "Beyond: trials", "Beyond: the best recipes",
    ):  # fmt: skip
        assert heading in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".md", ".svg"}


def test_records_of_other_equations_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "table-2.jsonl", [record_of(STUDIES["table-2"]()[0], 0.8)])
    with pytest.raises(RecipeError, match="are of other equations"):
        write_page(tmp_path, tmp_path / "page.md", EQUATIONS[:300])


def test_the_token_reader_learns_from_the_training_part_alone() -> None:
    record = token_reader_record(EQUATIONS, {})
    assert record["data"]["hash"] == HASH
    accuracy = {part: scores[-1]["accuracy"] for part, scores in record["scores"].items()}
    assert accuracy["train"] > 0.9 > accuracy["validation"]
    assert right_answers(record, "test").mean() == accuracy["test"]


def test_without_records_no_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "no records" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_an_unknown_study_is_an_error_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table-3", "--runs", str(tmp_path)]) == 2
    assert "no study is called 'table-3'; there are rates" in capsys.readouterr().err
