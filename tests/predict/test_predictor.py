from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
from models import small_model
from toy_task import MoreX

import treemem
from treemem.errors import RecipeError
from treemem.explore.explorer import page_data
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor, chunks
from treemem.runs import TrainingOptions, fit
from treemem.tasks.equation_verification import EquationVerification
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

GOOD = ["x + y = y + x", "sin(x)^2 = 1 - cos(x)^2", "x = -x", "log(x, 2) = sqrt(x)/17", "x*(y + z) = x*y + x*z"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(chunks, "MOST_PROCESSES", 1)


def test_every_record_has_one_answer_in_order_and_a_bad_one_says_why() -> None:
    records = [
        *("x = x", "x =", "x = y\t0", "", "x = x\t1\tz"),
        *({"equation": "y = y", "label": "nonsense", "id": "a"}, {"lhs": "x", "rhs": "y"}, {"lhs": "x"}, {}),
        *({"preorder": "Equality Symbol:var_0 Integer:1"}, {"tree": "(Equality Symbol:var_0 Integer:1)"}),
        *({"tree": "(Add Symbol:var_0 Integer:1)"}, {"tree": "(Equality (foo Integer:1) Integer:1)"}),
        *({"tree": "(Equality (sin Integer:1 Integer:2) Integer:1)"}, {"equation": 7}, 5, parse_equation("x = x")),
        parse_brackets("(Add x y)"),
    ]
    answers = list(TreePredictor(small_model()).predict(records))
    assert [answer["id"] for answer in answers] == [*range(1, 6), "a", *range(7, len(records) + 1)]
    expected = {
        2: "line 2, column 4: unexpected end of the text; expected a number, a name, '(' or '-'",
        4: "line 4: the text is empty; expected an equation",
        5: "line 5, column 8: 3 parts between tabs; expected equation<TAB>label",
        8: "the field 'rhs' is missing or empty; expected a text in both lhs and rhs",
        9: "no equation among the fields (none)",
        12: "line 12: the root is 'Add' with 2 children",
        13: "line 13: node 2 (in post-order): unknown function 'foo'",
        14: "'sin' is known with 1 child and has 2 here",
        15: "the field 'equation' is 7; expected a text",
        16: "the root is '5' with 0 children",
        18: "the root is 'Add' with 2 children",
    }
    for line, answer in enumerate(answers, start=1):
        assert list(answer) == ["id", "prediction", "probability", "error", "warning"]
        if line in expected:
            assert expected[line] in answer["error"]
            assert answer["prediction"] is None
            assert answer["probability"] is None
        else:
            assert answer["error"] is None
            assert answer["prediction"] == int(answer["probability"] > 0.5)
    assert answers[9]["probability"] == answers[10]["probability"]


@pytest.mark.parametrize("network", ["TreeLSTM", "StackTreeRNN", "LSTM"])
def test_probabilities_are_those_of_the_model(network: str) -> None:
    model = small_model(network=network)
    found = [answer["probability"] for answer in TreePredictor(model).predict(GOOD)]
    np.testing.assert_allclose(found, model.predict(GOOD), rtol=0, atol=1e-6)
    without = [answer["probability"] for answer in TreePredictor(model, cache_bytes=0).predict(GOOD)]
    np.testing.assert_allclose(without, found, rtol=0, atol=1e-6)


def test_a_model_that_is_given_stays_in_its_mode_and_where_it_is() -> None:
    model = small_model().train()
    answers = list(TreePredictor(model).predict(GOOD))
    assert all(module.training for module in model.modules())
    assert answers == list(TreePredictor(model.eval()).predict(GOOD))
    assert TreePredictor(model.to("meta")).model.device.type == "meta"


def test_the_threshold_decides_where_the_answer_is_yes_or_no() -> None:
    predictor = TreePredictor(small_model())
    probability = sorted(answer["probability"] for answer in predictor.predict(GOOD))
    for threshold, count in ((probability[-1], 0), (probability[1], 3), (0.0, 5)):
        answers = predictor.with_threshold(threshold).predict(GOOD)
        assert sum(answer["prediction"] for answer in answers) == count
    assert predictor.threshold == 0.5
    with pytest.raises(RecipeError, match="threshold must be a probability"):
        TreePredictor(small_model(), threshold=1.5)


def test_classes_are_told_by_name_with_the_probability_of_the_likeliest() -> None:
    for options in ({}, {"form": "nary"}):
        model = small_model("listops", **options)
        lines = ["[MAX 2 9 ]", "9\t[MAX 2 9 ]", "[MAX 2 9 ]\t9", "\t[MAX 2 9 ]", "( ( ( [MAX 2 ) 9 ) ] )", "7\t7"]
        records = [*lines, {"Source": "[MAX 2 9 ]"}, {"tree": "[MAX 2 9 ]", "label": 3}, "[MAX 2", "[MAX 2 9 ]\t9\t1"]
        with pytest.raises(RecipeError, match="a threshold has no effect on listops"):
            TreePredictor(model, threshold=1.0)
        answers = list(TreePredictor(model).predict(records))
        probabilities = model.predict(["[MAX 2 9 ]"])[0]
        for answer in [*answers[:5], *answers[6:8]]:
            assert answer["prediction"] == str(probabilities.argmax())
            assert answer["probability"] == pytest.approx(probabilities.max(), abs=1e-6)
        assert answers[5]["prediction"] == str(model.predict(["7"])[0].argmax())
        assert [answer["error"] is None for answer in answers] == [True] * 8 + [False] * 2


def test_pairs_of_formulas_are_read_from_the_last_parts_of_a_line_or_from_fields() -> None:
    for form in ("binary", "operators"):
        model = small_model("logical_inference", form=form)
        left, right = "( a ( and b ) )", "( not c )"
        records = [f"{left}\t{right}", f"#\t{left}\t{right}", f"1\t#\t{left}\t{right}", {"left": left, "right": right}]
        records += [{"lhs": left, "rhs": right, "id": 9}, left, f"1\t#\t{left}", {"left": left}, {"lhs": left}]
        answers = list(TreePredictor(model).predict(records))
        probabilities = model.predict([f"{left}\t{right}"])[0]
        assert model.task.class_names is not None
        for answer in answers[:5]:
            assert answer["prediction"] == model.task.class_names[int(probabilities.argmax())]
            assert answer["probability"] == pytest.approx(probabilities.max(), abs=1e-6)
        assert answers[4]["id"] == 9
        expected = ["one part", "right side is missing", "fields 'left'", "fields 'lhs'"]
        for answer, problem in zip(answers[5:], expected, strict=True):
            assert problem in answer["error"]


def test_a_label_that_the_model_does_not_know_is_an_error_of_its_record() -> None:
    vocabulary = Vocabulary(["Symbol:var_0", "Symbol:var_1"], [("Add", 2)])
    model = Model(EquationVerification(), NetworkConfig("TreeLSTM", {"hidden_size": 4}), vocabulary)
    texts = ["x + y = y + x", "sin(x) = x", "x = y", "x + y + z = x", "x = x"]
    answers = list(TreePredictor(model).predict(texts))
    good, wrong = (
        [0, 2, 4],
        {1: "line 2: node 2 .* unknown function 'sin'", 3: "line 4: node 3 .*'Symbol:var_2'; did you"},
    )
    for place, answer in enumerate(answers):
        assert answer["error"] is None if place in good else re.match(wrong[place], answer["error"])
    found = [answers[place]["probability"] for place in good]
    np.testing.assert_allclose(found, model.predict([texts[place] for place in good]), atol=1e-6)


def test_an_output_that_is_no_number_is_an_error_of_its_record_alone() -> None:
    model = small_model()
    answers = list(TreePredictor(model).predict(GOOD))
    with torch.no_grad():
        leaves = next(weight for weight in model.parameters() if weight.shape[:1] == (34,))
        leaves[model.vocabulary.leaves.index("Symbol:var_2")] = torch.nan
    found = list(TreePredictor(model).predict(GOOD))
    assert found[4] == {
        "id": 5,
        "prediction": None,
        "probability": None,
        "error": "line 5: the network's output is not a number",
        "warning": None,
    }
    assert found[:4] == answers[:4]


def test_records_are_read_as_they_are_needed() -> None:
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield "x = x"

    answers = TreePredictor(small_model(), processes=1).predict(counted())
    next(answers)
    assert taken == 3
    for _ in range(9):
        next(answers)
    assert taken == 12


def test_an_id_is_what_json_can_hold_whatever_it_is() -> None:
    for given, identity in ((np.array([1, 2]), "[1, 2]"), (np.array(3), 3), (torch.tensor([1, 2]), "tensor([1, 2])")):
        assert chunks.id_of({"id": given}, 7) == identity
    for missing in (float("nan"), np.float32("nan"), np.datetime64("NaT")):
        assert chunks.id_of({"id": missing}, 7) == 7


def test_columns_become_columns() -> None:
    predictor = TreePredictor(small_model())
    batch = {"id": np.array([3, 5, 8, 9]), "equation": np.array(["x = x", "x =", "y = 1", "x = x"], object)}
    found = predictor(batch)
    assert list(found) == ["id", "prediction", "probability", "error", "warning"]
    assert found["id"].tolist() == [3, 5, 8, 9]
    assert [type(value) for value in found["prediction"]] == [int, type(None), int, int]
    assert np.isnan(found["probability"]).tolist() == [False, True, False, False]
    assert found["probability"].dtype == np.float64
    assert "line 2, column 4" in found["error"][1]
    holes = predictor({"text": np.array(["x = x", None], object)})
    assert holes["error"].tolist() == [
        None,
        "line 2: NoneType is no tree; give a Tree, a text, a number, a list of a label and children, a dictionary, a "
        "node of ast or a sympy expression",
    ]
    lines = predictor({"text": np.array(["x = x\t1"])})
    assert lines["probability"].tolist() == found["probability"][:1].tolist()
    assert [column.shape for column in predictor({"equation": np.array([])}).values()] == [(0,)] * 5


def test_records_read_in_other_processes_have_the_same_answers() -> None:
    records = [*GOOD, "x =", *GOOD, {"equation": "x = x", "id": [1]}, {}]
    model = small_model()
    expected = list(TreePredictor(model, processes=1).predict(records))
    answers = TreePredictor(model, processes=2).predict(records)
    assert list(answers) == expected
    assert expected[11]["id"] == "[1]"
    abandoned = TreePredictor(model, processes=2).predict(records * 10)
    next(abandoned)
    abandoned.close()


def test_a_model_can_be_named_and_a_single_record_must_stand_in_a_list() -> None:
    predictor = TreePredictor("equation_verification")
    assert [answer["prediction"] for answer in predictor.predict(["x + y = y + x", "x = -x"])] == [1, 0]
    symbols = sympy.Eq(sympy.Symbol("x"), 1)
    for record in ("x = x", {"equation": "x = x"}, parse_equation("x = x"), symbols, 5):
        with pytest.raises(RecipeError, match="put a single one in a list"):
            predictor.predict(record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "functions", "text", "warning"),
    [
        (["x", "y"], 0, "(f x y)", None),
        (["x"], 0, "(f x y)", "no training example had y"),
        (["x", "y"], 0, "(f x zzz)", "no training example had zzz"),
        (["x", "y", "<unk>"], 0, "(f x (f www zzz))", "read as <unk>: www, zzz"),
        (["x", "<unk>"], 0, "(f y zzz)", "no training example had y; read as <unk>: zzz"),
        (["x", "y"], 1, "(f x (f y))", "no training example had f with 1 child"),
        (["x", "y"], 2, "(f x (k y))", "no training example had k"),
    ],
)
def test_what_training_did_not_have_is_warned_of_whether_or_not_the_vocabulary_has_it(
    labels: list[str],
    functions: int,
    text: str,
    warning: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training had the given labels, f with two children, and a word that is read as unknown if <unk> is given."""
    kinds = [("f", 2), ("f", 1)]
    vocabulary = Vocabulary(["x", "y", "<unk>"], kinds, unknown="<unk>", kinds="arity" if functions == 2 else "label")
    leaves = [label if label != "<unk>" else "rare" for label in labels]
    forest = Forest.from_trees([Tree("f", [Tree("x"), Tree(leaf)]) for leaf in leaves])
    forest = forest.with_data(tree_data={"label": np.arange(len(forest)) % 2})
    monkeypatch.setattr(MoreX, "vocabulary", vocabulary)
    training = TrainingOptions(epochs=1, accelerator="cpu")
    network = NetworkConfig("TreeRNN", {"hidden_size": 2})
    fit(MoreX(), network, forest, training, output=tmp_path)
    model = treemem.load(tmp_path)
    (answer,) = TreePredictor(model).predict([text])
    assert answer["error"] is None
    assert answer["warning"] == warning
    assert page_data(model, [text])["examples"][0]["warning"] == warning
