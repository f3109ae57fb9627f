from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from independent_evaluation import value_of
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

import treemem
from treemem import TreeBatch
from treemem.data.loader import BatchOptions
from treemem.data.sum_count import SumCount
from treemem.data_parallel import Processes
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.encoder_output import EncoderOutput
from treemem.runs import TrainingOptions, fit
from treemem.runs.accelerator import fabric_of_process
from treemem.runs.training_step import learner_of
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.generation.evaluation import evaluate
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.functions import USABLE
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.tasks.equation_verification.value_head import NUM_POINTS, ValueHead
from treemem.tasks.equation_verification.values import points, subtree_values
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import UNARY_FUNCTIONS
from treemem.trees.formats.equations.parser import parse_equation, parse_expression

TASK = EquationVerification(read_out="values")
TREE_LSTM = NetworkConfig("TreeLSTM", {"hidden_size": 6})
TEXTS = ["x + 1 = 1 + x", "sqrt(x - 2) = log(x)", "1/(x - x) = sinh(9*y)"]


def forest(texts: list[str], label: list[int] | None = None) -> Forest:
    data = {} if label is None else {"label": label, "split": ["train"] * len(label)}
    return Forest.from_trees([parse_equation(text) for text in texts], tree_data=data)


def values_of(texts: list[str]) -> NDArray[np.float64]:
    """Of the left sides, each at one point, where the first variable is 2 and the second -3."""
    examples = TASK.examples(forest([f"{text} = 1" for text in texts]))
    index = examples.index(TASK.vocabulary)
    at = np.array([[2.0], [-3.0], *[[0.0]] * 8])
    return subtree_values(index, at)[index.number[examples.forest.begin[1::2] - 1], 0]


def test_values_are_those_of_the_generators_evaluator() -> None:
    examples = TASK.examples(generate_equations(600, seed=3, processes=1))
    sides, index = examples.forest, examples.index(TASK.vocabulary)
    found = subtree_values(index, points(8))[index.number[sides.begin[1:] - 1]]
    table = ExpressionTable()
    wanted = evaluate(table, table.from_forest(sides), points(8).astype(complex), 8)
    there = (wanted.status == USABLE) & (np.abs(wanted.value) < 1e12)
    assert there.mean() > 0.9
    assert np.isnan(found[there]).mean() < 0.001  # log(1, -2) has a value if logarithms are complex
    there &= ~np.isnan(found)
    np.testing.assert_allclose(found[there], wanted.value[there].real, rtol=1e-7, atol=1e-9)


def test_every_function_and_constant_has_its_value() -> None:
    texts = [*(f"{name}(x)" for name in UNARY_FUNCTIONS), "x + y", "x*y", "x^y", "log(8, x)", "(-3)^x", "x/(y - 3)"]
    texts += ["pi", "e", "0.7", "-1/2"]
    at = [complex(value) for value in (2, -3)]
    exact = [value_of(parse_expression(text, variables="indexed"), at) for text in texts]
    wanted = {t: value.real if abs(value.imag) < 1e-9 else math.nan for t, value in zip(texts, exact, strict=True)}
    assert sum(map(math.isnan, wanted.values())) == 4  # asin, acos, atanh and asech of 2
    without_value = ["(-3)^(1/x)", "log(-3)", "1/(x - 2)", "oo", "(1/(x - 2))^0", "1^sqrt(-3)", "exp(x^9)"]
    wanted |= dict.fromkeys(without_value, math.nan)
    np.testing.assert_allclose(values_of(list(wanted)), list(wanted.values()), rtol=1e-12)


@pytest.mark.parametrize("share_subtrees", [True, False])
def test_the_targets_of_a_batch_are_the_values_of_its_rows(share_subtrees: bool) -> None:
    examples = TASK.examples(forest(["x = y", *TEXTS], [0, 1, 0, 0]))
    options = BatchOptions(share_subtrees=share_subtrees)
    (batch,) = examples.loader(TASK.vocabulary, np.array([3, 1, 2]), options).batches()
    values = examples.batch_targets(batch)["values"]
    assert values.shape == (batch.schedule.num_rows, NUM_POINTS)
    x, y = points(NUM_POINTS)[:2]
    assert not np.array_equal(x, y)
    found = values[batch.schedule.row_of_root].numpy()
    with np.errstate(invalid="ignore"):
        sides = [np.full(NUM_POINTS, np.nan), np.sinh(9 * y), x + 1, x + 1, np.sqrt(x - 2), np.log(x)]
    np.testing.assert_allclose(found, np.arcsinh(sides).clip(-6, 6), rtol=1e-6)
    assert "values" not in examples.known_targets(batch)


def test_the_score_is_the_similarity_less_the_distances_in_units_of_the_expected_errors() -> None:
    head = ValueHead(4, num_points=3).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    left, right = encodings = torch.randn(2, 4, dtype=torch.float64)
    (of_left, error_left, logit_left), (of_right, error_right, logit_right) = head.decode(left), head.decode(right)
    score = head.equality.scale * torch.cosine_similarity(left, right, dim=0) + head.equality.bias
    for point in range(3):
        both = logit_left[point].sigmoid() * logit_right[point].sigmoid()
        distance = (of_left[point] - of_right[point]).abs() / (error_left[point] + error_right[point])
        score = score - head.weight[point] * both * torch.tanh(head.log_sharpness[point].exp() * distance)
    torch.testing.assert_close(head(encodings[None]), score)
    with pytest.raises(GraphError, match="2 trees per example"):
        head(encodings[:1][None])


def learner(encoder: torch.nn.Module | None = None, precision: str = "32-true") -> Any:
    model = Model(TASK, TREE_LSTM)
    if encoder is not None:
        model.encoder = encoder
    options, processes = TrainingOptions(), Processes()
    return learner_of(model)(model, options, processes, fabric_of_process(processes, "cpu", precision))


def test_the_loss_is_a_mean_over_all_nodes_and_points() -> None:
    examples = TASK.examples(forest(TEXTS, [1, 0, 0]))
    (batch,) = examples.loader(TASK.vocabulary).batches()
    trained = learner()
    targets = examples.batch_targets(batch)
    found = trained.losses(batch, targets)["values"]
    head = trained.model.head
    errors = []
    for state, row in zip(trained.model.encoder(batch).outputs, batch.schedule.row_of_node, strict=True):
        for value, expected, logit, target in zip(*head.decode(state), targets["values"][row], strict=True):
            off = (value - target).abs()
            smooth = 5 * off**2 if off < 0.1 else off - 0.05
            error = torch.zeros(()) if target.isnan() else smooth + 0.02 * (off / expected + expected.log())
            errors.append(error - 0.2 * functional.logsigmoid(-logit if target.isnan() else logit))
    assert found.count == len(errors) == batch.num_nodes * NUM_POINTS
    torch.testing.assert_close(found.mean, torch.stack(errors).mean())
    found.sum.backward()
    gradients = [weight.grad for weight in trained.model.encoder.parameters() if weight.grad is not None]
    assert len(gradients) == 5
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)


def test_the_loss_does_not_depend_on_shared_subtrees_or_on_how_a_batch_is_divided() -> None:
    examples = TASK.examples(forest([*TEXTS, "sin(x) + 1 = 1 + sin(x)"], [1, 0, 0, 1]))
    trained = learner()

    def loss(chosen: list[int], share_subtrees: bool = True) -> SumCount:
        options = BatchOptions(share_subtrees=share_subtrees)
        (batch,) = examples.loader(TASK.vocabulary, np.array(chosen), options).batches()
        found: SumCount = trained.losses(batch, examples.batch_targets(batch))["values"]
        return found

    whole = loss([0, 1, 2, 3])
    for other in (loss([0, 1, 2, 3], share_subtrees=False), loss([0, 2]) + loss([1, 3])):
        assert other.count == whole.count
        torch.testing.assert_close(other.mean, whole.mean)


def test_a_network_learns_values_and_is_saved_and_predicts(tmp_path: Path) -> None:
    data = generate_equations(400, seed=1, processes=1)
    options = TrainingOptions(epochs=6, batch_size=16, learning_rate=0.02, seed=1)
    fitted = fit(TASK, TREE_LSTM, data, options, output=tmp_path / "run")
    logged = [json.loads(line)["values_loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logged[-1] < 0.8 * logged[0]
    model = treemem.load(tmp_path / "run")
    equations = forest(TEXTS)
    examples = TASK.examples(equations)
    probabilities = model.probabilities(model.outputs(examples), examples.targets)
    answers = [answer["probability"] for answer in treemem.TreePredictor(model).predict(equations)]
    assert answers == pytest.approx(probabilities.tolist(), abs=1e-6)
    assert fitted.model.task == model.task == TASK


class OwnEncoder(torch.nn.Module):
    """A linear map of the labels of nodes; the encoding of a tree is that of its root."""

    hidden_size = 6

    def __init__(self, all_nodes: bool = True) -> None:
        super().__init__()
        self.all_nodes = all_nodes
        self.linear = torch.nn.Linear(64, 6)

    def forward(self, batch: TreeBatch) -> Any:
        kind = functional.one_hot(batch.schedule.kind_of_row, 64).float()
        rows = self.linear(kind)
        root = rows[batch.schedule.row_of_root].view(-1, 2, 6)
        return EncoderOutput(root, rows[batch.schedule.row_of_node]) if self.all_nodes else root


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_network_of_ones_own_learns_values(precision: str) -> None:
    examples = TASK.examples(forest(TEXTS, [1, 0, 0]))
    (batch,) = examples.loader(TASK.vocabulary).batches()
    trained = learner(OwnEncoder(), precision)
    losses = trained.training_step(batch, examples.batch_targets(batch))
    assert losses["values"].mean.isfinite()
    weight = trained.model.encoder.linear.weight.grad
    assert weight.isfinite().all()
    assert weight.any()
    with pytest.raises(RecipeError, match="needs the states of all nodes, and OwnEncoder returns"):
        learner(OwnEncoder(all_nodes=False)).training_step(batch, examples.batch_targets(batch))


def test_the_weight_of_the_loss_is_that_of_the_head_or_of_the_options() -> None:
    examples = TASK.examples(forest(TEXTS, [1, 0, 0]))
    (batch,) = examples.loader(TASK.vocabulary).batches()
    targets = examples.batch_targets(batch)

    def gradient(**weight: float) -> Tensor:
        torch.manual_seed(1)
        trained = learner(OwnEncoder())
        trained.options = TrainingOptions(auxiliary_losses=weight, clip=None)
        trained.training_step(batch, targets)
        found: Tensor = trained.model.encoder.linear.weight.grad
        return found

    without = gradient(values=0)
    torch.testing.assert_close(gradient() - without, 25 * (gradient(values=1) - without), rtol=1e-2, atol=1e-5)
    trained = learner(OwnEncoder())
    with pytest.raises(RecipeError, match="the head needs the auxiliary loss 'values', and ValueLearner, which"):
        trained.update({"loss": trained.losses(batch, targets)["loss"]})


def test_what_does_not_go_with_values_is_refused() -> None:
    with pytest.raises(RecipeError, match="read_out: values does not go with numeric equations"):
        EquationVerification(numeric=True, read_out="values")
    with pytest.raises(RecipeError, match="needs a state for each node, and LSTM reads sequences"):
        Model(TASK, NetworkConfig("LSTM", {"hidden_size": 6}))
