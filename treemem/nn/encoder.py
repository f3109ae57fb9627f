"""What an encoder says about itself, so that nobody needs a list of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from treemem.errors import RecipeError
from treemem.trees.tree import Tree

INDUCE_TREES = "networks whose can_induce_trees is true do, such as OrderedMemory, ONLSTM and EfficientBeamTreeGRC"


class Encoder:
    """The capabilities of an encoder, with their defaults.

    Attributes:
        can_induce_trees: whether :meth:`induced_trees` returns trees.
        sort_key: the property of examples (height or length) by which sorting makes batches fast.
        supports_shared_subtrees: whether the states of a node depend only on its subtree, so that :class:`RowCache`
            can keep them.
        auxiliary_loss_weights: of auxiliary losses by name, unless the recipe has other ones; 0 for those not named.
        needs_whole_batch: the option that makes the results of an example depend on its batch, or None.
    """

    can_induce_trees: bool = False
    sort_key: Literal["height", "length"] = "length"

    @property
    def supports_shared_subtrees(self) -> bool:
        return False

    @property
    def auxiliary_loss_weights(self) -> Mapping[str, float]:
        return {}

    @property
    def needs_whole_batch(self) -> str | None:
        return None

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        """The names of all axes of each trace, such as ``{"pointers": ("sequences", "tokens", "slots")}``.

        The explorer draws from these names. Two axes ``"tokens"`` are attention.
        """
        return {}

    def memory_contents(self, batch: Any) -> Mapping[str, torch.Tensor]:
        """Return what the memory holds after each token, by name, ``[sequences, tokens, slots, ...]``."""
        return {}

    def induced_trees(self, *args: Any, **kwargs: Any) -> list[Tree]:
        """Return the tree that the encoder induces over each sequence of a batch.

        Raises:
            RecipeError: the encoder does not induce trees.
        """
        raise RecipeError(f"{type(self).__name__} does not induce trees; {INDUCE_TREES}")
