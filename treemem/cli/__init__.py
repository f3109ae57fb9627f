"""The ``treemem`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run :func:`treemem.cli.program.main`, and handle Ctrl-C during its import too."""
    try:
        from treemem.cli import program
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return program.main(arguments)
