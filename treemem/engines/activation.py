"""Activation functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice

ActivationName = Literal["sigmoid", "tanh", "relu", "elu"]

_ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu}


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The activation function of that name.

    Raises:
        RecipeError: there is none.
    """
    return _ACTIVATIONS[checked_activation(name)]


def checked_activation(name: str) -> ActivationName:
    """Return ``name`` if an activation function has it; raise :class:`RecipeError` if not."""
    return cast(ActivationName, checked_choice("activation", name, get_args(ActivationName)))
