"""Examples in other forms than text: sympy, graphs, nested data, DataFrames."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_parity import HAS_DGL, NO_DGL

from treemem.errors import GraphError, ParseError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.listops import ListOps
from treemem.trees import parse_equation

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
