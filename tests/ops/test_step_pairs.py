from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from treemem.ops.autograd_step import AutogradStep
from treemem.ops.cell import State, StepPair
from treemem.ops.child_sum_tree_lstm import ChildSumTreeLSTMStepPair, child_sum_tree_lstm_step
from treemem.ops.children import Children
from treemem.ops.gated_recursive import GatedRecursiveStepPair, gated_recursive_step
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions, StackTreeLSTMStepPair, stack_tree_lstm_step
from treemem.ops.stack_tree_rnn import StackTreeRNNStepPair, stack_tree_rnn_step
from treemem.ops.tree_lstm import TreeLSTMStepPair, tree_lstm_step
from treemem.ops.tree_rnn import TreeRNNStepPair, tree_rnn_step

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

ROWS, HIDDEN_SIZE = 4, 3
COVERED = [
    StackTreeLSTMOptions(stack_size=3),
    StackTreeLSTMOptions(stack_size=3, normalize="softmax_of_gates"),
    StackTreeLSTMOptions(stack_size=3, no_op=True),
    StackTreeLSTMOptions(stack_size=5, no_op=True, normalize="softmax_of_gates"),
    StackTreeLSTMOptions(stack_size=3, no_pop=True),
    StackTreeLSTMOptions(stack_size=1),
    StackTreeLSTMOptions(stack_size=2, activation="sigmoid", output_activation="sigmoid"),
    StackTreeLSTMOptions(stack_size=2, activation="relu", output_activation="relu"),
    StackTreeLSTMOptions(stack_size=2, activation="elu", output_activation="elu"),
]


def run(pair: StepPair, products: State, children: State, shapes: dict[str, tuple[int, ...]]) -> dict[str, State]:
    """The states, and the gradients of products and children for gradients of the states that are all different."""
    products = {name: value.clone() for name, value in products.items()}
    buffers, own = children_in_rows(children)
    out = {name: torch.empty(ROWS, *shape, dtype=torch.float64) for name, shape in shapes.items()}
    kept = {name: torch.empty(ROWS, *shape, dtype=torch.float64) for name, shape in pair.kept.items()}
    torch.manual_seed(5)
    memo = pair.forward(products, Children(buffers, own), out, kept)
    states = {name: value.clone() for name, value in out.items()}
    gradient = {
        name: torch.sin(torch.arange(value.numel()) + 1.0).view(value.shape).double() for name, value in out.items()
    }
    children_gradient = pair.backward(products, Children(buffers, own), out, kept, memo, gradient)
    return {"states": states, "products": products, "children": children_gradient}


def children_in_rows(children: State) -> tuple[State, torch.Tensor]:
    """Buffers in which the children's states are the last rows, and which those are."""
    buffers = {
        name: torch.cat([value.new_ones(1, *value.shape[2:]), value.flatten(0, 1)]) for name, value in children.items()
    }
    arity = next((value.shape[1] for value in children.values()), 0)
    return buffers, torch.arange(1, ROWS * arity + 1).view(ROWS, arity)


def assert_equal_pairs(
    ours: StepPair,
    step: Callable[[State, State], State],
    products: State,
    children: State,
    shapes: dict[str, tuple[int, ...]],
) -> None:
    found = run(ours, products, children, shapes)
    expected = run(AutogradStep(step, tuple(children), random=True), products, children, shapes)
    for part, tensors in expected.items():
        assert found[part].keys() == tensors.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(found[part][name], tensor, rtol=0, atol=1e-12, msg=f"{part}: {name}")


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu", "elu"])
def test_tree_rnn_backward_is_that_of_autograd(activation: str, dropout: float) -> None:
    torch.manual_seed(0)
    products = {"gates": torch.randn(ROWS, HIDDEN_SIZE, dtype=torch.float64)}

    def step(products: State, children: State) -> State:
        return {"h": tree_rnn_step(products["gates"], activation, dropout)}

    assert_equal_pairs(TreeRNNStepPair(activation, dropout), step, products, {}, {"h": (HIDDEN_SIZE,)})


@pytest.mark.parametrize("arity", [1, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_child_sum_tree_lstm_backward_is_that_of_autograd(arity: int, dropout: float) -> None:
    torch.manual_seed(0)
    products = {
        "gates": torch.randn(ROWS, 3 * HIDDEN_SIZE, dtype=torch.float64),
        "forget": torch.randn(ROWS * arity, HIDDEN_SIZE, dtype=torch.float64),
    }
    children = {"c": torch.randn(ROWS, arity, HIDDEN_SIZE, dtype=torch.float64)}

    def step(products: State, children: State) -> State:
        states = child_sum_tree_lstm_step(products["gates"], products["forget"], children["c"], dropout)
        return dict(zip("hc", states, strict=True))

    shapes = {"h": (HIDDEN_SIZE,), "c": (HIDDEN_SIZE,)}
    assert_equal_pairs(ChildSumTreeLSTMStepPair(HIDDEN_SIZE, dropout), step, products, children, shapes)


@pytest.mark.parametrize("arity", [1, 2, 3])
def test_gated_recursive_backward_is_that_of_autograd(arity: int) -> None:
    torch.manual_seed(0)
    products = {"gates": torch.randn(ROWS, (arity + 2) * HIDDEN_SIZE, dtype=torch.float64)}
    children = {"h": torch.randn(ROWS, arity, HIDDEN_SIZE, dtype=torch.float64)}
    gain, bias = torch.randn(2, HIDDEN_SIZE, dtype=torch.float64)

    def step(products: State, children: State) -> State:
        return {"h": gated_recursive_step(products["gates"], children["h"], gain, bias)}

    pair = GatedRecursiveStepPair(arity, HIDDEN_SIZE, gain, bias)
    assert_equal_pairs(pair, step, products, children, {"h": (HIDDEN_SIZE,)})


@pytest.mark.parametrize("stack_size", [1, 3])
@pytest.mark.parametrize("no_op", [False, True])
@pytest.mark.parametrize("before_map", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_stack_tree_rnn_backward_is_that_of_autograd(
    stack_size: int, no_op: bool, before_map: bool, dropout: float
) -> None:
    torch.manual_seed(0)
    num_rows, actions = stack_size + before_map, 2 + no_op
    products = {
        "hidden": torch.randn(ROWS, HIDDEN_SIZE, dtype=torch.float64),
        "control": torch.randn(ROWS, HIDDEN_SIZE + actions, dtype=torch.float64),
        "rows": torch.randn(ROWS * num_rows, actions * HIDDEN_SIZE, dtype=torch.float64),
    }

    def step(products: State, children: State) -> State:
        by_row = products["rows"].unflatten(0, (-1, num_rows))
        states = stack_tree_rnn_step(
            products["hidden"],
            products["control"],
            by_row,
            activation_name="tanh",
            no_op=no_op,
            pop_zero_before_map=before_map,
            dropout=dropout,
        )
        return dict(zip("hS", states, strict=True))

    pair = StackTreeRNNStepPair(HIDDEN_SIZE, stack_size, "tanh", no_op, before_map, dropout)
    assert_equal_pairs(pair, step, products, {}, {"h": (HIDDEN_SIZE,), "S": (stack_size, HIDDEN_SIZE)})


@pytest.mark.parametrize("arity", [0, 1, 2, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("bounded", [False, True])
def test_tree_lstm_backward_is_that_of_autograd(arity: int, dropout: float, bounded: bool) -> None:
    torch.manual_seed(0)
    products = {"gates": torch.randn(ROWS, (arity + 3) * HIDDEN_SIZE, dtype=torch.float64)}
    children = {"c": torch.randn(ROWS, arity, HIDDEN_SIZE, dtype=torch.float64)}

    def step(products: State, children: State) -> State:
        hidden, cell = tree_lstm_step(products["gates"], children["c"], dropout)
        return {"h": hidden, "c": cell.tanh() if bounded else cell}

    shapes = {"h": (HIDDEN_SIZE,), "c": (HIDDEN_SIZE,)}
    pair = TreeLSTMStepPair(arity, HIDDEN_SIZE, dropout, bounded=bounded)
    assert_equal_pairs(pair, step, products, children, shapes)


@pytest.mark.parametrize("arity", [0, 1, 2, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("options", COVERED, ids=str)
def test_stack_tree_lstm_backward_is_that_of_autograd(
    options: StackTreeLSTMOptions, arity: int, dropout: float
) -> None:
    assert StackTreeLSTMStepPair.covers(options)
    torch.manual_seed(0)
    products = {"gates": torch.randn(ROWS, options.outputs(arity, HIDDEN_SIZE), dtype=torch.float64)}
    children = {"S": torch.randn(ROWS, arity, options.stack_size, HIDDEN_SIZE, dtype=torch.float64)}

    def step(products: State, children: State) -> State:
        return dict(zip("hS", stack_tree_lstm_step(products["gates"], children["S"], options, dropout), strict=True))

    shapes = {"h": (HIDDEN_SIZE,), "S": (options.stack_size, HIDDEN_SIZE)}
    assert_equal_pairs(StackTreeLSTMStepPair(arity, HIDDEN_SIZE, options, dropout), step, products, children, shapes)


@pytest.mark.parametrize(
    "changed",
    [{"queue": True}, {"top_k": 2}, {"actions": "scalar"}, {"normalize": "divide"}, {"input_gate": True}],
    ids=str,
)
def test_the_hand_written_stack_step_leaves_other_variants_to_autograd(changed: dict[str, object]) -> None:
    assert not StackTreeLSTMStepPair.covers(StackTreeLSTMOptions(**changed))  # type: ignore[arg-type]
