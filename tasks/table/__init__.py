"""Tasks from a table: a column of trees and columns of what to predict."""

from __future__ import annotations

from treemem.tasks.table.data import TableDataOptions
from treemem.tasks.table.task import TableClasses, TableLabels, TableRegression, task_from_table

__all__ = ["TableClasses", "TableDataOptions", "TableLabels", "TableRegression", "task_from_table"]
