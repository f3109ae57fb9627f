from __future__ import annotations

from typing import get_args

import pytest
import torch

from treemem.errors import RecipeError
from treemem.ops.activation import ActivationName, activation, checked_activation


@pytest.mark.parametrize("name", get_args(ActivationName))
def test_each_way_to_apply_an_activation_or_to_go_back_through_it_is_that_of_autograd(name: ActivationName) -> None:
    argument = torch.linspace(-3, 3, 24, dtype=torch.float64, requires_grad=True)  # without 0, where some have a kink
    found = activation(name)
    value = found.function(argument)
    gradient = torch.linspace(1, 2, 24, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(value, argument, gradient)
    value = value.detach()
    overwritten = argument.detach().clone()
    assert found.in_place(overwritten) is overwritten
    torch.testing.assert_close(overwritten, value, rtol=0, atol=1e-15)
    torch.testing.assert_close(gradient * found.derivative(value), wanted, rtol=0, atol=1e-14)
    for out in (torch.full_like(value, torch.nan), overwritten):
        found.backward(gradient, value if out is not overwritten else overwritten, out)
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-14)


def test_an_elu_is_the_argument_or_its_exponential_less_one() -> None:
    argument = torch.tensor([-2.0, -0.5, 0.0, 0.5], dtype=torch.float64)
    expected = torch.tensor([-0.8646647167633873, -0.3934693402873666, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(activation("elu").function(argument), expected, rtol=0, atol=1e-15)


def test_a_name_that_no_activation_has_is_refused_with_the_near_ones() -> None:
    assert checked_activation("elu") == "elu"
    for check in (activation, checked_activation):
        with pytest.raises(RecipeError, match=r"'rleu' is none of sigmoid, tanh, relu, elu; did you mean relu"):
            check("rleu")
