"""A table of rows that a loop writes and reads under autograd."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from treemem.engines.row_table import RowTable

STEPS = torch.tensor([[0, 1], [4, 1], [0, 5], [6, 6]])  # which rows each step reads, from rows 0 to 3 on


def by_table(given: Tensor, weight: Tensor) -> Tensor:
    table = RowTable(len(given) + len(STEPS), given.shape[1], given)
    table.write(slice(0, len(given)), given)
    for number, rows in enumerate(STEPS, len(given)):
        table.write(torch.tensor([number]), (table.read(rows) @ weight).tanh().prod(0, keepdim=True))
    return table.read(torch.tensor([[7, 3], [5, 7]])).sin() + table.read(slice(4, 6))[:, None]


def by_list(given: Tensor, weight: Tensor) -> Tensor:
    rows = [*given]
    for left, right in STEPS.tolist():
        rows.append((torch.stack([rows[left], rows[right]]) @ weight).tanh().prod(0))
    return (
        torch.stack([torch.stack([rows[7], rows[3]]), torch.stack([rows[5], rows[7]])]).sin()
        + torch.stack(rows[4:6])[:, None]
    )


def arguments() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 3).double().requires_grad_(), torch.randn(3, 3).double().requires_grad_()


def test_values_and_gradients_are_those_of_a_list_of_rows() -> None:
    given, weight = arguments()
    found, expected = by_table(given, weight), by_list(given, weight)
    torch.testing.assert_close(found, expected)
    for loss in (lambda out: out.square().sum(), lambda out: out[0, 0].sum()):
        for _ in range(2):
            ours, others = (
                torch.autograd.grad(loss(out), [given, weight], retain_graph=True) for out in (found, expected)
            )
            torch.testing.assert_close(ours, others)


def test_second_and_third_derivatives_are_right() -> None:
    given, weight = arguments()
    assert torch.autograd.gradgradcheck(by_table, (given, weight))
    found, expected = (run(given, weight).square().sum() for run in (by_table, by_list))
    for _ in range(3):
        found, expected = (
            sum(each.square().sum() for each in torch.autograd.grad(value, [given, weight], create_graph=True))
            for value in (found, expected)
        )
        torch.testing.assert_close(found, expected)


def test_threads_may_run_one_graph_backwards() -> None:
    given, weight = arguments()
    loss = by_table(given, weight).square().sum()

    def run(_: int) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, [given, weight], retain_graph=True)

    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(run, range(12)):
            torch.testing.assert_close(found, run(0))


def test_rows_without_gradients_need_no_backward_pass() -> None:
    table = RowTable(2, 3, torch.zeros(0))
    table.write(slice(0, 1), torch.ones(1, 3))
    assert not table.read(torch.tensor([0])).requires_grad
    value = torch.ones(1, 3, requires_grad=True)
    table.write(torch.tensor([1]), value)
    table.read(torch.tensor([1, 1, 0])).sum().backward()
    torch.testing.assert_close(value.grad, torch.full((1, 3), 2.0))


def test_a_backward_pass_leaves_no_table_of_gradients() -> None:
    given, weight = arguments()
    found = by_table(given, weight).sum()
    for _ in range(2):
        found.backward(retain_graph=True)
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is RowTable]
