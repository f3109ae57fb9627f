"""Numbers as a page shows them, with four significant digits."""

from __future__ import annotations

import base64
import math

import numpy as np
from numpy.typing import NDArray

DIGITS = 4


def shown(value: float) -> str:
    """Return a number as text: ``0.1230``, ``-12.35``, ``1.235e-07``, ``0``, ``NaN``, ``-Infinity``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:#.{DIGITS}g}".removesuffix(".") if value else "0"


def coded(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return numbers, rounded to four significant digits, as the upper 24 bits of a float32, which hold as many."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.rint(values * scale) / scale
        numbers = np.where(np.isfinite(rounded), rounded, values) + 0.0  # no -0.0
        bits = numbers.astype(np.float32).view(np.uint32)
    return (bits + np.uint32(0x80)) >> np.uint32(8)


def packed(codes: NDArray[np.uint32]) -> str:
    """Return codes in base64, four characters for each."""
    high_first = codes.astype(">u4").ravel().view(np.uint8).reshape(-1, 4)[:, 1:]
    return base64.b64encode(high_first.tobytes()).decode("ascii")
