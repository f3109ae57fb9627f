from __future__ import annotations

import numpy as np
import pytest
import torch

from treemem.model import Model
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.generation.numeric import KINDS, generate_numeric
from treemem.tasks.equation_verification.numeric_errors import numeric_errors, reference_scores
from treemem.trees.forest import Forest

TASK = EquationVerification(numeric=True)


def held_out() -> Forest:
    forest = generate_numeric(150, seed=1)
    return forest[forest.tree_data["split"] == "test"]


def test_a_network_that_always_decodes_one_number_has_its_distance_as_error_and_knows_nothing_else() -> None:
    model = Model(TASK, TASK.networks["Tree-LSTM"].replace(hidden_size=4))
    with torch.no_grad():
        model.head.decoder.second.weight.zero_()
        model.head.decoder.second.bias.fill_(0.5)
    equations = held_out()
    rows = numeric_errors(model, equations)
    assert [row["kind"] for row in rows] == [*KINDS, "all"]
    assert rows[-1]["examples"] == sum(row["examples"] for row in rows[:-1]) == len(equations) == 30
    value = TASK.examples(equations).targets["value"]
    true = equations.tree_data["label"] == 1
    distance = np.abs(value - 0.5)
    assert rows[-1]["error"] == pytest.approx(distance[true].mean())
    pairs = [(a < b) + 0.5 * (a == b) for a in distance[true] for b in distance[~true]]
    assert rows[-1]["separated"] == pytest.approx(np.mean(pairs))
    assert rows[-1]["accuracy"] == pytest.approx(np.mean((distance <= 1e-3 * np.maximum(np.abs(value), 0.5)) == true))


def test_the_rounding_of_the_numbers_bounds_the_published_accuracy_but_not_where_they_are_exact() -> None:
    scores = reference_scores()
    assert [*scores] == [*KINDS, "all"]
    assert scores["decimal"]["calculator"] == 1  # expansions have no rounding
    for row in scores.values():
        assert 0.5 <= row["majority"] < row["calculator"]
    assert scores["function"]["calculator"] < 0.7
