"""torch's LSTM, differentiable in evaluation mode too."""

from __future__ import annotations

from typing import Any

import torch


def run_lstm(lstm: torch.nn.LSTM, *arguments: Any) -> Any:
    """Return ``lstm(*arguments)``.

    In evaluation mode cuDNN keeps nothing for a backward pass, so if gradients are wanted there, torch's own kernels
    run.
    """
    if lstm.training or not torch.is_grad_enabled():
        return lstm(*arguments)
    with torch.backends.cudnn.flags(enabled=False):
        return lstm(*arguments)
