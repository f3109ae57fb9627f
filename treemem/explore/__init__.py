"""Tables, plots, and the explorer, a page that shows what a model does."""

from __future__ import annotations

from treemem.explore.explorer import explore
from treemem.explore.plots import plot_accuracy, plot_training, plot_tree
from treemem.explore.tables import accuracy_table, latex_table, markdown_table, overall_table, percent_of

__all__ = [
    "accuracy_table",
    "explore",
    "latex_table",
    "markdown_table",
    "overall_table",
    "percent_of",
    "plot_accuracy",
    "plot_training",
    "plot_tree",
]
