"""The trained models that come with tasks: their names and folders."""

from __future__ import annotations

import os
from pathlib import Path

from treemem.checkpoint.files import is_checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.task import TASKS, task_folder, task_folders

_PRETRAINED = "pretrained"


def pretrained_names() -> list[str]:
    """Return the names of the trained models that come with tasks: ``"TASK"`` and ``"TASK/MODEL"``."""
    return [
        task + place.name.removeprefix(_PRETRAINED).replace("_", "/", 1)
        for task, folder in task_folders().items()
        for place in sorted(folder.glob(f"{_PRETRAINED}*"))
    ]


def is_pretrained_name(path: str | os.PathLike[str]) -> bool:
    """Return whether :func:`treemem.load` takes ``path`` for the name of a model that comes with a task.

    A checkpoint or a run in a folder of that name is taken before it.
    """
    name, folder = os.fspath(path), Path(path)
    if name.partition("/")[0] not in TASKS or is_checkpoint(folder) or RunFolder(folder).has_run():
        return False
    packaged = pretrained_folder(name)
    return packaged is not None and packaged.is_dir()


def pretrained_folder(name: str) -> Path | None:
    """Return the folder of the trained model of a name, which may be absent; None for a task that is in no file.

    Raises:
        RecipeError: no task of that name.
    """
    task, _, model = name.partition("/")
    folder = task_folder(task)
    return None if folder is None else folder / (f"{_PRETRAINED}_{model}" if model else _PRETRAINED)
