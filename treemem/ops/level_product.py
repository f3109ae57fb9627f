"""A matrix product of a split cell over the levels of a run, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from treemem.ops.activation import activation
from treemem.ops.cell import Product, State
from treemem.ops.children import Children
from treemem.ops.level_plan import Group, KindRows, LevelPlan, selected
from treemem.ops.product_input import HiddenLayer, Shapes

_ROWS_AT_ONCE = 2048  # of a kind, so that what is gathered of them is not all there at once


class LevelProduct:
    """One product of the nodes of one arity.

    What comes from the nodes' own features depends on no other node, so it is multiplied for all levels at once, in
    one product for each kind; each level then adds what comes from its children.

    Args:
        product: what is multiplied with which weights.
        arity: of the nodes.
        weight: ``[sets, outputs, inputs]``.
        bias: ``[sets, outputs]``.
        num_features: width of the nodes' own features; 0 where there are none.
        shortened: precision of the product under autocast; None for that of the weights.

    Attributes:
        product: the argument.
        copies: rows of the product for each node.
        outputs: columns of the product.
        reads_features: whether there are features and the product reads them.
    """

    def __init__(
        self,
        product: Product,
        arity: int,
        weight: torch.Tensor,
        bias: torch.Tensor,
        num_features: int,
        shortened: torch.dtype | None,
    ) -> None:
        self.product = product
        self.copies = product.source.copies(arity)
        self.reads_features = num_features > 0 and product.source.features
        self.outputs = weight.shape[1]
        self._width = weight.shape[2] - (num_features if self.reads_features else 0)
        self._arity = arity
        self._shortened = shortened
        used = weight if shortened is None else weight.to(shortened)
        self._matrices = used[:, :, : self._width].unbind(0)
        self._transposed = [matrix.t() for matrix in self._matrices]
        self._of_features = used[:, :, self._width :].unbind(0)
        self._biases = bias.unbind(0)

    def _runs(self, group: Group) -> Iterator[tuple[int, int, int]]:
        """``(begin, end, set)`` of the rows of the product that use one set of weights."""
        sets = self.product.set_of_kind
        if sets is None:
            yield 0, (group.end - group.begin) * self.copies, 0
        else:
            for begin, end, kind in group.runs:
                yield begin * self.copies, end * self.copies, sets[kind]

    def inputs(self, children: Mapping[str, torch.Tensor], results: State) -> torch.Tensor:
        """What is multiplied, ``[m * copies, inputs]``; a hidden layer is made in place of the product that it reads.

        ``results`` are those of the products before this one.
        """
        source = self.product.source
        if isinstance(source, HiddenLayer):
            return activation(source.activation_name).in_place(results[source.product])
        return source.gather(children)

    def add_features(self, plan: LevelPlan, x: torch.Tensor, out: torch.Tensor) -> None:
        """Write the product of the features and the bias of all rows, level after level, into ``out``.

        Args:
            plan: the groups.
            x: the features of all inner rows (all leaf rows for arity 0), ``[inner rows, input_size]``.
            out: ``[rows * copies, outputs]``.
        """
        by_node = self._by_node(out)
        for used, kind_rows in self._rows_by_set(plan):
            matrix = self._of_features[used]
            for part in kind_rows.parts(_ROWS_AT_ONCE):
                own_x = selected(x, part.features).to(matrix.dtype)
                if self._shortened is None:
                    own = torch.addmm(self._biases[used], own_x, matrix.t())
                else:
                    own = torch.mm(own_x, matrix.t()) + self._biases[used]
                if self.copies > 1:
                    own = own.repeat_interleave(self.copies, 0)
                if isinstance(part.places, slice):
                    by_node[part.places] = self._by_node(own)
                else:
                    by_node.index_copy_(0, part.places, self._by_node(own.to(out.dtype)))

    def forward(self, group: Group, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Multiply the inputs of a group, ``[m * copies, inputs]``, into ``out``, ``[m * copies, outputs]``.

        With features, ``out`` holds their part already, which for leaves is all.
        """
        if not self._width:
            if not self.reads_features:
                for begin, end, used in self._runs(group):
                    out[begin:end] = self._biases[used]
            return
        if self._shortened is not None:
            inputs = inputs.to(self._shortened)
        whole = len(group.runs) == 1
        for begin, end, used in self._runs(group):
            rows, result = (inputs, out) if whole else (inputs[begin:end], out[begin:end])
            added = result if self.reads_features else self._biases[used]
            if self._shortened is None:
                torch.addmm(added, rows, self._transposed[used], out=result)
            else:
                torch.add(torch.mm(rows, self._transposed[used]), added, out=result)

    def backward(self, group: Group, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the inputs of a group, without features, from that of its product."""
        if not self._width:
            return gradient.new_empty(len(gradient), 0)
        if self._shortened is not None:
            short = gradient.to(self._shortened)
            parts = [torch.mm(short[begin:end], self._matrices[used]) for begin, end, used in self._runs(group)]
            return torch.cat(parts).to(gradient.dtype)
        if len(group.runs) == 1 or self.product.set_of_kind is None:
            return torch.mm(gradient, self._matrices[next(self._runs(group))[2]])
        inputs_gradient = gradient.new_empty(len(gradient), self._width)
        for begin, end, used in self._runs(group):
            torch.mm(gradient[begin:end], self._matrices[used], out=inputs_gradient[begin:end])
        return inputs_gradient

    def spread(
        self,
        inputs_gradient: torch.Tensor,
        shapes: Shapes,
        children_gradient: State,
        results: State,
        product_gradient: State,
    ) -> None:
        """Add ``inputs_gradient``, ``[m * copies, inputs]``, to that of the children's states.

        Of a hidden layer, write the gradient of the product that it reads.
        """
        source = self.product.source
        if isinstance(source, HiddenLayer):
            name = source.product
            activation(source.activation_name).backward(inputs_gradient, results[name], product_gradient[name])
        elif self._arity:
            source.spread(inputs_gradient, self._arity, shapes, children_gradient)

    def add_features_gradient(self, plan: LevelPlan, gradient: torch.Tensor, x_gradient: torch.Tensor) -> None:
        """Add to ``x_gradient`` what ``gradient``, ``[rows * copies, outputs]``, gives: one product for each kind."""
        for used, kind_rows in self._rows_by_set(plan):
            matrix = self._of_features[used]
            for part in kind_rows.parts(_ROWS_AT_ONCE):
                own = torch.mm(self._of_nodes(part, gradient).to(matrix.dtype), matrix).to(x_gradient.dtype)
                if isinstance(part.features, slice):
                    x_gradient[part.features] += own
                else:
                    x_gradient.index_add_(0, part.features, own)

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
        """Add to the gradients of weights and biases: one product for each kind.

        The inputs are gathered once more, which costs less than keeping them.

        Args:
            plan: the groups.
            gradient: of the products of all rows of the arity, level after level, ``[rows * copies, outputs]``.
            buffers: the states of all rows.
            x: the features of all inner rows, or None.
            results: of the products of all rows of the arity, as ``inputs`` left them.
            mask: the dropout mask of the inputs of all rows of the arity; None without dropout.
            weight_gradient, bias_gradient: shaped like the weights and biases.
        """
        for used, kind_rows in self._rows_by_set(plan):
            of_states, of_features = weight_gradient[used].tensor_split([self._width], dim=1)
            for part in kind_rows.parts(_ROWS_AT_ONCE):
                rows = self._rows_of(part, gradient)
                bias_gradient[used] += rows.sum(0)
                if self._width:
                    inputs = self._inputs_of(part, buffers, results)
                    self._add_product(rows, inputs if mask is None else inputs * self._rows_of(part, mask), of_states)
                if x is not None:
                    self._add_product(self._of_nodes(part, gradient), selected(x, part.features), of_features)

    def _add_product(self, gradient: torch.Tensor, inputs: torch.Tensor, total: torch.Tensor) -> None:
        """Add what inputs of a product, ``[m, inputs]``, and its gradient, ``[m, outputs]``, give of the weights'."""
        if self._shortened is None:
            total.addmm_(gradient.t(), inputs.to(gradient.dtype))
        else:
            total += torch.mm(gradient.to(self._shortened).t(), inputs.to(self._shortened))

    def _rows_by_set(self, plan: LevelPlan) -> Iterator[tuple[int, KindRows]]:
        """All rows of the arity by the set of weights that they use; one set may come several times."""
        sets = self.product.set_of_kind
        for kind_rows in plan.kind_rows(self._arity, by_kind=sets is not None):
            yield 0 if sets is None or kind_rows.kind is None else sets[kind_rows.kind], kind_rows

    def _inputs_of(self, kind_rows: KindRows, buffers: State, results: State) -> torch.Tensor:
        """What the rows of one kind multiplied, before dropout and without features."""
        source = self.product.source
        if isinstance(source, HiddenLayer):
            return self._rows_of(kind_rows, results[source.product])
        return source.gather(Children(buffers, kind_rows.child))

    def _rows_of(self, kind_rows: KindRows, values: torch.Tensor) -> torch.Tensor:
        """Those of ``values``, ``[rows of the arity * copies, width]``, that belong to one kind."""
        return selected(self._by_node(values), kind_rows.places).view(-1, values.shape[1])

    def _of_nodes(self, kind_rows: KindRows, values: torch.Tensor) -> torch.Tensor:
        """The same, the copies of each node added up, ``[rows of the kind, width]``."""
        rows = self._rows_of(kind_rows, values)
        return rows if self.copies == 1 else rows.unflatten(0, (-1, self.copies)).sum(1)

    def _by_node(self, values: torch.Tensor) -> torch.Tensor:
        return values.view(-1, self.copies * values.shape[1])
