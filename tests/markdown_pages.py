"""Tables read back out of pages."""

from __future__ import annotations


def table_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a line, without the rule below its head."""
    rows: list[list[str]] = []
    for line in text.split(heading, 1)[1].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return [rows[0], *rows[2:]]
