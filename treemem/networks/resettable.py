"""Modules whose weights are those of their parts."""

from __future__ import annotations

import torch

from treemem.networks.layer_type import LayerType


class Resettable(torch.nn.Module, metaclass=LayerType):
    """A module that draws new weights by drawing those of its parts."""

    def reset_parameters(self) -> None:
        """Draw new weights."""
        _reset_parts(self)


def _reset_parts(module: torch.nn.Module) -> None:
    for part in module.children():
        if callable(getattr(part, "reset_parameters", None)):
            part.reset_parameters()  # type: ignore[operator]
        else:
            _reset_parts(part)
