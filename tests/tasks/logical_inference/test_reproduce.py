from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import pytest
from markdown_pages import table_below
from study_folders import must_not_run, records, run_command

from treemem.checkpoint import load
from treemem.runs import Recipe, StudyRun, evaluate, parse_recipe
from treemem.runs.state import data_digest
from treemem.tasks.logical_inference import RELATIONS, LogicalInference, LogicDataOptions, generate_logic, reproduce
from treemem.tasks.logical_inference.studies import (
    GOLD_TREES,
    LONGER_TRIALS,
    LONGEST_TRAINED,
    SEEDS,
    TRIALS,
    TRIED,
    gold_tree_networks,
    gold_tree_runs,
    held_out_pairs,
    held_out_runs,
    longer_runs,
    published_pairs,
    trial_pairs,
    trial_runs,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files like the published ones, with a few pairs of every number of operations."""
    folder = tmp_path_factory.mktemp("logic")
    pairs, is_test = generate_logic(1500, seed=1, max_operations=13)
    formulas = [" ".join(words) for words in pairs.forest.tokens("bracketed leaves").strings()]
    lines = [
        f"{RELATIONS[label]}\t{left}\t{right}\n"
        for label, left, right in zip(pairs.label, formulas[::2], formulas[1::2], strict=True)
    ]
    for name, chosen in (("train", ~is_test), ("test", is_test)):
        text = "".join(line for line, kept in zip(lines, chosen, strict=True) if kept)
        (folder / f"{name}0").write_text(text, encoding="utf-8")
    return folder


def tiny(run: StudyRun) -> StudyRun:
    return dataclasses.replace(
        run, network=run.network.replace(hidden_size=3), training=dataclasses.replace(run.training, epochs=1)
    )


def tiny_runs() -> list[StudyRun]:
    """All networks on all pairs, of one seed and one epoch."""
    return [tiny(run) for run in gold_tree_runs() if run.training.seed == SEEDS[0]]


def tiny_held_out() -> list[StudyRun]:
    """One network without split A."""
    return [tiny(run) for run in held_out_runs() if run.training.seed == SEEDS[0] and run.row == "Tree-RNN, A"]


def tiny_trials() -> list[StudyRun]:
    """One trial, of one epoch."""
    return [tiny(next(run for run in trial_runs() if run.row == "TreeCell"))]


def tiny_recipe(task: str) -> Recipe:
    return parse_recipe(
        {
            "task": task,
            "data": {"size": 150, "max_operations": 4, "max_training_operations": 2},
            "networks": {
                "ON-LSTM": {"network": "ONLSTM", "options": {"hidden_size": 4, "chunk_size": 2, "num_layers": 1}}
            },
            "training": {"epochs": 1},
            "seeds": [1, 2],
        }
    )


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "gold_tree_runs", tiny_runs)
    monkeypatch.setattr(reproduce, "held_out_runs", tiny_held_out)
    monkeypatch.setattr(reproduce, "trial_runs", tiny_trials)
    monkeypatch.setattr(reproduce, "small_recipe", tiny_recipe)


run = functools.partial(run_command, reproduce)


def test_no_network_over_given_trees_drops_anything() -> None:
    dropouts = {
        network: {option: rate for option, rate in config.options.items() if option.endswith("dropout")}
        for network, config in gold_tree_networks().items()
    }
    assert list(dropouts) == list(GOLD_TREES)
    assert dropouts["TreeCell"]
    assert all(rate == 0 for rates in dropouts.values() for rate in rates.values())


def test_studies_are_run_once_and_their_scores_are_the_tables_of_the_page(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = ["gold-trees", "gold-trees-held-out", "small"]
    assert run(tmp_path, *studies, "--data", str(data)) == 0
    assert [record["run"] for record in records(tmp_path, "gold-trees")] == [run.name for run in tiny_runs()]
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    table = {row[0]: row for row in table_below(text, "### By number of operations")}
    assert [name for name in table if name != "_published_"] == ["network", "majority class", *GOLD_TREES, "pairs"]
    forests = published_pairs(str(data))
    for name in GOLD_TREES:
        model = load(tmp_path / "runs" / "logical_inference" / "gold-trees" / f"{name}, all" / f"seed-{SEEDS[0]}")
        found = evaluate(model, forests["all"], split="test")
        by_group = {score.group: score for score in found.scores}
        assert table[name][1:-1] == [f"{100 * by_group[length].accuracy:.2f}" for length in range(1, 13)]
        assert table["pairs"][1:-1] == [str(by_group[length].examples) for length in range(1, 13)]
        beyond = LogicalInference().examples(forests["all"]).group[found.chosen] > 6
        assert table[name][-1] == f"{100 * found.right[beyond].mean():.2f}"
    held_out = {row[0]: row[1] for row in table_below(text, "### With subtrees kept from training")}
    (record,) = records(tmp_path, "gold-trees-held-out")
    score = record["scores"]["test"][-1]
    assert held_out["Tree-RNN"] == f"{100 * score['accuracy']:.2f}"
    assert "## The small recipe" in text
    assert (tmp_path / "logical_inference_on-lstm_trees.html").exists()

    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    assert {path.name for path in before} == {*(f"{study}.jsonl" for study in studies), "small-trees.jsonl"}
    monkeypatch.setattr(sys.modules["treemem.runs.study"], "fit", must_not_run)
    (tmp_path / "page.md").unlink()
    assert run(tmp_path, *studies, "--data", str(data)) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    (tmp_path / "page.md").unlink()
    assert run(tmp_path) == 0, "the page alone"
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before


def test_trees_are_told_apart_by_whether_as_many_operations_were_trained_on(tmp_path: Path) -> None:
    assert run(tmp_path, "small") == 0
    (record,) = records(tmp_path, "small-trees")
    assert [part["group"] for part in record["groups"]] == ["at most 2 operations", "more than 2"]
    examples = LogicalInference().examples(LogicalInference().make_data(tiny_recipe("logical_inference").data).forest)
    test = examples.part("test")
    inner = np.diff(examples.forest.begin).reshape(-1, 2)[test] > 1
    assert [part["sentences"] for part in record["groups"]] == [
        inner[chosen].sum() for chosen in (examples.group[test] <= 2, examples.group[test] > 2)
    ]


def test_the_published_pairs_are_read_whole_and_with_each_split_held_out(data: Path) -> None:
    task, forests = LogicalInference(), {**published_pairs(str(data)), **held_out_pairs(str(data))}
    assert list(forests) == ["all", "A", "B", "C"]
    for name, forest in forests.items():
        options = LogicDataOptions(path=str(data), hold_out=None if name == "all" else name)
        assert data_digest(task.examples(forest)) == data_digest(task.examples(task.make_data(options).forest))
    assert len({data_digest(task.examples(forest)) for forest in forests.values()}) == 4


def test_trials_have_the_recipes_of_the_studies_among_them_and_other_seeds() -> None:
    runs = trial_runs()
    assert len({run.name for run in runs}) == len(runs) == len(TRIED) * len(TRIALS) + len(LONGER_TRIALS)
    assert not {run.training.seed for run in runs} & set(SEEDS)
    studies = [*((name, gold_tree_runs()) for name in TRIED), (LONGEST_TRAINED, longer_runs())]
    for name, study in studies:
        chosen = next(run for run in study if run.row == f"{name}, all")
        own = [run for run in runs if run.row == name]
        alike = [dataclasses.replace(run.training, seed=chosen.training.seed) == chosen.training for run in own]
        assert 0 < alike.count(True) < len(own)
        assert all(run.network == chosen.network for run in own)


def test_one_network_is_trained_longer_and_alike_otherwise() -> None:
    usual = {run.training.seed: run for run in gold_tree_runs() if run.row == "Tree-RNN, all"}
    runs = longer_runs()
    assert [run.training.seed for run in runs] == list(SEEDS)
    for run in runs:
        as_usual = usual[run.training.seed]
        assert run.network == as_usual.network
        assert run.training.epochs > as_usual.training.epochs
        assert dataclasses.replace(run.training, epochs=as_usual.training.epochs) == as_usual.training


def test_a_trial_is_tested_with_longer_pairs_of_the_training_files(tmp_path: Path, data: Path) -> None:
    assert run(tmp_path, "gold-trees-trials", "--data", str(data)) == 0
    (record,) = records(tmp_path, "gold-trees-trials")
    longer = trial_pairs(str(data))["test hidden"]
    model = load(tmp_path / "runs" / "logical_inference" / record["run"])
    found = evaluate(model, longer, split="test")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    _, row = table_below(text, "### How the recipe was chosen")
    assert row[:5] == ["TreeCell", "1", "64", "0.001", "4444"]
    assert row[5] == f"{100 * evaluate(model, longer, split='validation').overall.accuracy:.2f}"
    assert row[6:13] == [f"{100 * score.accuracy:.2f}" for score in found.scores]
    assert [score.group for score in found.scores] == [*range(7, 13), "all"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gold-trees"], "the study gold-trees needs --data, the folder of the published files"),
        (["small", "gold-trees"], "the study gold-trees needs --data"),
        (["gold-trees-trials"], "the study gold-trees-trials needs --data"),
        (["gold-trees-held-out"], "the study gold-trees-held-out needs --data"),
        (["gold-trees", "--data", "nowhere"], "no folder"),
        (
            ["table-1"],
            "no study is called 'table-1'; there are gold-trees-trials, gold-trees, gold-trees-longer, "
            "gold-trees-held-out, small",
        ),
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
