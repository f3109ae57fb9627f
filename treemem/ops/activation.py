"""Activation functions by name, with their derivatives written in terms of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, cast, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice

ActivationName = Literal["sigmoid", "tanh", "relu", "elu"]


class Activation(NamedTuple):
    """An activation function.

    Attributes:
        function: the function.
        in_place: the same, overwriting its argument.
        backward: ``backward(gradient, value, out)`` writes the gradient of the argument, given the function's value.
        derivative: the derivative, given the function's value.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    derivative: Callable[[torch.Tensor], torch.Tensor]


_SIGMOID_BACKWARD = torch.ops.aten.sigmoid_backward.grad_input
_ELU_BACKWARD = torch.ops.aten.elu_backward.grad_input
_TANH_BACKWARD = torch.ops.aten.tanh_backward.grad_input


def sigmoid_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient * value * (1 - value)`` into ``out``, which may be ``gradient``."""
    return _SIGMOID_BACKWARD(gradient, value, grad_input=out)


def tanh_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient * (1 - value ** 2)`` into ``out``, which may be ``gradient``."""
    return _TANH_BACKWARD(gradient, value, grad_input=out)


def elu_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient`` where ``value`` is positive, ``gradient * (value + 1)`` elsewhere, into ``out``."""
    return _ELU_BACKWARD(gradient, 1.0, 1.0, 1.0, True, value, grad_input=out)


def relu_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient`` where ``value`` is positive, 0 elsewhere, into ``out``, which may be ``gradient``."""
    return torch.mul(gradient, value > 0, out=out)


_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": Activation(torch.sigmoid, torch.sigmoid_, sigmoid_backward, lambda value: value * (1 - value)),
    "tanh": Activation(torch.tanh, torch.tanh_, tanh_backward, lambda value: 1 - value * value),
    "relu": Activation(torch.relu, torch.relu_, relu_backward, lambda value: (value > 0).to(value.dtype)),
    "elu": Activation(functional.elu, functional.elu_, elu_backward, lambda value: 1 + value.clamp(max=0)),
}


def activation(name: str) -> Activation:
    """The activation function of that name.

    Raises:
        RecipeError: there is none.
    """
    checked_choice("activation", name, get_args(ActivationName))
    return _ACTIVATIONS[name]


def native_number(name: ActivationName) -> int:
    """Return the number of the activation function in ``native/activation.h``."""
    return get_args(ActivationName).index(name)


def checked_activation(name: str) -> ActivationName:
    """Return ``name`` if an activation function has it; raise :class:`RecipeError` if not."""
    return cast(ActivationName, checked_choice("activation", name, get_args(ActivationName)))
