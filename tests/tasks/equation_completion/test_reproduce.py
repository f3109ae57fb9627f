from __future__ import annotations

import json
from pathlib import Path

import pytest

from treemem import checkpoint
from treemem.records import write_records
from treemem.tasks.equation_completion.reproduce import main
from treemem.tasks.equation_verification.generator import generate_equations
from treemem.training import right_answers

SEEDS = (1, 2)


@pytest.fixture
def study(untrained, tmp_path: Path) -> Path:
    """Two networks of two seeds in ``runs``, and the equations that they were trained on."""
    records = []
    for name in ("Tree-LSTM", "Tree-RNN"):
        for seed in SEEDS:
            run = f"table-2/{name}/seed-{seed}"
            (tmp_path / "runs" / run).parent.mkdir(parents=True, exist_ok=True)
            checkpoint.save(tmp_path / "runs" / run, untrained(name, seed=seed).float())
            records.append({"run": run, "row": name, "training": {"seed": seed}})
    write_records(tmp_path / "study.jsonl", records)
    generate_equations(300, seed=1).save(tmp_path / "runs" / "data")
    return tmp_path


def run(study: Path, *arguments: str) -> int:
    places = {"runs": "runs", "study": "study.jsonl", "results": "results", "page": "page.md"}
    options = [part for name, place in places.items() for part in (f"--{name}", str(study / place))]
    return main([*arguments, *options])


def test_a_page_is_made_of_all_seeds_and_what_is_recorded_is_not_run_again(study: Path) -> None:
    sample = study / "sample.jsonl"
    write_records(
        sample,
        [{"preorder": "Equality Add Symbol:var_0 One:1 Add Integer:1 Symbol:var_0", "blank_node": 3, "label": 1}],
    )
    both = ["generated", "published_sample", "--sample", str(sample), "--limit", "5"]
    assert run(study, *both) == 0
    file = study / "results" / "generated.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [record["run"] for record in records] == [
        f"{name}/seed-{seed}" for name in ("Tree-LSTM", "Tree-RNN") for seed in SEEDS
    ]
    first = records[0]
    assert first["command"].endswith("reproduce generated --limit 5")
    assert first["data"]["equations"] == 5
    top = first["scores"]["class"][-1]["top"][0]
    assert right_answers(first, "class").mean() == pytest.approx(top)
    text = (study / "page.md").read_text(encoding="utf-8")
    for part in ("Generated test equations", "A sample of the published", "### By depth", "Against Tree-LSTM", "±"):
        assert part in text
    assert {path.name for path in study.glob("*.svg")} == {"page_generated.svg", "page_published_sample.svg"}
    before = file.read_bytes(), text
    assert run(study, *both) == 0
    assert (file.read_bytes(), (study / "page.md").read_text(encoding="utf-8")) == before
    assert run(study) == 0, "the page alone"
    assert (study / "page.md").read_text(encoding="utf-8") == text


def test_records_of_other_weights_or_equations_are_not_taken_for_these(study: Path, untrained, capsys) -> None:
    assert run(study, "generated", "--limit", "2") == 0
    assert run(study, "generated", "--limit", "3") == 2
    assert "the run 'Tree-LSTM/seed-1' with other data" in capsys.readouterr().err
    checkpoint.save(study / "runs/table-2/Tree-LSTM/seed-1", untrained("Tree-LSTM", seed=9).float())
    assert run(study, "generated", "--limit", "2") == 2
    assert "with other weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["everything"], "no set is called 'everything'; there are generated, published_sample"),
        (["published_sample"], "needs --sample"),
        (["generated", "--limit", "0"], "--limit must be at least 1"),
        ([], "there are no records in"),
    ],
)
def test_mistakes_are_errors_and_no_tracebacks(study: Path, arguments: list[str], problem: str, capsys) -> None:
    assert run(study, *arguments) == 2
    assert problem in capsys.readouterr().err


def test_without_a_study_there_is_nothing_to_complete_with(study: Path, capsys) -> None:
    (study / "study.jsonl").unlink()
    assert run(study, "generated") == 2
    assert "study.jsonl has no records of trained runs" in capsys.readouterr().err
