"""The baseline: level by level in plain torch under ordinary autograd, as a careful user would write it.

One product a level and kind, one pointwise step a level and arity, states of all levels so far in one tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from treemem.nn import EqualityHead, StackTreeLSTM
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions, stack_tree_lstm_step
from treemem.schedule.schedule import Level
from treemem.schedule.tree_batch import TreeBatch


class LevelVerifier:
    """Scores a batch of equations with the weights of a layer.

    Args:
        layer, head: whose weights to use.
    """

    def __init__(self, layer: StackTreeLSTM, head: EqualityHead) -> None:
        self.head = head
        self.hidden_size: int = layer.options["hidden_size"]
        names = StackTreeLSTMOptions.__dataclass_fields__
        self.options = StackTreeLSTMOptions(**{name: layer.options[name] for name in names})
        self.embedding = layer.leaves.embedding
        self.maps = layer.cell.maps
        self.sets = layer.cell.sets

    def scores(self, batch: TreeBatch) -> Tensor:
        """Scores of the batch's equations, ``[examples]``."""
        schedule = batch.schedule
        hidden = self.embedding(schedule.symbol)
        stacks = hidden.new_zeros(len(hidden), self.options.stack_size, self.hidden_size)
        for level in schedule.levels[1:]:
            states = [self._step(level, arity, schedule.child, hidden, stacks) for arity in _arities(level)]
            hidden = torch.cat([hidden, *(h for h, _ in states)])
            stacks = torch.cat([stacks, *(stack for _, stack in states)])
        roots = hidden[schedule.row_of_root].view(batch.num_examples, 2, self.hidden_size)
        return self.head(roots)

    def _step(self, level: Level, arity: int, child: Tensor, hidden: Tensor, stacks: Tensor) -> tuple[Tensor, Tensor]:
        segments = [segment for segment in level.segments if segment.arity == arity]
        rows = segments[-1].end - segments[0].begin
        below = child[segments[0].first_child : segments[0].first_child + rows * arity]
        inputs = hidden[below].view(rows, arity * self.hidden_size)
        weights, sets = self.maps.of(arity), self.sets.set_of_kind(arity)
        products = []
        for segment in segments:
            own = inputs[segment.begin - segments[0].begin : segment.end - segments[0].begin]
            used = 0 if sets is None else sets[segment.kind]
            products.append(functional.linear(own, weights.weight[used], weights.bias[used]))
        child_stacks = stacks[below].view(rows, arity, self.options.stack_size, self.hidden_size)
        return stack_tree_lstm_step(torch.cat(products), child_stacks, self.options)


def _arities(level: Level) -> list[int]:
    return list(dict.fromkeys(segment.arity for segment in level.segments))
