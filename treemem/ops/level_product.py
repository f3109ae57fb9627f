"""A matrix product of a split cell over the levels of a run, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from treemem.ops.activation import activation
from treemem.ops.cell import Product, State
from treemem.ops.level_plan import Group, KindRows, LevelPlan
from treemem.ops.reading import HiddenLayer, Shapes


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

    def inputs(self, children: State, x: torch.Tensor | None, results: State) -> torch.Tensor:
        """What is multiplied, ``[m * copies, inputs]``; a hidden layer is made in place of the product that it reads.

        Args:
            children: the children's states, ``[m, arity, ...]``.
            x: the nodes' own features, or None.
            results: of the products before this one.
        """
        reading = self.product.reading
        if isinstance(reading, HiddenLayer):
            return activation(reading.activation_name).in_place(results[reading.product])
        return reading.gather(children, x)

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

    def spread(
        self,
        inputs_gradient: torch.Tensor,
        shapes: Shapes,
        children_gradient: State,
        x_gradient: torch.Tensor | None,
        results: State,
        product_gradient: State,
    ) -> None:
        """Hand the gradient of what was multiplied on to where it came from: children and features, or a product.

        Args:
            inputs_gradient: ``[m * copies, inputs]``.
            shapes: of the states.
            children_gradient, x_gradient: added to.
            results: of the products, as ``inputs`` left them.
            product_gradient: of the products; that of the product which a hidden layer reads is written.
        """
        reading = self.product.reading
        if isinstance(reading, HiddenLayer):
            name = reading.product
            activation(reading.activation_name).backward(inputs_gradient, results[name], product_gradient[name])
        else:
            reading.spread(inputs_gradient, self._arity, shapes, children_gradient, x_gradient)

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
        results: State,
        mask: torch.Tensor | None,
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
            results: of the products of all rows of the arity, as ``inputs`` left them.
            mask: what the inputs of all rows of the arity were multiplied with, for dropout; None for nothing.
            weight_gradient, bias_gradient: shaped like the weights and biases; added to.
        """
        sets = self.product.set_of_kind
        for kind_rows in plan.kind_rows(self._arity, by_kind=sets is not None):
            used = 0 if sets is None or kind_rows.kind is None else sets[kind_rows.kind]
            inputs = self._inputs_of(kind_rows, plan, buffers, x, results)
            if mask is not None:
                inputs = inputs * self._rows_of(kind_rows, mask)
            rows = self._rows_of(kind_rows, gradient)
            bias_gradient[used] += rows.sum(0)
            if self._shortened is None:
                weight_gradient[used].addmm_(rows.t(), inputs)
            else:
                weight_gradient[used] += torch.mm(rows.to(self._shortened).t(), inputs.to(self._shortened))

    def _inputs_of(
        self, kind_rows: KindRows, plan: LevelPlan, buffers: State, x: torch.Tensor | None, results: State
    ) -> torch.Tensor:
        """What the rows of one kind multiplied, before dropout."""
        reading = self.product.reading
        if isinstance(reading, HiddenLayer):
            return self._rows_of(kind_rows, results[reading.product])
        children = {
            name: buffers[name].index_select(0, kind_rows.child).unflatten(0, (-1, self._arity))
            for name in reading.states
        }
        own_x = None if x is None else x.index_select(0, kind_rows.rows - plan.num_leaves)
        return reading.gather(children, own_x)

    def _rows_of(self, kind_rows: KindRows, values: torch.Tensor) -> torch.Tensor:
        """Those of ``values``, ``[rows of the arity * copies, width]``, that belong to one kind."""
        if kind_rows.places is None:
            return values
        by_node = values.view(-1, self.copies * values.shape[1])
        return by_node.index_select(0, kind_rows.places).view(-1, values.shape[1])
