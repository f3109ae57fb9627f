"""The gates that ``trace=True`` tells, against the states that the forward pass made with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_parity import ENGINES
from torch import Tensor

from treemem.engines.cell import State
from treemem.errors import CellError, RecipeError
from treemem.nn import (
    ChildSumTreeLSTM,
    StackTreeLSTM,
    StackTreeRNN,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
    TreeStates,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("k", 3)])
X, Y = Tree("x"), Tree("y")
TREES = [Tree("g", [Tree("k", [Tree("f", [X]), Y, X]), Tree("g", [Tree("f", [Y]), X])]), Y]
CHILDREN = [[], [0], [], [], [1, 2, 3], [], [5], [], [6, 7], [4, 8], []]
HIDDEN = 3


def batch_of(*, shared: bool = True) -> TreeBatch:
    return TreeBatch.from_trees(TREES, VOCABULARY, share_subtrees=shared)


def equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def inner_gates(states: TreeStates) -> Iterator[tuple[int, list[int], dict[str, Tensor]]]:
    """The inner nodes, their children and gates; the gates of leaves must be NaN."""
    for node, children in enumerate(CHILDREN):
        gates = {name: value[node] for name, value in states.trace.items()}
        if children:
            yield node, children, gates
        else:
            assert all(value.isnan().all() for value in gates.values())


def stack_of(gates: dict[str, Tensor], merged: Tensor, queue: bool) -> Tensor:
    """The new stack, row by row, as the paper writes it (eq. 17-24)."""
    zero = torch.zeros_like(merged[0])
    size, pushed = len(merged), gates["update"] * gates.get("input", torch.ones(()))
    rows = []
    for i in range(size):
        above = merged[i - 1] if i else pushed
        below = merged[i + 1] if i + 1 < size else zero
        if queue:
            above = merged[i + 1] if i + 1 < size else pushed
        rows.append(gates["push"] * above + gates.get("pop", zero) * below + gates.get("no_op", zero) * merged[i])
    return torch.stack(rows)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"normalize": True, "no_op": True},
    {"normalize": "divide", "no_pop": True},
    {"normalize": "softmax", "input_gate": True},
    {"actions": "scalar", "no_op": True},
    {"top_k": 2},
    {"top_k": 2, "gated_top_k": True, "queue": True},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_stacks_and_outputs_follow_from_the_traced_gates(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    layer = StackTreeLSTM(HIDDEN, VOCABULARY, stack_size=3, **options).double()
    states = layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        forget = gates["forget"]
        assert forget[len(children) :].isnan().all()
        merged = sum(forget[i] * states.S[child] for i, child in enumerate(children))
        stack = stack_of(gates, merged, options.get("queue", False))
        equal(states.S[node], stack)
        top_k = options.get("top_k", 1)
        reading = stack[0] if top_k == 1 else (gates["readout"] * stack[:top_k]).sum(0)
        equal(states.h[node], gates["output"] * torch.tanh(reading))


@pytest.mark.parametrize("layer_class", [TreeLSTM, ChildSumTreeLSTM])
def test_cells_of_a_tree_lstm_follow_from_the_traced_gates(layer_class: type[TreeLayer]) -> None:
    torch.manual_seed(3)
    states = layer_class(HIDDEN, VOCABULARY).double()(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        kept = sum(gates["forget"][i] * states.c[child] for i, child in enumerate(children))
        equal(states.c[node], gates["input"] * gates["update"] + kept)
        equal(states.h[node], gates["output"] * torch.tanh(states.c[node]))


def test_cells_of_leaves_with_features_follow_from_the_traced_gates() -> None:
    torch.manual_seed(3)
    layer = ChildSumTreeLSTM(HIDDEN, VOCABULARY, input_size=2).double()
    batch = batch_of(shared=False)
    states = layer(batch, torch.randn(batch.num_nodes, 2, dtype=torch.float64), trace=True)
    for leaf in (node for node, children in enumerate(CHILDREN) if not children):
        gates = {name: value[leaf] for name, value in states.trace.items()}
        assert gates["forget"].isnan().all()
        equal(states.c[leaf], gates["input"] * gates["update"])
        equal(states.h[leaf], gates["output"] * torch.tanh(states.c[leaf]))


def test_states_of_a_tree_cell_follow_from_the_traced_gates() -> None:
    torch.manual_seed(3)
    layer = TreeCell(HIDDEN, VOCABULARY).double()
    states = layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        mixed = gates["candidate_gate"] * gates["candidate"]
        mixed = mixed + sum(gates["children"][place] * states.h[child] for place, child in enumerate(children))
        equal(states.h[node], layer.cell.norm(mixed))  # type: ignore[operator]


@pytest.mark.parametrize("options", [{}, {"no_op": True}, {"read": "own", "top_k": 2}], ids=str)
def test_stacks_of_a_tree_rnn_follow_from_the_traced_actions(options: dict[str, Any]) -> None:
    torch.manual_seed(4)
    layer = StackTreeRNN(HIDDEN, VOCABULARY, stack_size=3, pop_zero="after_map", **options).double()
    cell = layer.cell
    states = layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        maps = cell.row_maps.of(len(children))
        beside = torch.cat([states.S[child] for child in children], 1)
        push, pop, *no_op = maps(beside, 0).sigmoid().split(HIDDEN, 1)
        rows = []
        for i in range(3):
            row = gates["push"] * (push[i - 1] if i else gates["update"])
            row = row + gates["pop"] * (pop[i + 1] if i < 2 else torch.zeros(HIDDEN))
            rows.append(row + gates["no_op"] * no_op[0][i] if no_op else row)
        equal(states.S[node], torch.stack(rows))
        equal(sum(gates[name] for name in ("push", "pop", "no_op") if name in gates), torch.ones(1).double())


def test_every_engine_traces_the_same_in_node_order() -> None:
    torch.manual_seed(5)
    layer = StackTreeLSTM(HIDDEN, VOCABULARY, normalize=True, no_op=True).double()
    expected = layer(batch_of(shared=False), trace=True).trace
    assert set(expected) == {"forget", "push", "pop", "no_op", "output", "update"}
    for engine in ENGINES:
        layer.engine = engine
        for shared in (False, True):
            for name, value in layer(batch_of(shared=shared), trace=True).trace.items():
                torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-12, equal_nan=True)


def test_a_trace_changes_no_state_and_is_empty_unless_asked_for_or_where_a_cell_tells_nothing() -> None:
    torch.manual_seed(6)
    layer = StackTreeLSTM(HIDDEN, VOCABULARY)
    plain, traced = layer(batch_of()), layer(batch_of(), trace=True)
    assert plain.trace == {}
    assert torch.equal(plain.h, traced.h)
    assert not traced.trace["push"].requires_grad
    assert TreeRNN(HIDDEN, VOCABULARY)(batch_of(), trace=True).trace == {}


class Doubled(torch.nn.Module):
    """A cell of one's own that tells what it did."""

    def __init__(self, told: object) -> None:
        super().__init__()
        self.told = told

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": 2 * children["h"].sum(1)}

    def trace(self, children: State, x: Tensor | None, kind: int) -> Any:
        return {"sum": children["h"].sum(1)} if self.told is None else self.told


def test_a_cell_of_ones_own_can_be_traced_and_one_that_tells_nonsense_is_named() -> None:
    network = TreeNetwork(Doubled(None), vocabulary=VOCABULARY, embedding_size=2)
    states = network(batch_of(), trace=True)
    inner = [node for node, children in enumerate(CHILDREN) if children]
    equal(states.trace["sum"][inner] * 2, states.h[inner])
    with pytest.raises(CellError, match=r"Doubled.trace must return a dict of tensors, not str"):
        TreeNetwork(Doubled("gates"), vocabulary=VOCABULARY, embedding_size=2)(batch_of(), trace=True)


def test_a_trace_of_roots_only_is_refused() -> None:
    layer = StackTreeLSTM(HIDDEN, VOCABULARY)
    with pytest.raises(RecipeError, match="needs a TreeBatch and keep='all'"):
        layer(batch_of(), keep="roots", trace=True)
