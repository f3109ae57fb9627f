from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_task

from treemem import checkpoint
from treemem.cli import main
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.tasks.listops import ListOps
from treemem.trees.vocabulary import Vocabulary

EQUATIONS = 'equation,label,split\nx + y = y + x,1,test\n"sin(x) = cos(x)",0,train\n'


def test_scores_of_a_file_are_printed_and_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.csv").write_text(EQUATIONS)
    assert main(["evaluate", "equation_verification", "own.csv", "--json", "scores.json", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "| examples " in printed
    assert "precision " in printed
    content = json.loads((folder / "scores.json").read_text())
    assert (content["task"], content["data"], content["split"]) == ("equation_verification", "own.csv", "all")
    assert [(row["depth"], row["examples"]) for row in content["scores"]] == [(2, 2), ("all", 2)]
    assert sum(each["examples"] for each in content["reliability"]["bins"]) == 2
    assert main(["evaluate", "equation_verification", "own.csv", "--split", "test", "--reliability"]) == 0
    printed = capsys.readouterr().out
    assert "       1 |" in printed
    assert "| confidence | examples |" in printed
    assert "expected calibration error 0." in printed


def test_examples_of_a_file_may_be_told_apart_by_another_option_of_the_task(
    folder: Path, capsys: pytest.CaptureFixture[str], failing: Callable[..., str]
) -> None:
    checkpoint.save("model", Model(ListOps(), NetworkConfig("TreeRNN", {"hidden_size": 2})))
    (folder / "own.tsv").write_text("9\t[MAX 2 9 [MIN 4 7 ] 0 ]\n3\t[MIN 3 4 ]\n")
    assert main(["evaluate", "model", "own.tsv", "task_options.group_by=depth", "--device", "cpu"]) == 0
    head, *_ = capsys.readouterr().out.splitlines()
    assert "depth 1 |" in head
    assert "depth 2 |" in head
    said = failing("evaluate", "model", "own.tsv", "task_options.group_by=depth", "data.test_size=3")
    assert "leave out data.test_size=3 or DATA" in said


@pytest.mark.parametrize("data", [[], ["own.csv"]])
def test_options_that_a_model_was_not_trained_with_are_refused(
    data: list[str], folder: Path, failing: Callable[..., str]
) -> None:
    (folder / "own.csv").write_text(EQUATIONS)
    said = failing("evaluate", "equation_verification", *data, "task_options.read_out=cosine")
    assert "task_options.read_out is 'cosine', and the model was trained with 'values'" in said


@pytest.mark.parametrize(
    ("place", "name"),
    [(".", "one"), (".", "one/sum"), ("one/sum/seed-12093", "."), ("one/sum", "seed-12093/checkpoints/..")],
)
def test_without_a_file_the_data_are_those_of_the_run_however_its_checkpoint_is_named(
    place: str, name: str, one_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(one_run.parent / place)
    assert main(["evaluate", name]) == 0
    said = capsys.readouterr()
    assert "scoring the data of the run" in said.err
    assert "| sum " in said.out
    assert " 7 |" in said.out.splitlines()[-3]
    assert main(["evaluate", name, "data.count=20", "--split", "all"]) == 0
    assert " 20 |" in capsys.readouterr().out


def test_a_run_without_a_recipe_is_not_scored_on_other_data(
    folder: Path, one_run: Path, failing: Callable[..., str]
) -> None:
    shutil.copytree(one_run, folder / "one")
    Path("one/sum/recipe.yaml").unlink()
    assert "recipe.yaml, which says what data the model was trained on" in failing("evaluate", "one/sum/seed-12093")
    (folder / "own.csv").write_text("tree,label\n(g x),1\n(f x y),0\n")
    assert main(["evaluate", "one/sum/seed-12093", "own.csv"]) == 0  # a file needs no recipe


def test_a_recipe_that_lies_about_is_no_models_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recipe.yaml").write_text("task: [")
    (folder / "own.csv").write_text(EQUATIONS)
    assert main(["evaluate", "equation_verification", "own.csv", "--device", "cpu"]) == 0
    assert main(["evaluate", "equation_verification", "data.size=200", "--split", "all", "--device", "cpu"]) == 0
    checkpoint.save("model", Model(toy_task.MoreX(), NetworkConfig("KindSum", {"hidden_size": 2})))
    assert main(["evaluate", "model"]) == 0
    said = capsys.readouterr()
    assert " 12 |" in said.out
    assert said.err.count("no run of this model is here; the task generates the data") == 2


def test_labels_that_the_model_does_not_know_are_told(folder: Path, failing: Callable[..., str]) -> None:
    known = Vocabulary(["x"], [("f", 2), ("g", 1)])
    checkpoint.save("model", Model(toy_task.MoreX(), NetworkConfig("KindSum", {"hidden_size": 2}), known))
    assert "unknown leaf 'y'" in failing("evaluate", "model")
    (folder / "own.jsonl").write_text('{"tree": "(Equality (sine Symbol:var_0) Integer:1)", "label": 1}')
    said = failing("evaluate", "equation_verification", "own.jsonl")
    assert "own.jsonl, line 1: unknown" in said
    assert "'sine'" in said
    checkpoint.save("of_listops", Model(ListOps(), NetworkConfig("TreeRNN", {"hidden_size": 2}), Vocabulary(["1"], [])))
    (folder / "lists.csv").write_text("label,tree\n1,[MAX 1 1 ]\n")
    for command in ("evaluate", "explore"):
        more = ["-o", "page.html"] if command == "explore" else []
        assert "lists.csv, line 2: node 1 (in post-order): unknown" in failing(
            command, "of_listops", "lists.csv", *more
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "there are no equations in own.csv"),
        ("equation\nx = x\n", "example 1 of 1 has no label"),
        ("equation,label\nx + = x,1\n", "own.csv, line 2, column 5: "),
        ("equation,label\nx = x,maybe\n", "the label is 'maybe'"),
        ("equation,label,split\nx = x,1,tset\n", "line 2: the split is 'tset'; did you mean test"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told(content: str, said: str, folder: Path, failing: Callable[..., str]) -> None:
    (folder / "own.csv").write_text(content)
    assert said in failing("evaluate", "equation_verification", "own.csv")


def test_data_of_the_run_that_have_changed_are_not_scored_as_such(
    folder: Path, capsys: pytest.CaptureFixture[str], failing: Callable[..., str]
) -> None:
    rows = [{"tree": f"(f {'xy'[place % 2]} y)", "c": "ab"[place % 2]} for place in range(40)]
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own.yaml").write_text(
        "task: table_classes\ntask_options: {path: own.jsonl, target: [c]}\n"
        "data: {duplicates_together: false}\ntraining: {epochs: 1, threads: 1}\n"
        "networks: {RNN: {network: TreeRNN, options: {hidden_size: 2}}}\n"
    )
    assert main(["train", "own.yaml", "-o", "own"]) == 0
    assert main(["evaluate", "own"]) == 0
    rows[0]["c"] = "b"
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "own/RNN are not those of its training any more" in failing("evaluate", "own")
    assert "own/RNN are not those of its training any more" in failing(
        "evaluate", "own", "--set", "task_options.path=own.jsonl"
    )
    assert main(["evaluate", "own", "own.jsonl"]) == 0
    rows[0]["c"] = "a"
    (folder / "own.jsonl").unlink()
    (folder / "moved.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "if the data have moved, name their place with --set task_options.path=PLACE" in failing("evaluate", "own")
    capsys.readouterr()
    assert main(["evaluate", "own", "--set", "task_options.path=moved.jsonl"]) == 0
    assert "own: scored 4 examples" in capsys.readouterr().err


def test_a_folder_of_several_runs_names_them_and_a_damaged_one_is_told(
    folder: Path, trained: Path, failing: Callable[..., str]
) -> None:
    several = failing("evaluate", "run")
    assert "run holds these runs, of which you may choose one" in several
    runs = list(trained.glob("**/checkpoints.json"))
    assert runs
    assert all(str(run.parent.relative_to(folder)) in several for run in runs)
    for weights in (trained / "sum" / "seed-1").glob("checkpoints/*/model.safetensors"):
        weights.write_bytes(b"")
    assert "is cut off or altered" in failing("evaluate", "run/sum/seed-1")
