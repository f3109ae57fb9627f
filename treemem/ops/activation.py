"""Activation functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice

ActivationName = Literal["sigmoid", "tanh", "relu", "elu"]

_SIGMOID_BACKWARD = torch.ops.aten.sigmoid_backward.grad_input
_TANH_BACKWARD = torch.ops.aten.tanh_backward.grad_input


def sigmoid_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient * value * (1 - value)`` into ``out``, which may be ``gradient``."""
    return _SIGMOID_BACKWARD(gradient, value, grad_input=out)


def tanh_backward(gradient: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``gradient * (1 - value ** 2)`` into ``out``, which may be ``gradient``."""
    return _TANH_BACKWARD(gradient, value, grad_input=out)


_ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu}


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The activation function of that name.

    Raises:
        RecipeError: there is none.
    """
    return _ACTIVATIONS[checked_activation(name)]


def native_number(name: ActivationName) -> int:
    """Return the number of the activation function in ``native/activation.h``."""
    return get_args(ActivationName).index(name)


def checked_activation(name: str) -> ActivationName:
    """Return ``name`` if an activation function has it; raise :class:`RecipeError` if not."""
    return cast(ActivationName, checked_choice("activation", name, get_args(ActivationName)))
