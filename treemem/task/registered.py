"""The registry that finds tasks by name, and their folders."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from treemem.errors import RecipeError
from treemem.registry import Registry
from treemem.task.interface import Task

_logger = logging.getLogger(__name__)

TASKS: Registry[type[Task]] = Registry("task", "treemem.tasks", "TASKS")


def task_folder(name: str) -> Path | None:
    """The folder of a task's module, where its recipes and its trained model are; none for a task of a notebook.

    Raises:
        RecipeError: no task of that name.
    """
    module = sys.modules.get(TASKS.find(name).__module__)
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).parent


def task_folders() -> dict[str, Path]:
    """The folders of the tasks that have one, by name; of a task that cannot be imported a warning tells."""
    folders = {}
    for name in TASKS.names():
        try:
            folder = task_folder(name)
        except RecipeError as error:
            _logger.warning("%s", error)
            continue
        if folder is not None:
            folders[name] = folder
    return folders
