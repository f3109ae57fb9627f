"""The words of a sentence: the leaves of its tree, from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treemem.errors import GraphError


def checked_words(tokens: Sequence[str]) -> list[str]:
    """``tokens`` as a list.

    Raises:
        GraphError: there are none, one is no string, or they are one string or no list.
    """
    if isinstance(tokens, str):
        raise GraphError(f"tokens must be several strings, not the one string {tokens[:40]!r}")
    if not isinstance(tokens, Iterable):
        raise GraphError(f"tokens must be several strings, not {tokens!r:.100}")
    words = list(tokens)
    if not words:
        raise GraphError("there are no tokens; a tree has at least one leaf")
    for position, word in enumerate(words):
        if not isinstance(word, str):
            raise GraphError(f"token {position} must be a string, not {type(word).__name__}")
    return words
