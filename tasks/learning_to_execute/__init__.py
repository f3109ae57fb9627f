"""Learning to execute: read a short program, write what it prints (Zaremba & Sutskever 2014)."""

from __future__ import annotations

from treemem.tasks.learning_to_execute.data import ProgramDataOptions
from treemem.tasks.learning_to_execute.task import LearningToExecute

__all__ = ["LearningToExecute", "ProgramDataOptions"]
