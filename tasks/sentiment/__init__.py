"""Sentiment: is a sentence of a film review positive or negative?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.sentiment.data import SentimentDataOptions
    from treemem.tasks.sentiment.published import PUBLISHED_FIGURES
    from treemem.tasks.sentiment.readers import format_sentiment, read_treebank, read_word_vectors
    from treemem.tasks.sentiment.task import Sentiment

__all__ = [
    "PUBLISHED_FIGURES",
    "Sentiment",
    "SentimentDataOptions",
    "format_sentiment",
    "read_treebank",
    "read_word_vectors",
]

TASKS = {"sentiment": "task:Sentiment"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "published": ["PUBLISHED_FIGURES"],
        "task": ["Sentiment"],
        "data": ["SentimentDataOptions"],
        "readers": ["format_sentiment", "read_treebank", "read_word_vectors"],
    },
)
