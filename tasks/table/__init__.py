"""Tasks from a table: a column of trees and columns of what to predict."""

from __future__ import annotations

from treemem.tasks.table.data import TableDataOptions
from treemem.tasks.table.from_table import task_from_table
from treemem.tasks.table.nodes import TableNodes
from treemem.tasks.table.task import TableClasses, TableLabels, TableRegression

__all__ = ["TableClasses", "TableDataOptions", "TableLabels", "TableNodes", "TableRegression", "task_from_table"]
