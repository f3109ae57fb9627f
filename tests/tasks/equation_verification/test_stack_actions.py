from __future__ import annotations

import numpy as np
import pytest

from treemem.model import Model
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.stack_actions import action_tables, mean_actions
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_equation

TASK = EquationVerification()
FOREST = Forest.from_trees(
    [parse_equation(text) for text in ["sin(x + 1) = sin(x)", "x + y = y + sin(x)"]], tree_data={"label": [0, 0]}
)


@pytest.mark.parametrize("name", ["Tree-LSTM+stack+normalize+no-op", "Tree-LSTM+stack"])
def test_mean_actions_are_those_of_the_nodes_of_a_function_and_height(name: str) -> None:
    model = Model(TASK, TASK.networks[name].replace(hidden_size=4))
    rows = mean_actions(model, FOREST)
    assert [(row["function"], row["height"], row["nodes"]) for row in rows] == [
        *[("Add", 1, 2), ("Add", 2, 1), ("Add", "all", 3)],
        *[("sin", 1, 2), ("sin", 2, 1), ("sin", "all", 3)],
        *[("all", 1, 4), ("all", 2, 2), ("all", "all", 6)],
    ]
    sides = FOREST.split_roots()
    trace = model.encoder(TreeBatch.from_trees(sides, model.vocabulary), trace=True).trace
    sines = [node for node, label in enumerate(sides.label) if sides.labels[label] == "sin"]
    expected = trace["push"][sines].mean().item()
    assert rows[5]["push"] == pytest.approx(expected, abs=1e-6)
    if "no-op" in name:
        np.testing.assert_allclose([row["push"] + row["pop"] + row["no_op"] for row in rows], 1, atol=3e-6)


def test_tables_of_actions_are_means_over_seeds_with_gaps_where_no_node_is() -> None:
    def run(push: float) -> dict[str, object]:
        rows = [
            {"function": "Add", "height": 1, "nodes": 1, "push": push},
            {"function": "all", "height": "all", "nodes": 1, "push": push},
        ]
        return {"actions": rows}

    found = action_tables([run(0.25), run(0.75)])
    np.testing.assert_array_equal(found["maps"]["push"], [[0.5, np.nan], [np.nan, 0.5]])
    assert (found["rows"], found["columns"]) == (["Add", "all"], ["1", "all"])
