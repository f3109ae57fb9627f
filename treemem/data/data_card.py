"""What the data of a task are, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def data_card(about: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the description of data with a table, such as one of the sizes of the splits.

    Args:
        about: what the data are, in Markdown, with a heading.
        head: of the table.
        rows: of the table.
    """
    lines = "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    return f"{about}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n{lines}"
