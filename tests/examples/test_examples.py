"""The examples do what they say, on small budgets."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from engine_parity import needs_dgl

import treemem.tasks.listops
from treemem import Tree
from treemem.records import read_records
from treemem.trees import parse_equation

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "equation_verification.py"
LISTOPS = EXAMPLES / "listops.py"
SMALL = ["--size", "200", "--epochs", "1", "--set", "training.accelerator=cpu"]
SMALL_LISTOPS = [
    *("--size", "40", "--set", "training.curriculum=0", "--set", "training.epochs=1"),
    *("--set", "training.accelerator=cpu", "--set", "training.threads=1"),
    *("--set", "data.validation_size=20", "--set", "data.test_size=20", "--set", "data.pool=0"),
    *("--set", "networks.Ordered Memory.options.hidden_size=8", "--set", "networks.LSTM.options.hidden_size=8"),
]

Run = Callable[..., int]


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.stem}_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded(EXAMPLE)


@pytest.fixture(scope="module")
def listops() -> ModuleType:
    return loaded(LISTOPS)


@pytest.fixture
def run(example: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Run:
    """Run the example in a folder of its own; a later option counts more than an earlier one."""

    def running(*options: str) -> int:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            return int(example.main([*SMALL, "--output", str(tmp_path / "out"), *options]))

    return running


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def networks(path: Path) -> list[str]:
    return list(dict.fromkeys(row["network"] for row in rows(path)))


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_scores_of_a_file_are_written_and_the_log_names_network_seed_and_file(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(
        '{"equation": "x + y = y + x", "label": 1, "holds": "all"}\n'
        '{"equation": "sin(x) = cos(x)", "label": 0, "holds": "some"}\n'
    )
    options = ["--seeds", "1", "2", "--evaluate", str(own)]
    assert run("--networks", "Tree-RNN", *options) == 0
    for line in ("seed 1, epoch 1/1: loss", "seed 2, epoch 1/1: loss", "Tree-RNN, seed 2, test examples: scored "):
        assert line in caplog.text
    assert f"Tree-RNN, seed-2, {own}: scored 2 examples" in caplog.text
    assert f"Tree-RNN, seed-1, {own}, equations that hold at some: scored 1 examples" in caplog.text
    found = rows(tmp_path / "out" / "evaluation.jsonl")
    assert {row["file"] for row in found} == {str(own)}
    assert [(row["holds"], row["depth"], row["examples"]) for row in found] == [
        (None, 2, 2), (None, "all", 2), ("all", 2, 1), ("all", "all", 1), ("some", 2, 1), ("some", "all", 1),
    ]  # fmt: skip
    assert found[1]["deviation"] is not None

    capsys.readouterr()
    assert run("--networks", "RNN", *options) == 0
    assert networks(tmp_path / "out" / "evaluation.jsonl") == ["RNN", "Tree-RNN"]
    assert "Tree-RNN, by where the equations hold: at every real point" in capsys.readouterr().out
    assert run("--networks", "Tree-RNN", "--seeds", "1", "2") == 0
    assert f"{tmp_path / 'out' / 'Tree-RNN' / 'seed-1'} is finished: epoch 1 was its last" in caplog.text
    assert networks(tmp_path / "out" / "evaluation.jsonl") == ["RNN", "Tree-RNN"]


def test_too_few_equations_are_refused_before_training(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--size", "4") == 2
    assert "data.size is 4, which leaves no equation for validation" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_listops_shows_accuracy_by_length_and_the_trees_that_were_found_and_goes_on_from_what_is_there(
    listops: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = [*SMALL_LISTOPS, "--output", str(tmp_path / "out")]
    assert listops.main(options) == 0
    printed = capsys.readouterr().out
    tables = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("| ")]
    assert tables == [
        *("network", "majority class", "Ordered Memory", "LSTM", "examples"),
        "trees",
        *("Ordered Memory", "_left_", "_right_", "_balanced_", "_random_") * 2,
    ]
    shown = [line[:14].strip() for line in printed.splitlines() if " ( " in line]
    assert shown == ["gold", "Ordered Memory"] * 2
    results = rows(tmp_path / "out" / "results.jsonl")
    assert [(row["network"], row["examples"]) for row in results if row["length"] == "all"] == [
        ("Ordered Memory", 40), ("LSTM", 40),
    ]  # fmt: skip

    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert listops.main(options) == 0
    assert f"{tmp_path / 'out' / 'LSTM' / 'seed-12093'} is finished: epoch 1 was its last" in caplog.text
    assert capsys.readouterr().out == printed

    assert listops.main([*options, "--networks", "LSTM"]) == 0
    kept = rows(tmp_path / "out" / "results.jsonl")
    assert networks(tmp_path / "out" / "results.jsonl") == ["LSTM", "Ordered Memory"]
    assert sorted(map(str, kept)) == sorted(map(str, results)), "those trained before stay"
    assert "| Ordered Memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "epochs", "expected"), [("0", 2, 0), ("[[7,3]]", 5, ((7, 3),)), ("[[7,30]]", 32, ((7, 30),)), ("2", 2, 2)]
)
def test_epochs_of_listops_come_after_the_stages_that_are_set_or_in_the_recipe(
    listops: ModuleType, tmp_path: Path, given: str, epochs: int, expected: object
) -> None:
    recipe = yaml.safe_load((Path(treemem.tasks.listops.__file__).parent / "recipes" / "small.yaml").read_text())
    recipe["training"]["curriculum"] = yaml.safe_load(given)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe))
    for words in (["--recipe", str(tmp_path / "own.yaml")], ["--set", f"training.curriculum={given}"]):
        training = listops.chosen_recipe(listops.parse_arguments(["--epochs", "2", *words])).training
        assert (training.epochs, training.curriculum) == (epochs, expected)


@needs_dgl
@pytest.mark.parametrize("convolution", ["GATConv"])
def test_the_pipeline_shows_accuracies_of_trees_of_the_graph_and_of_both(
    convolution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = loaded(EXAMPLES / "gnn_pipeline.py")
    assert pipeline.main(["--size", "3", "--epochs", "1", "--convolution", convolution]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "accuracy in % on 40 nodes of graphs not seen in training"
    assert [line[:12].strip() for line in lines[1:]] == ["trees alone", "graph alone", "both"]
    assert all(0 <= float(line[12:18]) <= 100 for line in lines[1:])


@needs_dgl
def test_the_classes_of_the_pipeline_are_those_that_its_formulas_and_edges_make() -> None:
    pipeline = loaded(EXAMPLES / "gnn_pipeline.py")
    trees, graph = pipeline.graph_of_formulas(random.Random(5), first=0)

    def holds(tree: Tree) -> bool:
        if not tree.children:
            return tree.label == "true"
        sides = [holds(child) for child in tree.children]
        meaning = {"not": not sides[0], "and": all(sides), "or": any(sides), "xor": sides[0] != sides[-1]}
        return meaning[tree.label]

    true = [holds(trees[number]) for number in graph.ndata["tree"].tolist()]
    for node in range(graph.num_nodes()):
        near = [true[other] for other in graph.predecessors(node).tolist()]
        assert len(set(graph.predecessors(node).tolist()) - {node}) == 3
        assert graph.ndata["class"][node] == 2 * true[node] + (sum(near) >= 2)


def by_hand(rules: dict[str, tuple[int, str, str]], tape: str, steps: int) -> tuple[str, str]:
    """Run a Turing machine. Return its state, and its tape without blanks at the ends, with the head in brackets."""
    cells, place, state = {place: int(bit) for place, bit in enumerate(tape)}, 0, "A"
    for _ in range(steps):
        if state == "H":
            break
        cells[place], move, state = rules[f"{state}{cells.get(place, 0)}"]
        place += 1 if move == "R" else -1
    found = [f"[{cells.get(each, 0)}]" if each == place else str(cells.get(each, 0)) for each in range(-99, 100)]
    return state, "".join(found).strip("0")


def test_a_network_with_rational_weights_does_what_a_turing_machine_does(capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded(EXAMPLES / "siegelmann_sontag.py")
    example.main([])
    assert "halted after 107 steps" in capsys.readouterr().out
    draw = random.Random(1)
    for _ in range(6):
        rule = [f"{draw.randint(0, 1)}{draw.choice('LR')}{draw.choice('ABCH')}" for _ in range(6)]
        machine = " ".join(
            f"{read}:{does}" for read, does in zip(("A0", "A1", "B0", "B1", "C0", "C1"), rule, strict=True)
        )
        tape = f"{draw.randrange(32):b}"
        network = example.Network(machine)
        hidden = network.initial(tape)
        for steps in range(1, 20):
            hidden = network.step(hidden)
            state, cells = by_hand(example.rules_of(machine), tape, steps)
            assert hidden[network.units[f"state {state}"]] == 1, machine
            left, right = network.tape(hidden)
            assert f"{left}[{right[:1] or '0'}]{right[1:]}".strip("0") == cells
            if network.halted(hidden):
                break


def test_a_cell_of_ones_own_learns_who_wins_and_holds_on_deeper_games(capsys: pytest.CaptureFixture[str]) -> None:
    loaded(EXAMPLES / "custom_trees.py").main(["--size", "200", "--epochs", "30"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1] for line in lines] == ["3", "4", "5"]
    for line in lines:
        assert float(line[3]) > 90 > float(line[-2])


def test_the_equations_of_a_trial_of_scale_are_numbered_over_all_files_and_made_once(tmp_path: Path) -> None:
    scale = loaded(EXAMPLES / "scale_predict.py")
    folder = tmp_path / "made" / "records"
    scale.generate(folder, 250, 100)
    shards = sorted(folder.iterdir())
    assert [path.name for path in shards] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    records = [record.fields for path in shards for record in read_records(path)]
    assert [record["id"] for record in records] == list(range(1, 251))
    assert all(parse_equation(record["equation"]).label == "Equality" for record in records)
    scale.generate(folder, 10, 1)
    assert sorted(folder.iterdir()) == shards
    assert [path.name for path in folder.parent.iterdir()] == ["records"]


def test_a_place_that_the_example_of_scale_cannot_use_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    scale = loaded(EXAMPLES / "scale_predict.py")
    assert scale.main(["--generate", "5", "--input", str(tmp_path / "file" / "records")]) == 2
    assert "records: Not a directory; make it writable, or choose another place" in capsys.readouterr().err


def test_without_ray_the_example_of_scale_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    assert loaded(EXAMPLES / "scale_predict.py").main(["--generate", "5"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'treemem[scale]'\n")


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("path", [EXAMPLE, LISTOPS], ids=lambda path: path.stem)
def test_an_interruption_while_libraries_are_imported_shows_no_traceback(path: Path, tmp_path: Path) -> None:
    (tmp_path / "treemem").mkdir()
    (tmp_path / "treemem" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    program = tmp_path / "example.py"
    program.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""
