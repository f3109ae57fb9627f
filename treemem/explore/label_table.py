"""Labels as a page shows them."""

from __future__ import annotations

import math

from treemem.errors import TreememError
from treemem.induction.drawing import printable
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.tree import Tree

_TAB = "  ⇥  "


class LabelTable:
    """The distinct labels of a page."""

    def __init__(self) -> None:
        self._place: dict[tuple[str, float | None], int] = {}

    def add(self, label: str, value: float | None = None) -> int:
        """Return the place of a label, or of a number leaf of a value."""
        return self._place.setdefault((label, value), len(self._place))

    def of_forest(self, forest: Forest) -> list[int]:
        """Return the place of the label of each node."""
        labels = [forest.labels[number] for number in forest.label.tolist()]
        if forest.value is None:
            return [self.add(label) for label in labels]
        values = [None if math.isnan(value) else value for value in forest.value.tolist()]
        return [self.add(label, value) for label, value in zip(labels, values, strict=True)]

    def entries(self) -> list[list[str]]:
        """Return each label in full, with its value, and in short."""
        return [
            [printable(label) if value is None else f"{printable(label)} {value!r}", short_label(label, value)]
            for label, value in self._place
        ]


def short_label(label: str, value: float | None = None) -> str:
    """Return a label as in infix equations, such as ``x`` for ``Symbol:var_0``, or unchanged."""
    if label == EQUALITY:
        return "="
    if value is None and ":" not in label:
        return printable(label)
    try:
        return format_equation(Tree(label, value=value))
    except TreememError:
        return printable(label) if value is None else repr(value)


def printable_line(text: str) -> str:
    """Return a text with visible tabs, and with escapes for what cannot be printed."""
    return _TAB.join(printable(part) if part.strip() else part for part in text.split("\t"))
