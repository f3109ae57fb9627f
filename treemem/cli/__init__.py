"""The ``treemem`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: :func:`treemem.cli.program.main`, imported here so that Ctrl-C is heard meanwhile, too."""
    try:
        from treemem.cli import program
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return program.main(arguments)
