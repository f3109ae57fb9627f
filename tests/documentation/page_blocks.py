"""Pages run as they stand: each block of Python, and beside it what the page says that it prints."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[2] / "docs"


class Block(NamedTuple):
    """Code of a page, and what it prints; None where the page does not show that."""

    code: str
    shown: str | None


def python_blocks(page: Path) -> list[Block]:
    """The blocks of Python of a page in order; a block of text right below one is what it prints."""
    found = re.findall(
        r"^```python\n(.*?)^```\n(?:\n*```text\n(.*?)^```)?", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [Block(code, shown or None) for code, shown in found]


def run_page(page: Path, but: tuple[str, ...] = (), *, compare: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Run all blocks but those with one of the words ``but`` as one script. Return its names, and the lines it prints.

    What the page shows is compared with what is printed; ``...`` stands for anything.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    lines: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for number, block in enumerate(python_blocks(page), start=1):
        if any(word in block.code for word in but):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.code, f"{page.name}, block {number}", "exec"), names)
        said = printed.getvalue()
        lines += said.splitlines()
        if compare and block.shown is not None and not doctest.OutputChecker().check_output(block.shown, said, options):
            raise AssertionError(f"{page.name}, block {number} shows\n{block.shown}\nand prints\n{said}")
    return names, lines
