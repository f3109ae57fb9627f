"""The layers of a Transformer by the names of DuSell & Chiang 2024."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from torch import nn

from treemem.errors import RecipeError
from treemem.networks.sequences.stack_attention.sublayers import (
    NondeterministicSublayer,
    StackSublayer,
    SuperpositionSublayer,
)

_STANDARD = re.compile(r"[1-9][0-9]{0,2}\Z")
_SUPERPOSITION = re.compile(r"superposition-([1-9][0-9]{0,4})\Z")
_NONDETERMINISTIC = re.compile(r"nondeterministic-([1-9][0-9]?)-([1-9][0-9]?)-([1-9][0-9]{0,4})\Z")


def named_layers(
    names: str | int,
    hidden_size: int,
    standard: Callable[[], nn.Module],
    with_stack: Callable[[StackSublayer], nn.Module],
) -> Iterator[nn.Module]:
    """Make layers, in order.

    Args:
        names: see ``layers`` of :class:`treemem.nn.StackAttentionTransformer`.
        hidden_size: width of their inputs.
        standard: makes a standard layer.
        with_stack: makes a layer with a stack.

    Raises:
        RecipeError: a layer that does not exist.
    """
    for part in str(names).split("."):
        if _STANDARD.match(part):
            yield from (standard() for _ in range(int(part)))
        elif match := _SUPERPOSITION.match(part):
            yield with_stack(SuperpositionSublayer(hidden_size, int(match[1])))
        elif match := _NONDETERMINISTIC.match(part):
            yield with_stack(NondeterministicSublayer(hidden_size, *(int(number) for number in match.groups())))
        else:
            raise RecipeError(
                f"layers={names!r:.100} has the part {part!r:.60}; a part is a number of standard layers, "
                "superposition-WIDTH, or nondeterministic-STATES-SYMBOLS-WIDTH, as in '2.superposition-32.2'"
            )
