"""The ``treemem`` command."""

from __future__ import annotations

from treemem.cli.program import main

__all__ = ["main"]
