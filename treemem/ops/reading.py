"""What a matrix product reads: the children's states and a node's own features, put together as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from treemem.ops.activation import ActivationName

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of one node's state, by the name of the state."""


class Reading(Protocol):
    """How the inputs of a product are gathered, and how their gradient is spread back.

    Attributes:
        states: names of the children's states that are read.
    """

    @property
    def states(self) -> tuple[str, ...]: ...

    def copies(self, arity: int) -> int:
        """How many rows of inputs a node of this arity has."""
        ...

    def gather(self, children: Mapping[str, torch.Tensor], x: torch.Tensor | None) -> torch.Tensor:
        """The inputs, ``[m * copies, inputs]``.

        Args:
            children: the children's states, ``[m, arity, ...]``.
            x: the nodes' own features, ``[m, input_size]``, or None.
        """
        ...

    def spread(
        self,
        gradient: torch.Tensor,
        arity: int,
        shapes: Shapes,
        children_gradient: dict[str, torch.Tensor],
        x_gradient: torch.Tensor | None,
    ) -> None:
        """Add the gradient of the inputs to the gradients of what was read; the inverse of ``gather``.

        Args:
            gradient: ``[m * copies, inputs]``; may be kept and overwritten.
            arity: number of children.
            shapes: of the states.
            children_gradient: gradients of the children's states so far, ``[m, arity, ...]``; a missing one is zero.
            x_gradient: of the features so far, ``[m, input_size]``.
        """
        ...


@dataclass(frozen=True)
class ChildrenInOrder:
    """One row a node: the children's ``h`` one after the other, the features, and the top rows of their stacks.

    Args:
        tops: whether the top row of each child's ``S`` is read too.
    """

    tops: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("h", "S") if self.tops else ("h",)

    def copies(self, arity: int) -> int:
        return 1

    def gather(self, children: Mapping[str, torch.Tensor], x: torch.Tensor | None) -> torch.Tensor:
        hidden = children["h"].flatten(1)
        if x is None and not self.tops:
            return hidden
        parts = [hidden]
        if x is not None:
            parts.append(x.to(hidden.dtype))
        if self.tops:
            parts.append(children["S"][:, :, 0].flatten(1))
        return torch.cat(parts, dim=1)

    def spread(
        self,
        gradient: torch.Tensor,
        arity: int,
        shapes: Shapes,
        children_gradient: dict[str, torch.Tensor],
        x_gradient: torch.Tensor | None,
    ) -> None:
        if x_gradient is None and not self.tops:
            _add(children_gradient, "h", gradient.view(-1, arity, *shapes["h"]))
            return
        width = arity * shapes["h"][0]
        features = 0 if x_gradient is None else x_gradient.shape[1]
        _add(children_gradient, "h", gradient[:, :width].unflatten(1, (arity, -1)))
        if x_gradient is not None:
            x_gradient += gradient[:, width : width + features]
        if self.tops:
            if "S" not in children_gradient:
                children_gradient["S"] = gradient.new_zeros(len(gradient), arity, *shapes["S"])
            children_gradient["S"][:, :, 0] += gradient[:, width + features :].unflatten(1, (arity, -1))


@dataclass(frozen=True)
class ChildrenSum:
    """One row a node: the sum of the children's ``h``, and the features."""

    @property
    def states(self) -> tuple[str, ...]:
        return ("h",)

    def copies(self, arity: int) -> int:
        return 1

    def gather(self, children: Mapping[str, torch.Tensor], x: torch.Tensor | None) -> torch.Tensor:
        total = children["h"].sum(1)
        return total if x is None else torch.cat([total, x.to(total.dtype)], dim=1)

    def spread(
        self,
        gradient: torch.Tensor,
        arity: int,
        shapes: Shapes,
        children_gradient: dict[str, torch.Tensor],
        x_gradient: torch.Tensor | None,
    ) -> None:
        width = shapes["h"][0]
        _add(children_gradient, "h", gradient[:, None, :width].expand(-1, arity, -1))
        if x_gradient is not None:
            x_gradient += gradient[:, width:]


@dataclass(frozen=True)
class EachChild:
    """One row a child: its ``h``, and the features of its parent."""

    @property
    def states(self) -> tuple[str, ...]:
        return ("h",)

    def copies(self, arity: int) -> int:
        return arity

    def gather(self, children: Mapping[str, torch.Tensor], x: torch.Tensor | None) -> torch.Tensor:
        hidden = children["h"]
        if x is None:
            return hidden.flatten(0, 1)
        repeated = x.to(hidden.dtype)[:, None].expand(-1, hidden.shape[1], -1)
        return torch.cat([hidden, repeated], dim=2).flatten(0, 1)

    def spread(
        self,
        gradient: torch.Tensor,
        arity: int,
        shapes: Shapes,
        children_gradient: dict[str, torch.Tensor],
        x_gradient: torch.Tensor | None,
    ) -> None:
        width = shapes["h"][0]
        by_child = gradient.unflatten(0, (-1, arity))
        _add(children_gradient, "h", by_child[:, :, :width])
        if x_gradient is not None:
            x_gradient += by_child[:, :, width:].sum(1)


@dataclass(frozen=True)
class StackRows:
    """One row for each row of the stacks: the children's stack rows at the same height one after the other.

    Args:
        rows: number of stack rows.
        zero_below: whether a row of zeros follows the last one.
    """

    rows: int
    zero_below: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("S",)

    def copies(self, arity: int) -> int:
        return self.rows + self.zero_below

    def gather(self, children: Mapping[str, torch.Tensor], x: torch.Tensor | None) -> torch.Tensor:
        stacks = children["S"].transpose(1, 2)  # [m, rows, arity, hidden_size]
        if self.zero_below:
            stacks = torch.nn.functional.pad(stacks, (0, 0, 0, 0, 0, 1))
        return stacks.flatten(2).flatten(0, 1)

    def spread(
        self,
        gradient: torch.Tensor,
        arity: int,
        shapes: Shapes,
        children_gradient: dict[str, torch.Tensor],
        x_gradient: torch.Tensor | None,
    ) -> None:
        by_row = gradient.unflatten(0, (-1, self.copies(arity)))[:, : self.rows]
        _add(children_gradient, "S", by_row.unflatten(2, (arity, -1)).transpose(1, 2))


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

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    def copies(self, arity: int) -> int:
        return 1


def _add(gradients: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> None:
    if name in gradients:
        gradients[name] = gradients[name] + value
    else:
        gradients[name] = value
