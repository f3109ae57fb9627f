"""Tables and code read back out of pages."""

from __future__ import annotations

import re
from pathlib import Path


def table_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a line, without the rule below its head."""
    rows: list[list[str]] = []
    for line in text.split(heading, 1)[1].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return [rows[0], *rows[2:]]


def python_blocks(page: Path) -> list[str]:
    """The Python of a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
