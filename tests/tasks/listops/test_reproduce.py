from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from markdown_pages import table_below
from study_folders import must_not_run, records, run_command

from treemem.checkpoint import load
from treemem.runs import Recipe, evaluate, parse_recipe
from treemem.tasks.listops import reproduce


def tiny_recipe(task: str) -> Recipe:
    sizes = {"training_size": 60, "validation_size": 20, "test_size": 20, "pool": 0}
    return parse_recipe(
        {
            "task": task,
            "data": {**sizes, "max_length": 10, "test_sets": ["iid", "length 11-14"]},
            "networks": {
                "LSTM": {"network": "LSTM", "options": {"hidden_size": 4}},
                "Ordered Memory": {"network": "OrderedMemory", "options": {"hidden_size": 4, "slots": 3}},
            },
            "training": {"epochs": 1},
            "seeds": [1, 2],
        }
    )


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "small_recipe", tiny_recipe)


run = functools.partial(run_command, reproduce)


def test_the_study_is_run_once_and_its_scores_are_the_tables_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, "small") == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    recipe = tiny_recipe("listops")
    data = recipe.make_task().make_data(recipe.data).forest
    table = {row[0]: row[1:] for row in table_below(text, "Test accuracy by length:")}
    assert table["network"] == ["length 10", "length 20", "all"]
    for name in recipe.networks:
        folders = [tmp_path / "runs" / "listops" / "small" / name / f"seed-{seed}" for seed in (1, 2)]
        found = [evaluate(load(folder), data, split="test").scores for folder in folders]
        means = [50 * (one.accuracy + other.accuracy) for one, other in zip(*found, strict=True)]
        assert [cell.partition(" ± ")[0] for cell in table[name]] == [f"{mean:.2f}" for mean in means]

    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    assert {path.name for path in before} == {"small.jsonl", "small-trees.jsonl"}
    monkeypatch.setattr(sys.modules["treemem.runs.study"], "fit", must_not_run)
    for studies in (["small"], []):
        (tmp_path / "page.md").unlink()
        assert run(tmp_path, *studies) == 0
        assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before


def test_trees_are_told_apart_by_whether_expressions_as_long_were_trained_on(tmp_path: Path) -> None:
    assert run(tmp_path, "small") == 0
    (record,) = records(tmp_path, "small-trees")
    counts = {part["group"]: part["sentences"] for part in record["groups"]}
    assert counts == {"at most 10 tokens": 20, "more than 10": 20}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gold-trees"], "no study is called 'gold-trees'; there are small"),
        (["small", "--processes", "0"], "--processes must be at least 1, not 0"),
        ([], "there are no records in"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(
    tmp_path: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *arguments) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
