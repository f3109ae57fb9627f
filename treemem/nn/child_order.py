"""The warning for graphs that do not tell the order of children."""

from __future__ import annotations

import warnings

from treemem.errors import ChildOrderWarning


def warn_without_position(network: object) -> None:
    """Warn that a graph has no edge field ``position``, and that the order of children matters to ``network``."""
    warnings.warn(
        f"the order of children matters to {type(network).__name__}, and the edges of the graph have no field "
        "'position'; the order of the edges is used. Set position to the place of each child, from 0",
        ChildOrderWarning,
        stacklevel=4,
    )
