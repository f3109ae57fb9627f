from __future__ import annotations

import torch

from treemem.engines.product_input import (
    children_and_tops,
    children_in_order,
    children_sum,
    each_child,
    stack_rows,
    stack_rows_and_zeros,
)

ROWS, STACK_SIZE, HIDDEN_SIZE, INPUT_SIZE = 3, 4, 2, 5


def children_of(arity: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "h": torch.randn(ROWS, arity, HIDDEN_SIZE),
        "S": torch.randn(ROWS, arity, STACK_SIZE, HIDDEN_SIZE),
    }


def test_children_in_order_puts_states_and_tops_side_by_side_and_features_behind_them() -> None:
    children = children_of(2)
    x = torch.randn(ROWS, INPUT_SIZE)
    torch.testing.assert_close(children_in_order(children, x, {})[1], torch.cat([*children["h"][1], x[1]]))
    inputs = children_and_tops(children, x, {})
    torch.testing.assert_close(inputs[1], torch.cat([*children["h"][1], *children["S"][1, :, 0], x[1]]))


def test_each_child_comes_with_the_features_of_its_parent() -> None:
    children, x = {"h": children_of(2)["h"]}, torch.randn(ROWS, INPUT_SIZE)
    torch.testing.assert_close(each_child(children, x, {})[3], torch.cat([children["h"][1, 1], x[1]]))


def test_stack_rows_puts_rows_of_the_same_height_side_by_side() -> None:
    children = {"S": children_of(2)["S"]}
    stacks = children["S"]
    inputs = stack_rows_and_zeros(children, None, {}).view(ROWS, STACK_SIZE + 1, -1)
    torch.testing.assert_close(inputs[2, 1], torch.cat([stacks[2, 0, 1], stacks[2, 1, 1]]))
    assert not inputs[:, -1].any()
    torch.testing.assert_close(stack_rows(children, None, {}).view(ROWS, STACK_SIZE, -1), inputs[:, :-1])


def test_children_are_summed() -> None:
    children = children_of(2)
    torch.testing.assert_close(children_sum(children, None, {}), children["h"][:, 0] + children["h"][:, 1])
