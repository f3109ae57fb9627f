from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden.stack_tree_files import read_prefix
from published_state_dicts import Weights, equation_weights, save_weights, whole_equation_network

import treemem
from treemem.conversion import convert
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

GOLDEN = Path(__file__).parent.parent / "golden" / "stack_trees"
STACK = {"stack_size": 3, "activation": "tanh", "output_activation": "tanh"}
ROWS = {"stack_size": 3, "activation": "sigmoid"}
# Golden network: what its weights do not say.
NETWORKS: dict[str, dict[str, Any]] = {
    "tree_rnn": {"activation": "sigmoid"},
    "tree_rnn_tanh": {"activation": "tanh"},
    "tree_rnn_stack": ROWS,
    "tree_rnn_stack_noop": ROWS,
    "tree_lstm": {},
    "tree_lstm_stack": {**STACK, "normalize": False},
    "tree_lstm_stack_normalize": {**STACK, "normalize": True},
    "tree_lstm_stack_normalize_noop": {**STACK, "normalize": True},
    "x_tree_lstm_stack_noop": {**STACK, "normalize": False},
    "x_tree_lstm_stack_top2": {**STACK, "normalize": False},
    "x_tree_lstm_stack_normalize_noop_top3": {**STACK, "normalize": True},
    "x_tree_lstm_stack_top2_gated": {**STACK, "normalize": False},
    "x_tree_lstm_stack_scalar_action": {**STACK, "no_pop": False, "queue": False},
    "x_tree_lstm_stack_scalar_action_noop": {**STACK, "no_pop": False, "queue": False},
    "x_tree_lstm_stack_nopop": {**STACK, "normalize": False},
    "x_tree_lstm_stack_inputgate": {**STACK, "normalize": False},
    "x_tree_lstm_stack_sigmoid": {
        **STACK, "activation": "sigmoid", "output_activation": "sigmoid", "normalize": False,
    },
}  # fmt: skip
WORDS = ["Symbol_var_0", "Symbol_var_1", "Integer_2", "NegativeOne", "Pi"]
LABELS = ["Symbol:var_0", "Symbol:var_1", "Integer:2", "NegativeOne:-1", "Pi:pi"]
ARITIES = {"sin": 1, "cos": 1, "Add": 2, "Mul": 2, "Pow": 2}


def weights_of(network: str, sort: str = "batch") -> Weights:
    return equation_weights(dict(np.load(GOLDEN / f"{network}_{sort}.npz")), network)


def outputs(model: Model, trees: list[Tree]) -> torch.Tensor:
    return model.outputs(model.task.examples(Forest.from_trees(trees)))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_converted_network_gives_the_golden_scores(network: str, tmp_path: Path) -> None:
    arrays = dict(np.load(GOLDEN / f"{network}_batch.npz"))
    assert arrays["token_name"].tolist() == WORDS
    source = save_weights(tmp_path, equation_weights(arrays, network))
    convert(source, tmp_path / "model", options=NETWORKS[network], words=WORDS)
    model = treemem.load(tmp_path / "model")
    assert model.vocabulary.leaves == tuple(LABELS)
    spelled = dict(zip(WORDS, LABELS, strict=True))
    trees = [read_prefix([spelled.get(word, word) for word in str(text).split()], ARITIES) for text in arrays["prefix"]]
    np.testing.assert_allclose(outputs(model, trees).numpy(), arrays["out_score"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("network", ["tree_rnn", "tree_rnn_stack", "tree_lstm", "tree_lstm_stack_normalize_noop"])
def test_a_converted_numeric_network_decodes_the_golden_number(network: str, tmp_path: Path) -> None:
    arrays = dict(np.load(GOLDEN / f"{network}_numeric.npz"))
    source = save_weights(tmp_path, equation_weights(arrays, network))
    numeric = {"numeric": True}
    convert(source, tmp_path / "model", options=NETWORKS[network], task_options=numeric, words=["NegativeOne"])
    number = Tree("Number", value=float(arrays["in_number"]))
    side = Tree("sin", [Tree("Mul", [Tree("NegativeOne:-1"), number])])
    found = outputs(treemem.load(tmp_path / "model"), [Tree("Equality", [side, Tree("Number", value=0.5)])])
    np.testing.assert_allclose(found[0, 1], arrays["out_decoded"].item(), rtol=0, atol=1e-10)


def test_a_whole_published_network_reads_equations_by_the_published_order_of_leaves(tmp_path: Path) -> None:
    weights = whole_equation_network(50)
    # As many numbers as the published network of that size has.
    assert sum(weight.numel() for weight in weights.values()) == 530_852
    convert(save_weights(tmp_path, weights), tmp_path / "model", options={**STACK, "normalize": True})
    model = treemem.load(tmp_path / "model")
    assert model.network.network == "StackTreeLSTM"
    assert model.network.options["no_op"] is True
    assert model.vocabulary == model.task.vocabulary
    leaves = weights["Symbol.weight"]  # 0..9 variables, 10.. the integers from 0
    score = leaves[0] @ leaves[12] + weights["bias"]
    np.testing.assert_allclose(model.predict(["x = 2"]), score.sigmoid(), rtol=0, atol=1e-10)
    assert 0 < model.predict(["sin(x)^2 + cos(x)^2 = 1"])[0] < 1


def test_options_that_the_weights_do_not_say_are_asked_for_all_at_once(tmp_path: Path) -> None:
    source = save_weights(tmp_path, weights_of("tree_lstm_stack_normalize"))
    with pytest.raises(RecipeError, match=r"(?s)stack_size.*activation.*output_activation"):
        convert(source, tmp_path / "model", options={"normalize": True}, words=WORDS)
    with pytest.raises(RecipeError, match="no_op of StackTreeLSTM cannot be given"):
        convert(source, tmp_path / "model", options={**STACK, "no_op": True}, words=WORDS)
    assert not (tmp_path / "model").exists()


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("network", "changes", "named"),
    [
        ("tree_lstm", {"Add.output_left.weight": None}, "there is no weight Add.output_left.weight"),
        ("tree_lstm", {"bias": None}, "there is no weight bias"),
        ("tree_lstm", {"Add.data_bias": zeros(5)}, r"Add.data_bias is \[5\], not \[4\]"),
        ("tree_lstm", {"sin.extra": zeros(4)}, "TreeLSTM has no weight for sin.extra"),
        ("tree_lstm", {"cos.linear.weight": zeros(4, 4)}, "TreeLSTM has no weight for cos.linear.weight"),
        ("tree_lstm", {"sinh.linear.weight": zeros(4, 4)}, "TreeLSTM has no weight for sinh.linear.weight"),
        ("tree_lstm", {"sin.h_memory_linear.weight": zeros(4, 4)}, "no weight for sin.h_memory_linear.weight"),
        ("tree_rnn", {"sinh.linear.weight": zeros(4, 3)}, "width 3, not 4 for one child or 8 for two"),
        ("tree_rnn", {"Symbol.weight": zeros(5, 0)}, r"Symbol.weight is \[5, 0\], not a matrix"),
        (
            "tree_rnn_stack",
            {"binary_stack.gate_linear_l.weight": zeros(4, 8)},
            "no weight for binary_stack.gate_linear_l",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(
    network: str, changes: dict[str, torch.Tensor | None], named: str, tmp_path: Path
) -> None:
    weights = {name: each for name, each in {**weights_of(network), **changes}.items() if each is not None}
    options = ROWS if network == "tree_rnn_stack" else {}
    with pytest.raises(CheckpointError, match=named):
        convert(save_weights(tmp_path, weights), tmp_path / "model", options=options, words=WORDS)
    assert not (tmp_path / "model").exists()


def test_a_table_of_another_length_asks_for_words(tmp_path: Path) -> None:
    source = save_weights(tmp_path, weights_of("tree_lstm"))
    with pytest.raises(CheckpointError, match="has 5 rows, and the published code has 34 leaves; give words"):
        convert(source, tmp_path / "model")
