from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import treemem
from treemem.data_parallel import Processes
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.runs.accelerator import fabric_of_process
from treemem.runs.learner import learner_of
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.generation.evaluation import UNDEFINED, USABLE, evaluate
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.mixed_generator import generate_mixed
from treemem.tasks.equation_verification.value_head import NUM_POINTS, ValueHead
from treemem.tasks.equation_verification.values import points, subtree_values
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

TASK = EquationVerification(read_out="values")
TREE_LSTM = NetworkConfig("TreeLSTM", {"hidden_size": 6})
TEXTS = ["x + 1 = 1 + x", "sqrt(x - 2) = log(x)", "1/(x - x) = sinh(9*y)"]


def forest(texts: list[str], label: list[int] | None = None) -> Forest:
    data = {} if label is None else {"label": label, "split": ["train"] * len(label)}
    return Forest.from_trees([parse_equation(text) for text in texts], tree_data=data)


def test_values_are_those_of_the_generators_evaluator() -> None:
    examples = TASK.examples(generate_mixed(600, seed=3, processes=1).forest)
    sides, index = examples.forest, examples.index(TASK.vocabulary)
    found = subtree_values(index, points(8))[index.number[sides.begin[1:] - 1]]
    table = ExpressionTable()
    wanted = evaluate(table, table.from_forest(sides), points(8).astype(complex), 8)
    there = (wanted.status == USABLE) & ~np.isnan(found)
    assert there.mean() > 0.9
    np.testing.assert_allclose(found[there], wanted.value[there].real, rtol=1e-7, atol=1e-9)
    assert np.isnan(found[wanted.status == UNDEFINED]).all()
    assert np.isnan(found[wanted.status == USABLE]).mean() < 0.001  # log(1, -2), by a complex one


def test_the_targets_of_a_batch_are_the_values_of_its_rows() -> None:
    examples = TASK.examples(forest(TEXTS, [1, 0, 0]))
    (batch,) = examples.loader(TASK.vocabulary).batches()
    values = examples.batch_targets(batch)["values"]
    assert values.shape == (batch.schedule.num_rows, NUM_POINTS)
    x, y = points(NUM_POINTS)[:2]
    sides = values[batch.schedule.row_of_root].numpy()
    for place, wanted in ((0, x + 1), (1, x + 1), (2, np.emath.sqrt(x - 2)), (3, np.emath.log(x)), (4, None)):
        if wanted is None:
            assert np.isnan(sides[place]).all()
        else:
            real = np.where(np.isreal(wanted), np.real(wanted), np.nan)
            np.testing.assert_allclose(sides[place], np.arcsinh(real), rtol=1e-6)
    np.testing.assert_allclose(sides[5], np.arcsinh(np.sinh(9 * y)).clip(-6, 6), rtol=1e-6)
    assert not np.array_equal(x, y)


def test_the_score_is_the_similarity_less_the_distances_of_the_values() -> None:
    head = ValueHead(4, num_points=3).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    left, right = encodings = torch.randn(2, 4, dtype=torch.float64)
    of_left, of_right = head.decoder(left), head.decoder(right)
    score = head.equality.scale * torch.cosine_similarity(left, right, dim=0) + head.equality.bias
    for point in range(3):
        sharpness = head.log_sharpness[point].exp()
        score = score - head.weight[point] * torch.tanh(sharpness * (of_left[point] - of_right[point]).abs())
    torch.testing.assert_close(head(encodings[None]), score)
    with pytest.raises(GraphError, match="2 trees per example"):
        head(encodings[:1][None])


def test_the_loss_is_the_mean_over_distinct_expressions_and_points_with_a_value(tmp_path: Path) -> None:
    examples = TASK.examples(forest(TEXTS, [1, 0, 0]))
    (batch,) = examples.loader(TASK.vocabulary).batches()
    model = Model(TASK, TREE_LSTM)
    processes = Processes()
    learner = learner_of(model)(model, TrainingOptions(), processes, fabric_of_process(processes, "cpu", "32-true"))
    targets = examples.batch_targets(batch)
    found = learner.losses(batch, targets)["values"]
    decoded = model.head.decoder(model.encoder(batch).rows["h"])
    errors = [
        0.5 * off**2 / 0.1 if off < 0.1 else off - 0.05
        for row, value in zip(decoded.tolist(), targets["values"].tolist(), strict=True)
        for off in (abs(a - b) for a, b in zip(row, value, strict=True) if b == b)
    ]
    assert float(found.count) == len(errors) < decoded.numel()
    assert found.mean.item() == pytest.approx(sum(errors) / len(errors), rel=1e-5)
    found.sum.backward()
    assert all(weight.grad.isfinite().all() for weight in model.encoder.parameters() if weight.grad is not None)


def test_a_network_learns_values_and_is_saved_and_predicts(tmp_path: Path) -> None:
    data = generate_mixed(400, seed=1, processes=1)
    fitted = fit(
        TASK,
        TREE_LSTM,
        data,
        TrainingOptions(epochs=6, batch_size=16, learning_rate=0.02, seed=1),
        output=tmp_path / "run",
    )
    logged = [json.loads(line)["values_loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logged[-1] < 0.8 * logged[0]
    model = treemem.load(tmp_path / "run")
    equations = forest(TEXTS)
    examples = TASK.examples(equations)
    probabilities = model.probabilities(model.outputs(examples), examples.targets)
    answers = [answer["probability"] for answer in treemem.TreePredictor(model).predict(equations)]
    assert answers == pytest.approx(probabilities.tolist(), abs=1e-6)
    assert fitted.model.task == model.task == TASK


def test_what_does_not_go_with_values_is_refused() -> None:
    with pytest.raises(RecipeError, match="read_out: values does not go with numeric equations"):
        EquationVerification(numeric=True, read_out="values")
    with pytest.raises(RecipeError, match="needs a state for each node, and LSTM reads sequences"):
        Model(TASK, NetworkConfig("LSTM", {"hidden_size": 6}))
