"""Dropout by 16 random bits an entry, which draws several times faster than torch's on a CPU."""

from __future__ import annotations

import torch
from torch.nn import functional

_CASES = 1 << 16


def dropped_by_bits(values: torch.Tensor, rate: float) -> torch.Tensor:
    """The values, each 0 with the probability ``rate``, else divided by ``1 - rate``.

    On a CPU the rate is rounded to a multiple of ``2 ** -16`` and four entries share a draw of 64 bits; draws differ
    from those of ``torch.nn.functional.dropout``, which serves other devices.
    """
    if not rate:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, rate)
    cases = round(rate * _CASES)
    if cases == _CASES:
        return values * 0
    count = values.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    kept = draws.view(torch.int16)[:count].view(values.shape) >= cases - _CASES // 2
    return values * kept.to(values.dtype).mul_(_CASES / (_CASES - cases))
