"""The class of layers: what makes one of them on a device and of a type, as torch's layers are made."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

import torch

from treemem.errors import RecipeError


class _Signature:
    """The signature of a layer's constructor, for a class that declares none."""

    def __get__(self, layer_class: type | None, owner: type) -> inspect.Signature:
        constructor = inspect.signature((layer_class or owner).__init__)  # type: ignore[misc]
        return constructor.replace(parameters=[*constructor.parameters.values()][1:])


class LayerType(ABCMeta):
    """The class of all layers, memories and heads, which gives them the arguments ``device`` and ``dtype``.

    They are those of ``torch.nn.Linear``: where the parameters and buffers are, and of which type they are. Weights are
    drawn on torch's default device in its default type and then moved, so a seed gives the same ones on each device.

    Example:
        >>> from treemem.nn import LSTMCell
        >>> next(LSTMCell(3, 4, device="meta", dtype=torch.float64).parameters()).dtype
        torch.float64
    """

    __signature__ = _Signature()

    def __call__(
        cls,
        *args: Any,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> Any:
        """Make a layer.

        Args:
            *args, **options: of its constructor.
            device: where it is; None: on torch's default device.
            dtype: the type of its parameters and floating-point buffers; None: torch's default type.

        Raises:
            RecipeError: no device or no type of floating-point numbers; what the constructor raises.
        """
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise RecipeError(f"dtype must be a type of floating-point numbers, such as torch.float64, not {dtype!r}")
        try:
            device = None if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise RecipeError(f"device must be a device of torch, such as 'cuda', not {device!r}") from error
        layer = super().__call__(*args, **options)
        return layer if device is None and dtype is None else layer.to(device=device, dtype=dtype)
