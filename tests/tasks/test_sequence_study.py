from __future__ import annotations

import argparse
import dataclasses
import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_folders import must_not_run, records

from treemem.checkpoint import load
from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.induction import RunTrees, baseline_trees, corpus_f1, induced_trees, mean_sentence_f1, remove_brackets
from treemem.model import Model
from treemem.records import write_records
from treemem.runs import Recipe, evaluate, parse_recipe
from treemem.runs.study import weights_digest
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks import sequence_study
from treemem.tasks.listops import ListOps, ListOpsDataOptions
from treemem.tasks.sequence_study import (
    BASELINES,
    by_training,
    found_trees,
    gold_trees,
    run_small,
    small_runs,
    tree_scores,
)
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

NETWORKS = {
    "Ordered Memory": {"network": "OrderedMemory", "options": {"hidden_size": 4, "slots": 3}},
    "ON-LSTM": {"network": "ONLSTM", "options": {"hidden_size": 4, "chunk_size": 2, "num_layers": 1}},
    "LSTM": {"network": "LSTM", "options": {"hidden_size": 4}},
}
DATA = {
    "logical_inference": {"size": 150, "max_operations": 4, "max_training_operations": 3},
    "listops": {
        "training_size": 40,
        "validation_size": 10,
        "test_size": 15,
        "max_length": 10,
        "test_sets": ["iid", "length 11-14"],
        "bare_digits": True,
        "pool": 0,
    },
}
MOST = {"logical_inference": 3, "listops": 10}
"""Of the groups that are trained on."""


def tiny(task: str, *seeds: int) -> Recipe:
    return parse_recipe(
        {
            "task": task,
            "data": DATA[task],
            "networks": NETWORKS,
            "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.05},
            "seeds": list(seeds),
        }
    )


def options(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(
        runs=folder / "runs", results=folder / "results", page=folder / "page.md", processes=1, studies=["small"]
    )


def run(folder: Path, task: str, *seeds: int, networks: Sequence[str] = tuple(NETWORKS)) -> None:
    run_small(options(folder), tiny(task, *seeds).with_networks(networks), "words")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a finished study of a task, with two seeds; made once."""
    made: dict[str, Path] = {}

    def of(task: str) -> Path:
        if task not in made:
            made[task] = tmp_path_factory.mktemp(task)
            run(made[task], task, 1, 2)
        return made[task]

    return of


@pytest.fixture
def study(finished: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the finished study of logical inference."""
    shutil.copytree(finished("logical_inference"), tmp_path / "study")
    return tmp_path / "study"


@functools.cache
def examples_of(task: str) -> Examples:
    recipe = tiny(task, 1, 2)
    return recipe.make_task().examples(recipe.make_task().make_data(recipe.data).forest)


def words(tree: Tree) -> list[str]:
    return [leaf.label for leaf in tree.leaves()]


def test_there_is_a_run_for_each_network_and_seed_seed_by_seed() -> None:
    runs = small_runs(tiny("listops", 5, 6))
    assert [run.name for run in runs] == [f"small/{name}/seed-{seed}" for seed in (5, 6) for name in NETWORKS]
    assert [run.row for run in runs] == list(NETWORKS) * 2
    for run in runs:
        assert run.network == tiny("listops").networks[run.row]
        assert run.training == dataclasses.replace(tiny("listops").training, seed=int(run.name[-1]))


def test_without_seeds_the_one_of_training_is_run() -> None:
    recipe = tiny("listops")
    assert {run.training.seed for run in small_runs(recipe)} == {recipe.training.seed}
    assert len(small_runs(recipe)) == len(NETWORKS)


@pytest.mark.parametrize("task", ["logical_inference", "listops"])
def test_gold_trees_are_the_test_trees_of_several_words_with_their_groups(task: str) -> None:
    examples = examples_of(task)
    expected = []
    for number in range(len(examples)):
        for tree in list(examples.forest)[number * examples.trees_per_example :][: examples.trees_per_example]:
            if examples.split is not None and examples.split[number] == 2 and len(words(tree)) > 1:
                expected.append((tree, examples.group[number]))
    gold, group = gold_trees(examples)
    assert list(zip(gold, group, strict=True)) == expected
    assert len(gold) < len(examples.part("test")) * examples.trees_per_example, "some are of one word"


@pytest.mark.parametrize("task", ["logical_inference", "listops"])
def test_found_trees_are_those_of_each_sentence_alone_without_brackets(
    finished: Callable[[str], Path], task: str
) -> None:
    model, examples = load(finished(task) / "runs" / task / "small" / "ON-LSTM" / "seed-1"), examples_of(task)
    gold, _ = gold_trees(examples)
    whole = found_trees(model, examples)
    assert [words(tree) for tree in whole] == [words(tree) for tree in gold]
    for place in range(0, len(gold), 10):
        batch = TreeBatch.from_forest(Forest.from_trees([gold[place]]), model.vocabulary)
        assert remove_brackets(induced_trees(model.encoder, batch)[0]) == whole[place]  # type: ignore[arg-type]


@pytest.mark.parametrize("task", ["logical_inference", "listops"])
def test_the_record_of_trees_holds_the_scores_of_each_group(finished: Callable[[str], Path], task: str) -> None:
    found = {record["network"]: record for record in records(finished(task), "small-trees")}
    assert list(found) == ["Ordered Memory", "ON-LSTM"], "of the networks that find trees"
    examples = examples_of(task)
    gold, group = gold_trees(examples)
    folder = finished(task) / "runs" / task / "small"
    for name, record in found.items():
        models = {f"seed {seed}": load(folder / name / f"seed-{seed}") for seed in (1, 2)}
        assert record["weights"] == {run: weights_digest(model) for run, model in models.items()}
        trees = {run: found_trees(model, examples) for run, model in models.items()}
        assert [part["group"] for part in record["groups"]] == [
            f"at most {MOST[task]} words",
            f"more than {MOST[task]}",
        ]
        for part, chosen in zip(record["groups"], (group <= MOST[task], group > MOST[task]), strict=True):
            places = np.flatnonzero(chosen)
            assert part["sentences"] == len(places) > 0
            own = [gold[place] for place in places]
            of_run = {run: [theirs[place] for place in places] for run, theirs in trees.items()}
            for average, score in (("corpus", corpus_f1), ("sentence", mean_sentence_f1)):
                assert part[average]["f1"] == {run: score(own, theirs).f1 for run, theirs in of_run.items()}
                assert part[average]["agreement"] == pytest.approx(score(of_run["seed 1"], of_run["seed 2"]).f1)
                for branching in BASELINES:
                    trivial = baseline_trees([words(tree) for tree in own], branching)
                    assert part[average][branching] == score(own, trivial).f1


def test_what_is_as_long_as_in_training_is_told_by_the_training_examples_where_groups_are_ranges() -> None:
    task = ListOps()
    sizes = {"training_size": 40, "validation_size": 5, "test_size": 20, "pool": 0}
    options = ListOpsDataOptions(max_length=25, test_sets=["iid", "31-50"], **sizes)  # type: ignore[arg-type]
    data = task.make_data(options).forest
    examples = task.examples(data)
    called = by_training(examples, "tokens")(examples.group)
    assert set(called[data.tree_data["set"] == "iid"]) == {"at most 30 tokens"}
    assert set(called[data.tree_data["set"] == "31-50"]) == {"more than 30"}


def test_one_run_alone_agrees_with_no_other(finished: Callable[[str], Path]) -> None:
    model = load(finished("listops") / "runs" / "listops" / "small" / "ON-LSTM" / "seed-1")
    examples = examples_of("listops")
    (part,) = tree_scores({"alone": found_trees(model, examples)}, examples, lambda group: np.full(len(group), "all"))
    assert part["corpus"]["agreement"] is None
    assert part["sentence"]["agreement"] is None


def test_runs_are_scored_on_every_split_of_the_data_of_the_recipe(finished: Callable[[str], Path]) -> None:
    folder = finished("listops")
    found = records(folder, "small")
    assert [record["run"] for record in found] == [run.name for run in small_runs(tiny("listops", 1, 2))]
    recipe = tiny("listops", 1, 2)
    data = recipe.make_task().make_data(recipe.data).forest
    for record in found[:3]:
        model = load(folder / "runs" / "listops" / record["run"])
        assert record["weights"] == weights_digest(model)
        assert record["scores"]["test"][-1]["accuracy"] == evaluate(model, data, split="test").overall.accuracy
        assert record["scores"].keys() == {"train", "validation", "test"}


def test_what_is_recorded_is_neither_trained_nor_compared_again(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in (study / "results").iterdir()}
    monkeypatch.setattr(sys.modules["treemem.runs.study"], "fit", must_not_run)
    monkeypatch.setattr(sequence_study, "found_trees", must_not_run)
    shutil.rmtree(study / "runs")
    run(study, "logical_inference", 1, 2)
    assert {path: path.read_bytes() for path in (study / "results").iterdir()} == before


def test_a_lost_page_of_trees_is_drawn_again_where_the_models_are_still_there(study: Path) -> None:
    page = study / "logical_inference_on-lstm_trees.html"
    text = page.read_bytes()
    page.unlink()
    run(study, "logical_inference", 1, 2)
    assert page.read_bytes() == text
    page.unlink()
    shutil.rmtree(study / "runs")
    run(study, "logical_inference", 1, 2)
    assert not page.exists()


def test_trees_of_other_weights_are_read_anew_and_no_others(study: Path) -> None:
    memory, on_lstm = records(study, "small-trees")
    changed = {**on_lstm, "weights": {**on_lstm["weights"], "seed 2": "of another run"}, "groups": []}
    kept = {**memory, "groups": memory["groups"][:1]}
    write_records(study / "results" / "small-trees.jsonl", [kept, changed])
    run(study, "logical_inference", 1, 2)
    assert records(study, "small-trees") == [kept, on_lstm]


def test_a_study_that_gets_another_seed_trains_that_alone_and_compares_all(tmp_path: Path) -> None:
    run(tmp_path, "listops", 1, networks=["ON-LSTM"])
    first = records(tmp_path, "small")
    assert not list(tmp_path.glob("*_trees.html")), "one run has no other to differ from"
    logs = {path: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")}
    run(tmp_path, "listops", 1, 2, networks=["ON-LSTM"])
    assert records(tmp_path, "small")[: len(first)] == first
    assert len(records(tmp_path, "small")) == 2 * len(first)
    assert {path: path.read_bytes() for path in logs} == logs
    for record in records(tmp_path, "small-trees"):
        assert list(record["weights"]) == ["seed 1", "seed 2"]
        assert record["groups"][0]["corpus"]["agreement"] is not None


def test_a_study_whose_recorded_runs_are_gone_says_so_before_it_trains_another(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["treemem.runs.study"], "fit", must_not_run)
    shutil.rmtree(study / "runs" / "logical_inference" / "small" / "ON-LSTM" / "seed-2")
    with pytest.raises(RecipeError, match=r"all runs of ON-LSTM .*seed-2 is gone.* out of .*small\.jsonl"):
        run(study, "logical_inference", 1, 2, 3)


@pytest.mark.parametrize(("lost", "seeds"), [("logical_inference_on-lstm_trees.html", (1, 2)), (None, (1, 2, 3))])
def test_a_folder_with_weights_of_another_run_is_refused_before_anything_is_trained_or_recorded(
    study: Path, monkeypatch: pytest.MonkeyPatch, lost: str | None, seeds: tuple[int, ...]
) -> None:
    monkeypatch.setattr(sys.modules["treemem.runs.study"], "fit", must_not_run)
    folder = study / "runs" / "logical_inference" / "small" / "ON-LSTM"
    (folder / "seed-1").rename(folder / "other")
    (folder / "seed-2").rename(folder / "seed-1")
    (folder / "other").rename(folder / "seed-2")
    if lost is not None:
        (study / lost).unlink()
    before = {path: path.read_bytes() for path in study.glob("*/*.jsonl")}
    problem = r"the weights in .*ON-LSTM/seed-1 are not those that .*small\.jsonl has .*'small/ON-LSTM/seed-1' out"
    with pytest.raises(RecipeError, match=problem):
        run(study, "logical_inference", *seeds)
    assert {path: path.read_bytes() for path in study.glob("*/*.jsonl")} == before


def test_records_of_trees_of_networks_that_the_recipe_lacks_are_kept(study: Path) -> None:
    memory, on_lstm = records(study, "small-trees")
    write_records(study / "results" / "small-trees.jsonl", [on_lstm, {**memory, "weights": {}, "groups": []}])
    run(study, "logical_inference", 1, 2, networks=["Ordered Memory"])
    assert records(study, "small-trees") == [on_lstm, memory]


def test_trees_that_were_compared_before_another_network_failed_are_kept(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = records(study, "small-trees")
    (study / "results" / "small-trees.jsonl").unlink()
    found_trees = sequence_study.found_trees

    def failing(model: Model, *given: Any) -> Any:
        if model.network.network == "ONLSTM":
            raise KeyboardInterrupt
        return found_trees(model, *given)

    monkeypatch.setattr(sequence_study, "found_trees", failing)
    with pytest.raises(KeyboardInterrupt):
        run(study, "logical_inference", 1, 2)
    assert records(study, "small-trees") == before[:1]


def test_an_interrupted_study_keeps_what_was_done_and_goes_on_to_the_same_records(
    finished: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_module, networks = sys.modules["treemem.runs.study"], ["LSTM", "ON-LSTM"]
    fit, left = study_module.fit, 4

    def stopping(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return fit(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(study_module, "fit", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "logical_inference", 1, 2, networks=networks)
    assert len(records(tmp_path, "small")) == 3
    run(tmp_path, "logical_inference", 1, 2, networks=networks)
    whole = finished("logical_inference")
    weights = {record["run"]: record["weights"] for record in records(whole, "small") if record["row"] in networks}
    assert {record["run"]: record["weights"] for record in records(tmp_path, "small")} == weights
    assert records(tmp_path, "small-trees") == records(whole, "small-trees")[1:]


def test_the_page_of_trees_has_sentences_of_examples_that_every_run_has_right(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, tuple[Sequence[Tree], dict[str, RunTrees], str]] = {}

    def draw(
        page: Path, gold: Sequence[Tree], runs: dict[str, RunTrees], *, title: str, most: int, overwrite: bool
    ) -> None:
        assert page.parent == study
        assert overwrite
        drawn[page.name] = gold, runs, title

    monkeypatch.setattr(sequence_study, "write_tree_page", draw)
    (study / "results" / "small-trees.jsonl").unlink()
    run(study, "logical_inference", 1, 2)
    assert set(drawn) == {"logical_inference_ordered_memory_trees.html", "logical_inference_on-lstm_trees.html"}
    gold, runs, title = drawn["logical_inference_on-lstm_trees.html"]
    assert title == "ON-LSTM on logical_inference"
    examples = examples_of("logical_inference")
    assert list(gold) == gold_trees(examples)[0]
    for seed in (1, 2):
        model = load(study / "runs" / "logical_inference" / "small" / "ON-LSTM" / f"seed-{seed}")
        assert list(runs[f"seed {seed}"].trees) == found_trees(model, examples)
        assert list(runs[f"seed {seed}"].correct) == right_of_sentences(model, examples)


def right_of_sentences(model: Model, examples: Examples) -> list[bool]:
    """Whether the pair of each test sentence of several words was predicted right."""
    found = []
    for pair in examples.part("test"):
        sides = examples.forest[2 * pair : 2 * pair + 2]
        predicted = int(model.predict(sides).argmax())
        found += [predicted == examples.targets["label"][pair] for side in sides if side.children]
    return found


def test_the_finished_study_drew_both_pages(finished: Callable[[str], Path]) -> None:
    for task in DATA:
        pages = sorted(path.name for path in finished(task).glob("*.html"))
        assert pages == [f"{task}_on-lstm_trees.html", f"{task}_ordered_memory_trees.html"]
