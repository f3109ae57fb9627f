"""Modules that are run as for scoring, and left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Within: no dropout and no gradients. Afterwards each module is in the mode that it was in, a frozen one too."""
    in_training = [module for module in network.modules() if module.training]
    if in_training:
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in in_training:
            module.training = True
