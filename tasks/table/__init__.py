"""Tasks from a table: a column of trees and columns of what to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.table.data import TableDataOptions
    from treemem.tasks.table.from_table import task_from_table
    from treemem.tasks.table.labels import TableLabels
    from treemem.tasks.table.nodes import TableNodes
    from treemem.tasks.table.regression import TableRegression
    from treemem.tasks.table.task import TableClasses

__all__ = ["TableClasses", "TableDataOptions", "TableLabels", "TableNodes", "TableRegression", "task_from_table"]

TASKS = {
    "table_classes": "task:TableClasses",
    "table_regression": "regression:TableRegression",
    "table_labels": "labels:TableLabels",
    "table_nodes": "nodes:TableNodes",
}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "task": ["TableClasses"],
        "regression": ["TableRegression"],
        "labels": ["TableLabels"],
        "data": ["TableDataOptions"],
        "nodes": ["TableNodes"],
        "from_table": ["task_from_table"],
    },
)
