"""Reading a page of the explorer back, as its own scripts do."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def numbers_of(text: str) -> list[float]:
    """The numbers that ``treemem.explore.decimals.packed`` wrote."""
    packed = base64.b64decode(text)
    values = (struct.unpack(">f", packed[at : at + 3] + b"\0")[0] for at in range(0, len(packed), 3))
    return [float(f"{value:.3e}") for value in values]


class PageData:
    """The data of a page.

    Args:
        data: what ``page_data`` returns, or the path of a page.
    """

    def __init__(self, data: dict[str, Any] | Path) -> None:
        if isinstance(data, Path):
            (text,) = _DATA.findall(data.read_text(encoding="utf-8"))
            data = json.loads(text)
        self.data: dict[str, Any] = data
        self.fields = {field["name"]: field for field in data["fields"]}

    def vector(self, width: int, place: int) -> list[float]:
        """A vector of a pool."""
        return numbers_of(self.data["pools"][str(width)][4 * place * width : 4 * (place + 1) * width])

    def values(self, name: str, row: int) -> list[list[float] | None]:
        """What a row has of a field, an entry each; None where it has none."""
        width, entries = self.fields[name]["width"], self.fields[name]["entries"]
        places = self.data["rows"][name][row * entries : (row + 1) * entries]
        return [None if place < 0 else self.vector(width, place) for place in places]

    def rows(self, part: str) -> list[int]:
        """The rows of all items of the page, in order; ``part`` is trees or sequences."""
        return [row for example in self.data["examples"] for owner in example[part] for row in owner["row"]]


def rounded(values: Any) -> Any:
    """Numbers, however nested, as a page shows them."""
    return [rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.3e}")
