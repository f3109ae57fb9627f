"""The GRU in C++ and by torch's kernel, against the plain loop."""

from __future__ import annotations

import pytest
import torch

from treemem.errors import GraphError
from treemem.ops import compile_mode, compile_steps
from treemem.ops.gru import Attention, GRUWeights, fused, gru, naive_gru
from treemem.ops.threads import torch_threads

SIZES = [7, 7, 4, 2, 1]


def given(
    *, attends: bool, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor, GRUWeights, Attention | None]:
    """Inputs, states, weights and what is attended to, of 7 sequences, one of which attends to nothing."""
    torch.manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()

    weights = GRUWeights(drawn(27, 8 if attends else 3), drawn(27, 9), drawn(27), drawn(27))
    lengths = torch.tensor([6, 3, 1, 0, 2, 6, 4])
    attention = Attention(drawn(7, 6, 5), lengths, drawn(5, 9), drawn(5), drawn(7, 5)) if attends else None
    return drawn(sum(SIZES), 3), drawn(7, 9), weights, attention


def everything(run, inputs, hidden, weights, attention) -> list[torch.Tensor]:
    """Outputs, and gradients of every tensor."""
    states, last = run(inputs, SIZES, hidden, weights, attention)
    tensors = [inputs, hidden, *weights, *(each for each in attention or () if each.is_floating_point())]
    loss = (states * states.detach().cos()).sum() + last.sin().sum()
    return [states, last, *torch.autograd.grad(loss, tensors)]


@pytest.fixture
def every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do, all threads do it."""
    monkeypatch.setattr(fused, "_LEAST_WORK", 1)


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize("attends", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_fused_equals_naive(attends: bool, compiled: bool) -> None:
    tensors = given(attends=attends)
    expected = everything(naive_gru, *tensors)
    for threads in (1, 2, 16):
        with compile_steps(compiled), torch_threads(threads):
            torch.testing.assert_close(everything(gru, *tensors), expected, rtol=0, atol=1e-12)
    inputs, hidden, weights, attention = given(attends=attends, dtype=torch.float32)
    with compile_steps(compiled):
        found = everything(gru, inputs, hidden, weights, attention)
    torch.testing.assert_close(found, [each.float() for each in expected], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [[1], [3], [2, 1], [2, 2, 2]])
def test_batches_of_other_shapes_and_sequences_without_tokens(sizes: list[int]) -> None:
    inputs, hidden, weights, attention = given(attends=True)
    found = [run(inputs[: sum(sizes)], sizes, hidden, weights, attention) for run in (gru, naive_gru)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_tensors_may_lie_in_memory_in_any_way() -> None:
    inputs, hidden, weights, _ = given(attends=False)
    strided = inputs.detach().t().contiguous().t(), hidden.detach().t().contiguous().t().requires_grad_()
    found = []
    for run, (x, h) in ((naive_gru, (inputs, hidden)), (gru, strided)):
        states, last = run(x, SIZES, h, weights)
        (gradient,) = torch.autograd.grad((last.t() * torch.arange(7)).sum() + states.t().sin().sum(), h)
        found.append([states, last, gradient])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
def test_outputs_that_were_changed_are_noticed_and_two_passes_give_the_same() -> None:
    inputs, hidden, weights, attention = given(attends=True)
    states, last = gru(inputs, SIZES, hidden, weights, attention)
    once, twice = (torch.autograd.grad(last.sum(), [*weights], retain_graph=True) for _ in range(2))
    torch.testing.assert_close(once, twice, rtol=0, atol=0)
    states.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        last.sum().backward()


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
def test_no_sequence_attends_to_more_rows_than_there_are() -> None:
    inputs, hidden, weights, attention = given(attends=True)
    assert attention is not None
    with pytest.raises(GraphError, match="0 to 6 rows"):
        gru(inputs, SIZES, hidden, weights, attention._replace(lengths=attention.lengths + 1))
    whole = attention._replace(lengths=attention.lengths.int())
    torch.testing.assert_close(
        gru(inputs, SIZES, hidden, weights, whole), gru(inputs, SIZES, hidden, weights, attention)
    )


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
def test_a_second_derivative_is_refused() -> None:
    inputs, hidden, weights, attention = given(attends=True)
    (gradient,) = torch.autograd.grad(
        gru(inputs, SIZES, hidden, weights, attention)[0].sum(), inputs, create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"no second derivative.*compile_steps\(False\)"):
        gradient.sum().backward()
    with compile_steps(False):
        (gradient,) = torch.autograd.grad(
            gru(inputs, SIZES, hidden, weights, attention)[0].sum(), inputs, create_graph=True
        )
        gradient.sum().backward()
    assert inputs.grad is not None


def test_gradients_are_those_of_finite_differences() -> None:
    inputs, hidden, weights, attention = given(attends=True)
    assert attention is not None
    tensors = (inputs, hidden, *weights, attention.rows, *attention[2:])

    def run(*each: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        own = Attention(each[6], attention.lengths, *each[7:])
        return gru(each[0], SIZES, each[1], GRUWeights(*each[2:6]), own)

    assert torch.autograd.gradcheck(run, tensors)
