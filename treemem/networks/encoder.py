"""What an encoder says about itself, so that nobody needs a list of encoders."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import torch

from treemem.errors import GraphError, RecipeError
from treemem.networks.layer_type import LayerType
from treemem.trees.tree import Tree

INDUCE_TREES = "networks whose can_induce_trees is true do, such as OrderedMemory, ONLSTM and EfficientBeamTreeGRC"


Function = TypeVar("Function", bound=Callable[..., Any])

VectorChange = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Returns vectors that are read in place of those of labels.

It takes the vectors ``[..., width]``, and on the CPU the node of each, int64 ``[...]``, -1 for punctuation and padding.
"""


class Encoder(metaclass=LayerType):
    """The capabilities of an encoder, with their defaults.

    Attributes:
        can_induce_trees: whether :meth:`induced_trees` returns trees.
        sort_key: the property of examples (height or length) by which sorting makes batches fast.
        supports_shared_subtrees: whether the states of a node depend only on its subtree, so that :class:`RowCache`
            can keep them.
        auxiliary_loss_weights: of auxiliary losses by name, unless the recipe has other ones; 0 for those not named.
        needs_whole_batch: the option that makes the results of an example depend on its batch, or None.
        reads_vectors: whether nodes or tokens have vectors, which the call's ``change_vectors`` may change
            (:data:`VectorChange`).
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
    def reads_vectors(self) -> bool:
        return False

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        """The names of all axes of each trace, such as ``{"pointers": ("sequences", "tokens", "slots")}``.

        The explorer draws from these names. Two axes ``"tokens"`` are attention.
        """
        return {}

    def read_features(self, width: int) -> None:
        """Read features of leaves through a learned linear map, in place of vectors of their labels.

        Every batch then needs ``feat``, its own or that of the call, and equal subtrees cannot be shared: the features
        of a leaf may be those of its word in this sentence, as BERT computes them.

        Args:
            width: of the features.

        Raises:
            RecipeError: the encoder has no vectors of labels alone.
        """
        raise RecipeError(
            f"{type(self).__name__} cannot read features of leaves; a tree network with a vocabulary can, and a "
            'sequence encoder with form="leaves"'
        )

    def check_batches(self, batches: Iterable[Any]) -> None:
        """Refuse examples that the network cannot score; a training asks for all splits before it begins.

        Raises:
            GraphError: an example is too long. Most networks take any length.
        """

    def memory_contents(self, batch: Any) -> Mapping[str, torch.Tensor]:
        """Return what the memory holds after each token, by name, ``[sequences, tokens, slots, ...]``."""
        return {}

    def induced_trees(self, *args: Any, **kwargs: Any) -> list[Tree]:
        """Return the tree that the encoder induces over each sequence of a batch.

        Raises:
            RecipeError: the encoder does not induce trees.
        """
        raise RecipeError(f"{type(self).__name__} does not induce trees; {INDUCE_TREES}")


def checked_features(feat: torch.Tensor | None, num_nodes: int, width: int) -> torch.Tensor:
    """Return features, which must be there for every node.

    Raises:
        GraphError: they are not.
    """
    if feat is None:
        raise GraphError(f"this layer reads features: give feat, [{num_nodes}, {width}]")
    if not isinstance(feat, torch.Tensor):
        raise GraphError(f"feat must be a tensor, not {type(feat).__name__}; make one with torch.as_tensor")
    if feat.shape != (num_nodes, width):
        raise GraphError(
            f"feat must be [{num_nodes}, {width}], not {list(feat.shape)}: a row for each node, and "
            "as many columns as the layer reads"
        )
    return feat


def without_compile(function: Function) -> Function:
    """Return a function that ``torch.compile`` does not trace: what is around it is compiled.

    The engines choose their own order of steps, which differs from batch to batch. This does as
    ``torch.compiler.disable``, but does not import the compiler with the library.
    """
    disabled: dict[None, Function] = {}

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled[None] = torch.compiler.disable(function)
        return disabled[None](*args, **kwargs)

    return run  # type: ignore[return-value]
