"""Published figures on the published data."""

from __future__ import annotations

from treemem.metrics.score import PublishedFigure

SOURCE = "Shen et al. 2019 (Ordered Memory), table 1"
"""Test accuracy by number of operations, after training on at most 6; A, B and C are the systematic splits."""

_COLUMNS = ("7", "8", "9", "10", "11", "12", "A", "B", "C")
_PERCENT: dict[str, tuple[float | None, ...]] = {
    "LSTM": (88, 84, 80, 78, 71, 69, 84, 60, 59),
    "RRNet": (84, 81, 78, 74, 72, 71, None, None, None),
    "ON-LSTM": (91, 87, 85, 81, 78, 75, 70, 63, 60),
    "Transformer": (51, 52, 51, 51, 51, 48, 53, 51, 51),
    "Universal Transformer": (51, 52, 51, 51, 51, 48, 53, 51, 51),
    "Ordered Memory": (98, 97, 96, 94, 93, 92, 94, 91, 81),
    "Ordered Memory, Tree-RNN cell": (69, 67, 65, 61, 57, 53, None, None, None),
    "Tree-LSTM": (94, 92, 92, 88, 87, 86, 91, 84, 76),
    "TreeCell": (98, 96, 96, 95, 93, 92, 95, 95, 90),
    "Tree-RNN": (98, 98, 97, 96, 95, 96, 94, 92, 86),
}
_PARSING_F1_OF_ORDERED_MEMORY = (84.3, 14.4)
_PERCENT_DEVIATION: dict[str, tuple[float, ...]] = {"Ordered Memory": (0.0, 0.4, 0.5, 0.8, 0.5, 1.1)}


_UNTIL = "up to 150 epochs, to 10 without a better validation, where the paper has a fixed number"
DIFFERENCES = {
    "Ordered Memory": "12 slots in training and 24 in validation and test, where the paper validates with 12",
    "LSTM": f"{_UNTIL}; the published one has another training",
    "RRNet": f"{_UNTIL}; the published one has another training",
    "ON-LSTM": f"{_UNTIL}; 400 units, as in figure 3 of its own paper",
    "Transformer": f"{_UNTIL}; reads both formulas as one sequence; its dropout is ours",
    "Universal Transformer": f"{_UNTIL}; reads both formulas as one sequence; its dropout is ours; layer norms first",
}
"""What differs from the published setting, by network."""


def published_split(column: str) -> str:
    """Return the ``split`` of a published figure: ``"test, 7 operations"``, or ``"test, split A"``."""
    return f"test, {column} operations" if column.isdigit() else f"test, split {column}"


def _figures() -> tuple[PublishedFigure, ...]:
    figures = []
    for network, values in _PERCENT.items():
        deviations = _PERCENT_DEVIATION.get(network, ())
        for place, (column, value) in enumerate(zip(_COLUMNS, values, strict=True)):
            if value is None:
                continue
            deviation = deviations[place] if place < len(deviations) else None
            split = published_split(column)
            figures.append(PublishedFigure.of_percent(network, split, "accuracy", value, deviation, SOURCE))
    f1 = _PARSING_F1_OF_ORDERED_MEMORY
    figures.append(PublishedFigure.of_percent("Ordered Memory", "test", "parsing f1", *f1, SOURCE))
    return tuple(figures)


PUBLISHED_FIGURES = _figures()
