"""What a matrix product reads: the children's states and a node's own features, put together as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from treemem.ops.activation import ActivationName


class ProductInput(Protocol):
    """How the inputs of a product are gathered from the children's states.

    Attributes:
        features: whether a node's own features, where it has any, are read too; they stand behind the states.
    """

    @property
    def features(self) -> bool: ...

    def copies(self, arity: int) -> int:
        """How many rows of inputs a node of this arity has."""
        ...

    def gather(self, children: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The inputs without the features, ``[m * copies, inputs]``.

        Args:
            children: the children's states, ``[m, arity, ...]``.
        """
        ...


def with_features(source: ProductInput, inputs: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    """What ``source`` gathered, with the nodes' own features behind it where it reads them.

    Args:
        source: what was gathered.
        inputs: ``[m * copies, inputs]``.
        x: ``[m, input_size]``, or None where nodes have no features.
    """
    if x is None or not source.features:
        return inputs
    return torch.cat([inputs, x.to(inputs.dtype).repeat_interleave(len(inputs) // max(1, len(x)), 0)], dim=1)


@dataclass(frozen=True)
class ChildrenInOrder:
    """One row a node: the children's ``h`` one after the other, then the top rows of their stacks.

    Args:
        tops: whether the top row of each child's ``S`` is read too.
    """

    tops: bool = False
    features: ClassVar[bool] = True

    def copies(self, arity: int) -> int:
        return 1

    def gather(self, children: Mapping[str, torch.Tensor]) -> torch.Tensor:
        hidden = children["h"].flatten(1)
        return torch.cat([hidden, children["S"][:, :, 0].flatten(1)], dim=1) if self.tops else hidden


@dataclass(frozen=True)
class ChildrenSum:
    """One row a node: the sum of the children's ``h``."""

    features: ClassVar[bool] = True

    def copies(self, arity: int) -> int:
        return 1

    def gather(self, children: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return children["h"].sum(1)


@dataclass(frozen=True)
class EachChild:
    """One row a child: its ``h``, and the features of its parent."""

    features: ClassVar[bool] = True

    def copies(self, arity: int) -> int:
        return arity

    def gather(self, children: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return children["h"].flatten(0, 1)


@dataclass(frozen=True)
class StackRows:
    """One row for each row of the stacks: the children's stack rows at the same height one after the other.

    Args:
        rows: number of stack rows.
        zero_below: whether a row of zeros follows the last one.
    """

    rows: int
    zero_below: bool = False
    features: ClassVar[bool] = False

    def copies(self, arity: int) -> int:
        return self.rows + self.zero_below

    def gather(self, children: Mapping[str, torch.Tensor]) -> torch.Tensor:
        stacks = children["S"].transpose(1, 2)  # [m, rows, arity, hidden_size]
        if self.zero_below:
            stacks = torch.nn.functional.pad(stacks, (0, 0, 0, 0, 0, 1))
        return stacks.flatten(2).flatten(0, 1)


@dataclass(frozen=True)
class HiddenLayer:
    """One row a node: the result of an earlier product of the same node through an activation function.

    The earlier product must have one row a node, and nothing else may read it.

    Args:
        product: name of the earlier product.
        activation_name: the activation function.
    """

    product: str
    activation_name: ActivationName
    features: ClassVar[bool] = False

    def copies(self, arity: int) -> int:
        return 1
