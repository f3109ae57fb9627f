"""Learning to execute: read a short program, write what it prints (Zaremba & Sutskever 2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.learning_to_execute.data import ProgramDataOptions
    from treemem.tasks.learning_to_execute.task import LearningToExecute

__all__ = ["LearningToExecute", "ProgramDataOptions"]

TASKS = {"learning_to_execute": "task:LearningToExecute"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"task": ["LearningToExecute"], "data": ["ProgramDataOptions"]})
