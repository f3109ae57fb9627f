"""The engines of sequence networks with a loop of their own, equal on every output and gradient."""

from __future__ import annotations

from typing import Literal, get_args

from treemem.checked_options import checked_choice

SequenceEngine = Literal["auto", "fused", "naive"]
"""``fused``, which is what ``auto`` chooses: the fast form, in C++ or in kernels for CUDA where they can be used.
``naive``: the definition."""


def checked_engine(name: str, engine: SequenceEngine) -> SequenceEngine:
    """Return ``engine`` if it is one; raise :class:`RecipeError` if not."""
    return checked_choice(name, engine, get_args(SequenceEngine))
