from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from predict.models import small_model

from treemem import explain
from treemem.attribution import METHODS, gradients
from treemem.errors import RecipeError
from treemem.predict import TreePredictor, predict_file
from treemem.predict.predictor import FIELDS
from treemem.records import read_records

TEXTS = ["x + y = y + x", "x + = y", "sin(x) = y"]


@pytest.fixture
def equations(tmp_path: Path) -> Path:
    path = tmp_path / "equations.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [dict(record.fields) for record in read_records(path)]


@pytest.mark.parametrize("method", METHODS)
def test_answers_have_the_explanation_of_their_prediction(method: Any) -> None:
    model = small_model()
    plain = [*TreePredictor(model).predict(TEXTS)]
    answers = [*TreePredictor(model, explain=method).predict(TEXTS)]
    assert [{name: answer[name] for name in FIELDS} for answer in answers] == plain
    assert answers[1]["explanation"] is None
    expected = explain(model, [TEXTS[0], TEXTS[2]], method)
    for answer, explanation in zip(answers[::2], expected, strict=True):
        told = answer["explanation"]
        assert told["method"] == method
        assert told["answer"] == answer["prediction"] == explanation.answer
        assert [entry["node"] for entry in told["nodes"]] == [*range(explanation.forest.num_nodes)]
        for entry, part in zip(told["nodes"], explanation.subtree.tolist(), strict=True):
            assert entry["subtree"] == pytest.approx(part, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("threshold", [0.0, 1e-9, 1 - 1e-9, 1.0])
def test_the_predicted_answer_is_explained_at_any_threshold(threshold: float) -> None:
    model = small_model()
    model.temperature = 2.0
    predictor = TreePredictor(model, explain="gradient_times_input", threshold=threshold)
    answers = [*predictor.predict([TEXTS[0], TEXTS[2]])]
    assert [answer["prediction"] for answer in answers] == [int(threshold < 0.5)] * 2
    assert [answer["explanation"]["answer"] for answer in answers] == [int(threshold < 0.5)] * 2


@pytest.mark.parametrize("name", ["answers.csv", "answers.jsonl", "answers.parquet", "answers.jsonl.gz"])
def test_files_hold_explanations_as_json(equations: Path, tmp_path: Path, name: str) -> None:
    predictor = TreePredictor(small_model(), explain="occlusion")
    predict_file(predictor, equations, tmp_path / name)
    cells = [record["explanation"] for record in records(tmp_path / name)]
    told = [json.loads(cell) if isinstance(cell, str) and cell else cell or None for cell in cells]
    assert told == [answer["explanation"] for answer in predictor.predict(TEXTS)]


def test_standard_output_holds_them_too(equations: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    predict_file(TreePredictor(small_model(), explain="occlusion"), equations, "-", output_format="csv")
    rows = [*csv.DictReader(capsysbinary.readouterr().out.decode().splitlines())]
    assert json.loads(rows[0]["explanation"])["method"] == "occlusion"


def test_a_run_with_explanations_resumes_with_the_same_ones_only(equations: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "answers.jsonl", small_model()
    with pytest.raises(Exception, match="line 2"):
        predict_file(TreePredictor(model, explain="occlusion"), equations, output, strict=True)
    with pytest.raises(RecipeError, match="explanation"):
        predict_file(TreePredictor(model, explain="gradient_times_input"), equations, output, resume=True)
    with pytest.raises(RecipeError, match="explanation"):
        predict_file(model, equations, output, resume=True)
    predict_file(TreePredictor(model, explain="occlusion"), equations, output, resume=True)
    assert len(records(output)) == 3


def test_a_data_frame_has_a_column_of_explanations() -> None:
    frame = pandas.DataFrame({"equation": TEXTS}, index=[7, 8, 9])
    answers = TreePredictor(small_model(), explain="occlusion").predict(frame)
    assert answers.index.tolist() == [7, 8, 9]
    assert answers["explanation"][7]["method"] == "occlusion"
    assert answers["explanation"][8] is None


def test_a_record_too_large_for_occlusion_is_predicted_and_warned_of() -> None:
    large = " + ".join(["x"] * 1100) + " = x"
    answers = [*TreePredictor(small_model(), explain="occlusion").predict([TEXTS[0], large, TEXTS[2]])]
    assert [answer["explanation"] is None for answer in answers] == [False, True, False]
    assert answers[1]["prediction"] in (0, 1)
    assert answers[1]["warning"].startswith("no explanation: it has 2200 nodes, and occlusion takes at most 2000")
    assert (
        answers[2]["explanation"]
        == next(iter(TreePredictor(small_model(), explain="occlusion").predict([TEXTS[2]])))["explanation"]
    )


def test_a_missed_integral_is_a_warning_without_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "_TOLERANCE", 0.0)
    monkeypatch.setattr(gradients, "_MOST_STEPS", 32)
    answers = [*TreePredictor(small_model(), explain="integrated_gradients").predict(TEXTS)]
    assert answers[0]["prediction"] is not None
    assert answers[0]["explanation"] is None
    assert answers[0]["warning"].startswith("no explanation: the network changes too steeply")
    assert answers[1]["warning"] is None


def test_what_cannot_be_explained_is_refused_at_once() -> None:
    with pytest.raises(RecipeError, match="method='gradient' is none of occlusion"):
        TreePredictor(small_model(), explain="gradient")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="no answer 2; it has '0', '1'"):
        TreePredictor(small_model(), explain="occlusion", explain_answer=2)
    with pytest.raises(RecipeError, match="explain_answer has no effect without explain"):
        TreePredictor(small_model(), explain_answer=1)
