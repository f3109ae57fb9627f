"""Modules whose weights are those of their parts."""

from __future__ import annotations

import torch


class Resettable(torch.nn.Module):
    """A module that draws new weights by drawing those of its parts."""

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]
