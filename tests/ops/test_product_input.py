from __future__ import annotations

import pytest
import torch

from treemem.ops.product_input import ChildrenInOrder, ChildrenSum, EachChild, ProductInput, StackRows, with_features

ROWS, STACK_SIZE, HIDDEN_SIZE, INPUT_SIZE = 3, 4, 2, 5
READINGS: list[ProductInput] = [
    ChildrenInOrder(),
    ChildrenInOrder(tops=True),
    ChildrenSum(),
    EachChild(),
    StackRows(STACK_SIZE),
    StackRows(STACK_SIZE, zero_below=True),
]


def children_of(arity: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "h": torch.randn(ROWS, arity, HIDDEN_SIZE, requires_grad=True),
        "S": torch.randn(ROWS, arity, STACK_SIZE, HIDDEN_SIZE, requires_grad=True),
    }


@pytest.mark.parametrize("source", READINGS, ids=str)
@pytest.mark.parametrize("arity", [1, 3])
@pytest.mark.parametrize("with_earlier", [False, True])
def test_spread_is_the_gradient_of_gather(source: ProductInput, arity: int, with_earlier: bool) -> None:
    children = children_of(arity)
    inputs = source.gather(children)
    assert len(inputs) == ROWS * source.copies(arity)
    gradient = torch.randn_like(inputs)
    inputs.backward(gradient)
    earlier = {name: torch.randn_like(value) for name, value in children.items()} if with_earlier else {}
    found = {name: value.clone() for name, value in earlier.items()}
    shapes = {name: tuple(value.shape[2:]) for name, value in children.items()}
    source.spread(gradient.clone(), arity, shapes, found)
    for name, value in children.items():
        expected = torch.zeros_like(value) if value.grad is None else value.grad
        expected = expected + earlier.get(name, torch.zeros(()))
        torch.testing.assert_close(found.get(name, torch.zeros_like(value)), expected)


def test_children_in_order_puts_states_and_tops_side_by_side_and_features_behind_them() -> None:
    children = {name: value.detach() for name, value in children_of(2).items()}
    x = torch.randn(ROWS, INPUT_SIZE)
    source = ChildrenInOrder(tops=True)
    inputs = with_features(source, source.gather(children), x)
    torch.testing.assert_close(inputs[1], torch.cat([*children["h"][1], *children["S"][1, :, 0], x[1]]))


def test_each_child_comes_with_the_features_of_its_parent() -> None:
    children, x = {"h": children_of(2)["h"].detach()}, torch.randn(ROWS, INPUT_SIZE)
    inputs = with_features(EachChild(), EachChild().gather(children), x)
    torch.testing.assert_close(inputs[3], torch.cat([children["h"][1, 1], x[1]]))


def test_stack_rows_puts_rows_of_the_same_height_side_by_side() -> None:
    stacks = children_of(2)["S"].detach()
    inputs = StackRows(STACK_SIZE, zero_below=True).gather({"S": stacks}).view(ROWS, STACK_SIZE + 1, -1)
    torch.testing.assert_close(inputs[2, 1], torch.cat([stacks[2, 0, 1], stacks[2, 1, 1]]))
    assert not inputs[:, -1].any()
