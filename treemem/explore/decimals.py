"""Numbers as a page shows them, to four significant digits, in four characters each."""

from __future__ import annotations

import base64
import math

import numpy as np
from numpy.typing import NDArray

DIGITS = 4
_MANTISSAS = 9 * 10 ** (DIGITS - 1)  # 1000 to 9999
_SMALLEST_EXPONENT = -324
_ZERO, _NAN, _INFINITY, _MINUS_INFINITY, _NUM_SPECIAL = range(5)
_EXACT_POWERS = 22  # 10.0 ** 22 is the last power of ten that a double holds exactly


def shown(value: float) -> str:
    """``value`` to four significant digits: ``0.1230``, ``-12.35``, ``1.235e-07``, ``0``, ``NaN``, ``-Infinity``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:#.{DIGITS}g}".removesuffix(".") if value else "0"


def coded(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Each number, rounded to what :func:`shown` shows, as one of 24 bits.

    0 is zero, 1 NaN, 2 infinity, 3 minus infinity. Any other number is ``m * 10 ** (e - 3)`` with ``m`` from 1000 to
    9999 but for its sign, and has the code ``4 + ((e + 324) * 2 + is_negative) * 9000 + m - 1000``.
    """
    codes = np.zeros(values.shape, np.uint32)
    codes[np.isnan(values)] = _NAN
    codes[values == np.inf], codes[values == -np.inf] = _INFINITY, _MINUS_INFINITY
    finite = np.isfinite(values) & (values != 0)
    size = np.abs(values[finite])
    exponent = np.floor(np.log10(size)).astype(np.int64)
    scale = DIGITS - 1 - exponent
    near = np.abs(scale) <= _EXACT_POWERS
    power = 10.0 ** np.where(near, np.abs(scale), 0)
    scaled = np.where(scale >= 0, size * power, size / power)
    mantissa = np.rint(scaled)
    near_half = np.abs(np.abs(scaled - mantissa) - 0.5) < 1e-9  # of which the product's own rounding may decide
    for place in np.flatnonzero(~near | near_half | (mantissa < 10 ** (DIGITS - 1))):
        digits, _, power_of_ten = f"{size[place]:.{DIGITS - 1}e}".partition("e")
        mantissa[place], exponent[place] = round(float(digits) * 1000), int(power_of_ten)
    carried = mantissa == 10**DIGITS
    mantissa[carried], exponent[carried] = 10 ** (DIGITS - 1), exponent[carried] + 1
    place = (exponent - _SMALLEST_EXPONENT) * 2 + (values[finite] < 0)
    codes[finite] = _NUM_SPECIAL + place * _MANTISSAS + mantissa - 10 ** (DIGITS - 1)
    return codes


def packed(codes: NDArray[np.uint32]) -> str:
    """The codes in base64, four characters each, so that the number ``i`` is at the characters ``4 * i`` on."""
    high_first = codes.astype(">u4").ravel().view(np.uint8).reshape(-1, 4)[:, 1:]
    return base64.b64encode(high_first.tobytes()).decode("ascii")
