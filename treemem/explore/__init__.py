"""Results to look at: tables and plots."""

from __future__ import annotations

from treemem.explore.plots import plot_accuracy
from treemem.explore.tables import accuracy_table, markdown_table, overall_table, percent_of

__all__ = ["accuracy_table", "markdown_table", "overall_table", "percent_of", "plot_accuracy"]
