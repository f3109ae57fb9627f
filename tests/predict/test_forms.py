"""Examples in other forms than text: sympy, graphs, nested data, DataFrames."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_parity import HAS_DGL, NO_DGL

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor, predict_file
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.listops import ListOps
from treemem.tasks.table import task_from_table
from treemem.trees import format_text, parse_brackets, parse_equation

TASK = EquationVerification()
MODEL = Model(TASK, NetworkConfig("TreeLSTM", {"hidden_size": 4}))
EQUATION = "x + sin(y) = 2"


def test_sympy_and_nested_data_are_the_same_as_text() -> None:
    sympy = pytest.importorskip("sympy")
    x, y = sympy.symbols("x y")
    nested = ["Equality", ["Add", "Symbol:var_0", ["sin", "Symbol:var_1"]], "Integer:2"]
    symbols = sympy.Eq(sympy.Add(x, sympy.sin(y), evaluate=False), 2)
    forms = [EQUATION, parse_equation(EQUATION), symbols, nested, {"label": nested[0], "children": nested[1:]}]
    probabilities = MODEL.predict(forms)
    np.testing.assert_allclose(probabilities, probabilities[0])
    assert len({answer["probability"] for answer in TreePredictor(MODEL).predict(forms)}) == 1
    with pytest.raises(GraphError, match="put a single one in brackets"):
        MODEL.predict(sympy.Eq(x, y))
    with pytest.raises(GraphError, match="example 2: equation trees have no sympy node 'Max'"):
        MODEL.predict([EQUATION, sympy.Eq(sympy.Max(x, y), x)])


@pytest.mark.skipif(not HAS_DGL, reason=NO_DGL)
def test_a_graph_of_both_sides_is_an_equation() -> None:
    from treemem.dgl_import import import_dgl

    sides = parse_equation(EQUATION).children
    dgl = import_dgl()
    graph = dgl.batch([side.to_dgl(TASK.vocabulary.labels) for side in sides])
    cycle = dgl.graph(([0, 1], [1, 0]))
    cycle.ndata["label"] = torch.zeros(2, dtype=torch.int64)
    np.testing.assert_allclose(*MODEL.predict([EQUATION, graph]))
    first, second, bad = TreePredictor(MODEL).predict([EQUATION, graph, cycle])
    assert first["probability"] == pytest.approx(second["probability"])
    assert "line 3: a cycle of 2 nodes" in bad["error"]


def test_a_data_frame_gives_answers_with_its_index() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"equation": [EQUATION, "x ="], "note": ["a", None]}, index=["one", "two"])
    answers = TreePredictor(MODEL).predict(frame)
    assert list(answers.columns) == ["prediction", "probability", "error", "warning"]
    assert list(answers.index) == ["one", "two"]
    assert "unexpected end" in answers.loc["two", "error"]
    probabilities = MODEL.predict(frame[:1])
    assert probabilities["one"] == pytest.approx(answers.loc["one", "probability"])
    with pytest.raises(ParseError, match="row two, column 4: unexpected end"):
        MODEL.predict(frame)
    lists = Model(ListOps(), NetworkConfig("TreeLSTM", {"hidden_size": 4}))
    classes = lists.predict(pandas.DataFrame({"tree": ["[MAX 2 9 ]"]}, index=[7]))
    assert classes.shape == (1, 10)
    assert list(classes.index) == [7]


def test_a_file_of_trees_in_a_form_is_predicted(tmp_path: Path) -> None:
    trees = [str(parse_equation(text)) for text in (EQUATION, "sin(y) = 3")]
    file = tmp_path / "trees.json"
    as_lists = [format_text(parse_brackets(tree), "json") for tree in trees]
    file.write_text("\n".join([as_lists[0], "", '["f", "x"]', "(f x)", as_lists[1]]))
    counts = predict_file(TreePredictor(MODEL), file, tmp_path / "answers.jsonl", form="json")
    assert (counts.records, counts.rejected) == (4, 2)
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == [1, 3, 4, 5]
    np.testing.assert_allclose(
        [answer["probability"] for answer in answers[::3]], MODEL.predict([EQUATION, "sin(y) = 3"]), atol=1e-6
    )
    assert answers[2]["error"].startswith("line 4, column 1: this looks like brackets")
    file.write_text("\n".join([as_lists[0], "", "", "(f x)"]))
    with pytest.raises(ParseError, match=r"trees.json, line 4, column 1: this looks like brackets"):
        predict_file(TreePredictor(MODEL), file, tmp_path / "other.jsonl", form="json", strict=True)
    with pytest.raises(RecipeError, match="choose one"):
        predict_file(TreePredictor(MODEL), file, tmp_path / "third.jsonl", form="json", format="text")
    with pytest.raises(RecipeError, match="there is no form 'jsn'"):
        predict_file(TreePredictor(MODEL), file, tmp_path / "third.jsonl", form="jsn")  # type: ignore[arg-type]


def test_a_model_of_a_table_keeps_numbers_in_texts_of_another_form() -> None:
    task = task_from_table(
        [{"tree": "(f 2 x)", "label": "a"}, {"tree": "(f 3 y)", "label": "b"}], tree="tree", target="label", number="N"
    )
    reader = task.reader
    assert reader.tree_in("(f 2 x)", "smtlib") == reader.parse("(f 2 x)") == parse_brackets("(f N=2.0 x)")
    reader.most_nodes = 1
    with pytest.raises(GraphError, match="this record has 17 characters"):
        reader.tree_in("(f 2 xxxxxxxxxxx)", "smtlib")
