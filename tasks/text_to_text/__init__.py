"""Sequence to sequence from files: pairs of a source text and a target text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.text_to_text.data import TextDataOptions
    from treemem.tasks.text_to_text.task import TextToText

__all__ = ["TextDataOptions", "TextToText"]

TASKS = {"text_to_text": "task:TextToText"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"task": ["TextToText"], "data": ["TextDataOptions"]})
