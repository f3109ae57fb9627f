"""Tasks: what a task is, bases that tasks share, and the registry that finds tasks by name.

Further bases: :mod:`~treemem.task.pairs`, :mod:`~treemem.task.words` and :mod:`~treemem.task.source_target`.
"""

from __future__ import annotations

from treemem.model_output import Answer, ModelOutput, Verdict
from treemem.task.classification import ClassificationTask
from treemem.task.interface import Groups, Task, TreeData
from treemem.task.registered import TASKS, task_folder, task_folders

__all__ = [
    "TASKS",
    "Answer",
    "ClassificationTask",
    "Groups",
    "ModelOutput",
    "Task",
    "TreeData",
    "Verdict",
    "task_folder",
    "task_folders",
]
