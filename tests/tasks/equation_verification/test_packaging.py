from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import treemem
from treemem.checkpoint import load_pretrained, pretrained_folder, pretrained_names
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model
from treemem.runs import StudyRun, TrainingOptions, read_study, run_study
from treemem.runs.evaluate import evaluate
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.tasks.equation_verification.packaging import package_model
from treemem.tasks.equation_verification.readers import read_equations
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.trees.forest import Forest

ROOT = Path(__file__).parents[3]
TASK = EquationVerification()
TEXTS = ["x + 1 = 1 + x", "sin(x) = cos(x)"]


@pytest.fixture(scope="module")
def equations() -> Forest:
    return generate_equations(400, seed=1)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, equations: Forest) -> Path:
    folder = tmp_path_factory.mktemp("study")
    network = TASK.networks["Tree-LSTM"].replace(hidden_size=4)
    run = StudyRun("best/small", "small", network, TrainingOptions(epochs=1))
    run_study(TASK, [run], {"data": equations}, folder=folder / "runs", results=folder / "best.jsonl")
    return folder


def _accuracy(model: Model, equations: Forest, split: str | None) -> str:
    return f"{100 * evaluate(model, equations, split=split, progress=False).overall.accuracy:.2f}"


def _scores_of_card(card: str) -> dict[str, str]:
    """The accuracies of the first table of a card."""
    lines = card.split("| equations")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {title: accuracy for title, _, accuracy, *_ in cells}


def test_a_packaged_model_says_nearly_the_same_and_what_it_is(study: Path, equations: Forest, tmp_path: Path) -> None:
    folder = tmp_path / "pretrained"
    record = read_study(study / "best.jsonl")[0]
    for _ in range(2):  # the second replaces the first
        package_model(record, study / "runs", equations, {"textbook_heldout": equations[:100]}, folder)
    half = treemem.load(folder)
    assert {str(weight.dtype) for weight in load_file(folder / "model.safetensors").values()} == {"torch.float16"}
    whole = treemem.load(study / "runs" / "best" / "small")
    np.testing.assert_allclose(half.predict(TEXTS), whole.predict(TEXTS), atol=2e-3)
    card = (folder / "CARD.md").read_text(encoding="utf-8")
    assert record["data"]["hash"] in card
    assert _scores_of_card(card) == {
        "generated like the training equations, depth 8-13": _accuracy(half, equations, "test"),
        "textbooks, held out": _accuracy(half, equations[:100], None),
    }
    training = equations[equations.tree_data["split"] == "train"]
    count = (training.label == training.labels.index("csc")).sum()
    assert "rarely also (with counts) " in card
    assert f"csc ({count})" in card
    assert "One:1" not in card
    assert [path.name for path in tmp_path.iterdir()] == ["pretrained"]


@pytest.mark.parametrize("name", ["equation_verification", "equation_verification/stack"])
def test_the_card_has_the_accuracy_that_evaluate_prints_on_published_equations(name: str, shared_data: Path) -> None:
    equations = read_equations(shared_data / "equations" / "published_dev.jsonl", strict=True).forest
    accuracy = 100 * evaluate(load_pretrained(name), equations, progress=False).overall.accuracy
    folder = pretrained_folder(name)
    assert folder is not None
    row = _scores_of_card((folder / "CARD.md").read_text(encoding="utf-8"))
    assert row["the same, variables numbered in order of appearance"] == f"{accuracy:.2f}"
    if name == "equation_verification":
        assert f"It judges {accuracy:.1f} % of" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_may_not_be_packaged_is_refused_and_what_was_there_stays(
    study: Path, equations: Forest, tmp_path: Path
) -> None:
    folder = tmp_path / "pretrained"
    (small,) = read_study(study / "best.jsonl")
    package_model(small, study / "runs", equations, {}, folder)
    with pytest.raises(RecipeError, match=r"weights .* are not those of its record"):
        package_model({**small, "weights": "others"}, study / "runs", equations, {}, folder)
    with pytest.raises(RecipeError, match="'best/small' was trained on other equations"):
        package_model(small, study / "runs", equations[:300], {}, folder)
    assert treemem.load(folder).network.options["hidden_size"] == 4


def test_a_task_can_come_with_several_models() -> None:
    assert {"equation_verification", "equation_verification/stack"} <= set(pretrained_names())
    model = load_pretrained("equation_verification/stack")
    assert (model.network.network, model.network.options["stack_size"]) == ("StackTreeLSTM", 5)
    assert (treemem.load("equation_verification/stack").predict(TEXTS) > 0.5).tolist() == [True, False]
    with pytest.raises(CheckpointError, match="no trained model 'equation_verification/queue' comes with treemem"):
        load_pretrained("equation_verification/queue")


def test_a_task_without_a_model_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert pretrained_folder("equation_verification").parent.name == "equation_verification"
    monkeypatch.setattr("treemem.checkpoint.model_folder.pretrained_folder", lambda task: tmp_path / "none")
    with pytest.raises(CheckpointError, match="no trained model 'equation_verification' comes with treemem"):
        load_pretrained("equation_verification")
    monkeypatch.undo()
    with pytest.raises(RecipeError, match="no task 'equations'"):
        load_pretrained("equations")
