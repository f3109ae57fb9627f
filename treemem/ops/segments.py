"""The fast path of any cell: one call a level, kind and arity, one function for autograd."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from treemem.errors import CellError
from treemem.ops.cell import Cell, State, cell_name, checked_state, foreign_tensor, has_gradients, leaf_states
from treemem.ops.large_pages import empty_rows
from treemem.ops.second_derivative import once_differentiable, refuse_transforms, save_for_backward
from treemem.schedule.schedule import Schedule, Segment


def run_segments(cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None) -> State:
    """The states of all rows of any cell, segment by segment.

    Args:
        cell: the cell.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[rows, ...]``, differentiable once and backwards once.

    Raises:
        CellError: states that are not what the protocol says, or made with learned tensors that are none of the
            cell's parameters.
    """
    refuse_transforms()
    leaves = leaf_states(cell, leaf_inputs, [each[:3] for each in schedule.leaf_segments])
    if len(schedule.levels) < 2:
        return leaves
    run = SegmentRun(cell, schedule, tuple(leaves))
    parameters = [parameter for parameter in cell.parameters() if parameter.requires_grad]
    inputs = [*leaves.values(), *parameters] + ([] if inner_inputs is None else [inner_inputs])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        buffers = _Segments.apply(run, inner_inputs, *leaves.values(), *parameters)
        return dict(zip(leaves, buffers, strict=True))
    return run.forward(leaves, inner_inputs)


class Graph(NamedTuple):
    """The small autograd graph of one segment.

    Attributes:
        segment: its rows.
        states: what the cell returned.
        children, x: what it was given, as leaves of the graph.
    """

    segment: Segment
    states: State
    children: State
    x: torch.Tensor | None


class SegmentRun:
    """One run of a cell over the segments of a schedule.

    Args:
        cell: the cell.
        schedule: the rows.
        state_names: of the states.
    """

    def __init__(self, cell: Cell, schedule: Schedule, state_names: tuple[str, ...]) -> None:
        self.cell = cell
        self.child = schedule.child
        self.num_rows = schedule.num_rows
        self.num_leaves = schedule.levels[0].end
        self.segments = [segment for level in schedule.levels[1:] for segment in level.segments]
        self.state_names = state_names

    def forward(self, leaves: State, x: torch.Tensor | None, graphs: list[Graph] | None = None) -> State:
        """The states of all rows, ``[rows, ...]``; the graph of each segment is appended to ``graphs``."""
        buffers = {name: empty_rows(value, self.num_rows, *value.shape[1:]) for name, value in leaves.items()}
        for name, value in leaves.items():
            buffers[name][: self.num_leaves] = value
        for segment in self.segments:
            rows = segment.end - segment.begin
            child = self._children_of(segment)
            children = {
                name: value.index_select(0, child).view(rows, segment.arity, *value.shape[1:])
                for name, value in buffers.items()
            }
            own_x = None if x is None else x[segment.begin - self.num_leaves : segment.end - self.num_leaves]
            if graphs is not None:
                children = {name: value.requires_grad_(has_gradients(value)) for name, value in children.items()}
                own_x = None if own_x is None else own_x.detach().requires_grad_(has_gradients(own_x))
            with torch.set_grad_enabled(graphs is not None or torch.is_grad_enabled()):
                states = checked_state(
                    self.cell(children, own_x, segment.kind), leaves, rows, self.cell, f"forward(..., {segment.kind})"
                )
            if graphs is None and any(value.requires_grad for value in states.values()):
                _refuse_foreign(self.cell, [Graph(segment, states, children, own_x)])
            for name, value in states.items():
                buffers[name][segment.begin : segment.end] = value.detach()
            if graphs is not None:
                graphs.append(Graph(segment, states, children, own_x))
        return buffers

    def backward(
        self, graphs: list[Graph], gradients: State, parameters: list[torch.Tensor], x_gradient: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """The sweep from the roots to the leaves.

        Args:
            graphs: of the forward pass; taken out one by one, so that their memory is free at once.
            gradients: of the states, ``[rows, ...]``; completed in place.
            parameters: the learned tensors.
            x_gradient: where the gradient of the features goes, or None.

        Returns:
            The gradients of ``parameters``.
        """
        found = [torch.zeros_like(parameter) for parameter in parameters]
        while graphs:
            graph = graphs.pop()
            segment = graph.segment
            reached = [name for name, value in graph.states.items() if value.requires_grad]
            if not reached:
                continue
            names = [name for name, value in graph.children.items() if value.requires_grad]
            inputs = [graph.children[name] for name in names]
            with_x = x_gradient is not None and graph.x is not None and graph.x.requires_grad
            inputs += [graph.x] if with_x and graph.x is not None else []
            own = torch.autograd.grad(
                [graph.states[name] for name in reached],
                [*inputs, *parameters],
                [gradients[name][segment.begin : segment.end] for name in reached],
                retain_graph=True,  # segments may share what a cell computes once a batch, and leaves may too
                allow_unused=True,
            )
            child = self._children_of(segment)
            for name, value in zip(names, own, strict=False):
                if value is not None:
                    gradients[name].index_add_(0, child, value.flatten(0, 1))
            if with_x and x_gradient is not None and own[len(names)] is not None:
                x_gradient[segment.begin - self.num_leaves : segment.end - self.num_leaves] = own[len(names)]
            for total, value in zip(found, own[len(inputs) :], strict=True):
                if value is not None:
                    total += value
        return found

    def _children_of(self, segment: Segment) -> torch.Tensor:
        first = segment.first_child
        return self.child[first : first + (segment.end - segment.begin) * segment.arity]


class _Segments(torch.autograd.Function):
    """A :class:`SegmentRun` as one node of the autograd graph: ``(run, x, *leaf states, *parameters)``."""

    @staticmethod
    def forward(ctx: Any, run: SegmentRun, x: torch.Tensor | None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        num_states = len(run.state_names)
        parameters = list(tensors[num_states:])
        graphs: list[Graph] = []
        buffers = run.forward(dict(zip(run.state_names, tensors[:num_states], strict=True)), x, graphs)
        _refuse_foreign(run.cell, graphs)
        ctx.run, ctx.graphs = run, graphs
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, x, *buffers.values(), *parameters)
        return tuple(buffers.values())

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, tensors: tuple[Any, ...], *output_gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        run: SegmentRun = ctx.run
        num_states = len(run.state_names)
        x, *saved = tensors
        if ctx.graphs is None:
            raise RuntimeError(
                "the fused engine runs backwards a second time through cells of the library only; set layer.engine to "
                "'naive' or 'recursive' to retain the graph of your own cell"
            )
        _, of_x, *of_tensors = ctx.needs_input_grad
        graphs, ctx.graphs = ctx.graphs, None
        gradients = {
            name: torch.zeros_like(value) if gradient is None else gradient.clone()
            for name, value, gradient in zip(run.state_names, saved[:num_states], output_gradients, strict=True)
        }
        x_gradient = torch.zeros_like(x) if of_x else None
        found = run.backward(graphs, gradients, saved[num_states:], x_gradient)
        leaf_gradients = [
            gradient[: run.num_leaves] if wanted else None
            for gradient, wanted in zip(gradients.values(), of_tensors, strict=False)
        ]
        return None, x_gradient, *leaf_gradients, *found


def _refuse_foreign(cell: Cell, graphs: list[Graph]) -> None:
    """Raise where a cell used a learned tensor that is none of its parameters, whose gradient would be lost."""
    known = list(cell.parameters())
    times_seen: dict[tuple[int, int], int] = {}
    for graph in graphs:
        sort = graph.segment.kind, graph.segment.arity
        times_seen[sort] = times_seen.get(sort, 0) + 1
        if times_seen[sort] > 2:  # the first shows what came from elsewhere, the second what the first left behind
            continue
        read = list(graph.children.values()) + ([] if graph.x is None else [graph.x])
        foreign = foreign_tensor(graph.states.values(), known + read)
        if foreign is not None:
            raise CellError(
                f"{cell_name(cell)} used a tensor of shape {list(foreign.shape)} that requires gradients and is none "
                f"of its parameters; register it as an nn.Parameter of the cell, and keep nothing from one call to the "
                f"next that was made from x or children"
            )
