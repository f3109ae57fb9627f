"""A matrix product of a split cell over the levels of a run, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from treemem.ops.cell import Product, State
from treemem.ops.level_plan import Group, LevelPlan


class LevelProduct:
    """One product of the nodes of one arity.

    Args:
        product: what is multiplied with which weights.
        arity: of the nodes.
        weight: ``[sets, outputs, inputs]``.
        bias: ``[sets, outputs]``.
        shortened: precision of the product under autocast; None for that of the weights.

    Attributes:
        product: the argument.
        copies: rows of the product for each node.
        outputs: columns of the product.
    """

    def __init__(
        self, product: Product, arity: int, weight: torch.Tensor, bias: torch.Tensor, shortened: torch.dtype | None
    ) -> None:
        self.product = product
        self.copies = product.reading.copies(arity)
        self.outputs, self._inputs = weight.shape[1:]
        self._arity = arity
        self._shortened = shortened
        used = weight if shortened is None else weight.to(shortened)
        self._matrices = used.unbind(0)
        self._transposed = used.transpose(1, 2).unbind(0)
        self._biases = bias.unbind(0)

    def _runs(self, group: Group) -> Iterator[tuple[int, int, int]]:
        """``(begin, end, set)`` of the rows of the product that use one set of weights."""
        sets = self.product.set_of_kind
        if sets is None:
            yield 0, (group.end - group.begin) * self.copies, 0
        else:
            for begin, end, kind in group.runs:
                yield begin * self.copies, end * self.copies, sets[kind]

    def forward(self, group: Group, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Multiply the inputs of a group, ``[m * copies, inputs]``, into ``out``, ``[m * copies, outputs]``."""
        if self._shortened is not None:
            inputs = inputs.to(self._shortened)
        whole = len(group.runs) == 1
        for begin, end, used in self._runs(group):
            rows, result = (inputs, out) if whole else (inputs[begin:end], out[begin:end])
            if self._shortened is None:
                torch.addmm(self._biases[used], rows, self._transposed[used], out=result)
            else:
                torch.add(torch.mm(rows, self._transposed[used]), self._biases[used], out=result)

    def backward(self, group: Group, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the inputs of a group from that of its product."""
        if self._shortened is not None:
            return self._shortened_backward(group, gradient)
        if len(group.runs) == 1 or self.product.set_of_kind is None:
            return torch.mm(gradient, self._matrices[next(self._runs(group))[2]])
        inputs_gradient = gradient.new_empty(len(gradient), self._inputs)
        for begin, end, used in self._runs(group):
            torch.mm(gradient[begin:end], self._matrices[used], out=inputs_gradient[begin:end])
        return inputs_gradient

    def _shortened_backward(self, group: Group, gradient: torch.Tensor) -> torch.Tensor:
        short = gradient.to(self._shortened)
        parts = [torch.mm(short[begin:end], self._matrices[used]) for begin, end, used in self._runs(group)]
        return torch.cat(parts).to(gradient.dtype)

    def add_weight_gradients(
        self,
        plan: LevelPlan,
        gradient: torch.Tensor,
        buffers: State,
        x: torch.Tensor | None,
        weight_gradient: torch.Tensor,
        bias_gradient: torch.Tensor,
    ) -> None:
        """Add the gradients of the weights: one product for each kind.

        The inputs are gathered once more, which costs less than keeping them through the run.

        Args:
            plan: the groups.
            gradient: of the products of all rows of the arity, level after level, ``[rows * copies, outputs]``.
            buffers: the states of all rows.
            x: the features of all inner rows, or None.
            weight_gradient, bias_gradient: shaped like the weights and biases; added to.
        """
        by_node = gradient.view(-1, self.copies * self.outputs)
        sets = self.product.set_of_kind
        for kind_rows in plan.kind_rows(self._arity, by_kind=sets is not None):
            used = 0 if sets is None or kind_rows.kind is None else sets[kind_rows.kind]
            children = {
                name: buffers[name].index_select(0, kind_rows.child).unflatten(0, (-1, self._arity))
                for name in self.product.reading.states
            }
            own_x = None if x is None else x.index_select(0, kind_rows.rows - plan.num_leaves)
            inputs = self.product.reading.gather(children, own_x)
            rows = by_node if kind_rows.places is None else by_node.index_select(0, kind_rows.places)
            rows = rows.view(-1, self.outputs)
            bias_gradient[used] += rows.sum(0)
            if self._shortened is None:
                weight_gradient[used].addmm_(rows.t(), inputs)
            else:
                weight_gradient[used] += torch.mm(rows.to(self._shortened).t(), inputs.to(self._shortened))
