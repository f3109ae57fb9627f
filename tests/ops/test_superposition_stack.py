"""A superposition stack in C++, with a controller and with known actions, against its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from treemem.nn import GRUCell, LSTMCell, MemoryCell, SuperpositionStack, VanillaCell
from treemem.nn.step_cells import run_cell
from treemem.ops import compile_mode, compile_steps
from treemem.ops.superposition_memory import fused
from treemem.ops.threads import torch_threads

LENGTHS = torch.tensor([4, 9, 3, 0, 9, 1, 6])
CELLS = [VanillaCell, LSTMCell, GRUCell]
OPTIONS: list[dict[str, Any]] = [
    {"depth": 4},
    {"depth": 12, "top_k": 3, "empty": 0.5},
    {"depth": 1, "no_op": False},
    {"depth": 20, "top_k": 20, "no_op": False, "empty": 0.0},
]

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def made(make: Callable[[int, int], Any], options: dict[str, Any]) -> tuple[MemoryCell, torch.Tensor]:
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: make(width, 5), SuperpositionStack(**options), input_size=3, memory_size=2)
    return cell.double(), torch.randn(7, 9, 3, dtype=torch.float64, requires_grad=True)


def flat(state: Any) -> list[torch.Tensor]:
    return [state] if torch.is_tensor(state) else [part for each in state for part in flat(each)]


def drawn(state: Any) -> Any:
    """A state of the same shape with other numbers, which require gradients."""
    if torch.is_tensor(state):
        return torch.randn_like(state).requires_grad_()
    parts = [drawn(each) for each in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def everything(
    cell: MemoryCell, inputs: torch.Tensor, initial: Any, lengths: torch.Tensor | None = LENGTHS
) -> list[torch.Tensor]:
    """Outputs, last states, and gradients of every tensor."""
    outputs, state = run_cell(cell, inputs, initial, lengths)
    if lengths is not None:
        outputs = torch.where(torch.arange(9) < lengths[:, None], outputs.movedim(2, 0), 0)
    loss = (outputs * outputs.detach().cos()).sum() + sum(each.sin().sum() for each in flat(state))
    tensors = [inputs, *cell.parameters(), *(each for each in flat(initial or ()) if each.requires_grad)]
    return [outputs, *flat(state), *torch.autograd.grad(loss, tensors)]


@needs_compiler
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("make", CELLS)
def test_the_run_in_cpp_equals_the_steps(
    make: Callable[[int, int], Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_LEAST_WORK", 1)
    cell, inputs = made(make, options)
    for initial in (None, drawn(cell.initial(7))):
        for lengths in (LENGTHS, None):
            with compile_steps(False):
                expected = everything(cell, inputs, initial, lengths)
            for threads in (1, 2, 16):
                with torch_threads(threads):
                    found = everything(cell, inputs, initial, lengths)
                    with torch.no_grad():
                        _, state = run_cell(cell, inputs, initial, lengths)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
                states = flat(state)
                torch.testing.assert_close(states, expected[1 : 1 + len(states)], rtol=0, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("make", CELLS)
def test_in_single_precision_it_is_as_exact_as_that(make: Callable[[int, int], Any]) -> None:
    cell, inputs = made(make, OPTIONS[1])
    with compile_steps(False):
        expected = everything(cell, inputs, None)
    found = everything(cell.float(), inputs.detach().float().requires_grad_(), None)
    torch.testing.assert_close(found, [each.float() for each in expected], rtol=1e-4, atol=1e-4)


@needs_compiler
def test_a_run_goes_on_from_the_state_of_another() -> None:
    cell, inputs = made(LSTMCell, OPTIONS[1])
    whole, last = run_cell(cell, inputs)
    begun, state = run_cell(cell, inputs[:, :5])
    rest, after = run_cell(cell, inputs[:, 5:], state)
    torch.testing.assert_close([torch.cat([begun, rest], 1), *flat(after)], [whole, *flat(last)], rtol=0, atol=1e-12)


@needs_compiler
def test_gradients_are_those_of_finite_differences() -> None:
    for make in CELLS:
        cell, inputs = made(make, OPTIONS[0])
        assert torch.autograd.gradcheck(lambda x, cell=cell: run_cell(cell, x, lengths=LENGTHS)[1].read, inputs)


@needs_compiler
def test_a_second_derivative_is_refused() -> None:
    cell, inputs = made(VanillaCell, OPTIONS[0])
    (gradient,) = torch.autograd.grad(run_cell(cell, inputs)[0].sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative.*compile_steps\(False\)"):
        gradient.sum().backward()
    with compile_steps(False):
        (gradient,) = torch.autograd.grad(run_cell(cell, inputs)[0].sum(), inputs, create_graph=True)
    gradient.sum().backward()
    assert inputs.grad is not None


@needs_compiler
def test_cells_and_memories_of_a_users_own_run_step_by_step() -> None:
    class Linear(SuperpositionStack):
        def step(self, state: torch.Tensor, value: torch.Tensor, *actions: Any) -> Any:
            return super().step(state, 2 * value, *actions)

    cell, inputs = made(VanillaCell, OPTIONS[0])
    own = MemoryCell(cell.controller, Linear(**OPTIONS[0]), input_size=3, memory_size=2).double()
    own.load_state_dict(cell.state_dict())
    rectified = MemoryCell(
        lambda width: VanillaCell(width, 5, "relu"), SuperpositionStack(4), input_size=3, memory_size=2
    ).double()
    rectified.load_state_dict(cell.state_dict())
    for each in (own, rectified):
        found, state = run_cell(each, inputs)
        with compile_steps(False):
            expected, other = run_cell(each, inputs)
        torch.testing.assert_close([found, *flat(state)], [expected, *flat(other)], rtol=0, atol=1e-12)
        assert not torch.equal(found, run_cell(cell, inputs)[0])


@needs_compiler
@pytest.mark.parametrize(("empty", "has_no_op"), [(0.0, True), (0.5, False), (0.5, True)])
@pytest.mark.parametrize(("depth", "top_k"), [(1, 1), (4, 2), (12, 12)])
def test_known_actions_give_what_the_steps_give(
    depth: int, top_k: int, empty: float, has_no_op: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_LEAST_WORK", 1)
    torch.manual_seed(0)
    memory = SuperpositionStack(depth, top_k=top_k, empty=empty)
    shapes = ((6, 9, 2), *[(6, 9)] * (2 + has_no_op))
    tensors = [(torch.rand(shape, dtype=torch.float64) - 0.3).requires_grad_() for shape in shapes]

    def readouts_and_gradients() -> list[torch.Tensor]:
        readouts = memory(*tensors)
        return [readouts, *torch.autograd.grad(readouts.sin().sum(), tensors)]

    with compile_steps(False):
        expected = readouts_and_gradients()
    for threads in (1, 16):
        with torch_threads(threads):
            torch.testing.assert_close(readouts_and_gradients(), expected, rtol=0, atol=1e-12)
            with torch.no_grad():
                torch.testing.assert_close(memory(*tensors), expected[0], rtol=0, atol=1e-12)
