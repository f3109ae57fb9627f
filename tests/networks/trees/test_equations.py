"""Tree layers without golden vectors for every option: gates that ``trace=True`` tells, and the states made of them.

Gates are those of the papers' equations, from the weights; states are what the paper makes of the gates. Together they
are the layers' equations, written for one node.
"""

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
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
    TreeStates,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("k", 3), ("m", 2)])
TREES = [Tree("g", [Tree("k", [Tree("f", ["x"]), "y", "x"]), Tree("m", [Tree("f", ["y"]), "x"])]), Tree("y")]
CHILDREN = [[], [0], [], [], [1, 2, 3], [], [5], [], [6, 7], [4, 8], []]
SET_OF_NODE = {1: 0, 4: 0, 6: 0, 8: 1, 9: 0}
"""Which of the weights for its number of children a node has: m is the second label with two."""
HIDDEN = 3


def batch_of(*, shared: bool = True) -> TreeBatch:
    return TreeBatch.from_trees(TREES, VOCABULARY, share_subtrees=shared)


def made(layer_class: Any, vocabulary: Vocabulary | None = VOCABULARY, **options: Any) -> Any:
    """A layer in plain torch, to which the other engines are held elsewhere."""
    torch.manual_seed(1)
    return layer_class(HIDDEN, vocabulary, engine="autograd", **options).double()


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


NORMALISED = {
    "none": torch.sigmoid,
    "softmax_of_gates": lambda logits: logits.sigmoid().softmax(0),
    "divide": lambda logits: logits.sigmoid() / logits.sigmoid().sum(0),
    "softmax": lambda logits: logits.softmax(0),
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize": "softmax_of_gates", "no_op": True},
        {"normalize": "divide", "no_op": True},
        {"normalize": "divide", "no_pop": True},
        {"normalize": "softmax", "input_gate": True},
        {"actions": "scalar", "no_op": True},
        {"top_k": 2},
        {"top_k": 2, "gated_top_k": True, "queue": True},
        {"queue": True, "no_op": True},
    ],
    ids=str,
)
def test_gates_stacks_and_outputs_of_a_stack_tree_lstm(options: dict[str, Any]) -> None:
    layer, top_k, scalar = made(StackTreeLSTM, stack_size=3, **options), options.get("top_k", 1), "actions" in options
    states = layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        arity, maps = len(children), layer.cell.maps.of(len(children))
        actions = [name for name in ("push", "pop", "no_op") if name in gates]
        widths = {  # in the order of checkpoints
            "forget": arity * HIDDEN,
            "actions": 0 if scalar else len(actions) * HIDDEN,
            "output": HIDDEN,
            "input": HIDDEN if "input_gate" in options else 0,
            "readout": 0 if top_k == 1 else top_k * HIDDEN if "gated_top_k" in options else top_k,
            "update": HIDDEN,
            "scalar actions": len(actions) if scalar else 0,
        }
        weight, bias = maps.weight[SET_OF_NODE[node]], maps.bias[SET_OF_NODE[node]]
        product = weight @ torch.cat([states.h[child] for child in children]) + bias
        blocks = dict(zip(widths, product.split([*widths.values()]), strict=True))
        forget = blocks["forget"].view(arity, HIDDEN).sigmoid()
        equal(gates["forget"][:arity], forget)
        assert gates["forget"][arity:].isnan().all()
        equal(gates["update"], blocks["update"].tanh())
        for name in ("output", "input"):
            if name in gates:
                equal(gates[name], blocks[name].sigmoid())
        if top_k > 1:
            equal(gates["readout"].flatten(), blocks["readout"].sigmoid())
        of_actions = blocks["actions"].view(-1, HIDDEN) if not scalar else blocks["scalar actions"][:, None]
        normalised = NORMALISED["softmax" if scalar else options.get("normalize", "none")]
        equal(torch.stack([gates[name] for name in actions]), normalised(of_actions))
        merged = sum(forget[i] * states.S[child] for i, child in enumerate(children))
        stack = stack_of(gates, merged, options.get("queue", False))
        equal(states.S[node], stack)
        reading = stack[0] if top_k == 1 else (gates["readout"] * stack[:top_k]).sum(0)
        equal(states.h[node], gates["output"] * torch.tanh(reading))


@pytest.mark.parametrize(
    ("options", "at_leaves", "above"),
    [
        ({"input_size": 2, "node_features": True}, "features", "features"),
        ({"input_size": 2, "node_features": False}, "features", "labels"),
        ({}, None, "labels"),
    ],
    ids=str,
)
def test_gates_and_cells_of_a_child_sum_tree_lstm(options: dict[str, Any], at_leaves: str | None, above: str) -> None:
    layer, batch = made(ChildSumTreeLSTM, **options), batch_of(shared=False)
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64)
    states = layer(batch, *([feat] if options else []), trace=True)
    labels = [node.label for tree in TREES for node in tree.postorder()]
    vectors = (
        None if layer.leaves is None else dict(zip(VOCABULARY.labels, layer.leaves.embedding.weight, strict=False))
    )
    gates_map, forget_map = layer.cell.gates_map, layer.cell.forget_map
    for node, children in enumerate(CHILDREN):
        source = above if children else at_leaves
        if source is None:
            equal(states.h[node], vectors[labels[node]])
            assert not states.c[node].any()
            continue
        x = feat[node] if source == "features" else vectors[labels[node]]
        columns = [x]
        if {at_leaves, above} == {"features", "labels"}:  # next to each other, with zeros for what a node does not read
            columns = [x, x.new_zeros(HIDDEN)] if source == "features" else [x.new_zeros(2), x]
        total = sum((states.h[child] for child in children), torch.zeros(HIDDEN).double())
        product = gates_map.weight[0] @ torch.cat([total, *columns]) + gates_map.bias[0]
        i, o = product[: 2 * HIDDEN].sigmoid().split(HIDDEN)
        u = product[2 * HIDDEN :].tanh()
        forgets = [
            (forget_map.weight[0] @ torch.cat([states.h[child], x]) + forget_map.bias[0]).sigmoid()
            for child in children
        ]
        cell = i * u + sum(f * states.c[child] for f, child in zip(forgets, children, strict=True))
        equal(states.c[node], cell)
        equal(states.h[node], o * cell.tanh())
        for name, value in {"input": i, "output": o, "update": u}.items():
            equal(states.trace[name][node], value)
        told = states.trace["forget"][node]
        assert told[len(children) :].isnan().all()
        if children:
            equal(told[: len(children)], torch.stack(forgets))


def test_cells_of_a_tree_lstm_follow_from_the_gates_and_leaves_with_features_have_no_children() -> None:
    states = made(TreeLSTM)(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        kept = sum(gates["forget"][i] * states.c[child] for i, child in enumerate(children))
        equal(states.c[node], gates["input"] * gates["update"] + kept)
        equal(states.h[node], gates["output"] * torch.tanh(states.c[node]))
    layer, feat = made(TreeLSTM, input_size=2), torch.randn(11, 2, dtype=torch.float64)
    states = layer(batch_of(shared=False), feat)
    i, o, u = (layer.cell.leaf_map.weight[0] @ feat[0] + layer.cell.leaf_map.bias[0]).split(HIDDEN)
    equal(states.c[0], i.sigmoid() * u.tanh())
    equal(states.h[0], o.sigmoid() * states.c[0].tanh())


def test_states_of_a_tree_cell_follow_from_the_gates() -> None:
    layer = made(TreeCell)
    states = layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        mixed = gates["candidate_gate"] * gates["candidate"]
        mixed = mixed + sum(gates["children"][place] * states.h[child] for place, child in enumerate(children))
        equal(states.h[node], layer.cell.norm(mixed))


@pytest.mark.parametrize(
    "options",
    [
        {"pop_zero": "after_map"},
        {"no_op": True},
        {"read": "own", "top_k": 1},
        {"read": "own", "top_k": 2, "pop_zero": "after_map", "no_op": True},
        {"read": "own", "top_k": 3, "no_op": True},
    ],
    ids=str,
)
def test_actions_stacks_and_outputs_of_a_stack_tree_rnn(options: dict[str, Any]) -> None:
    layer = made(StackTreeRNN, stack_size=3, **options)
    cell, states = layer.cell, layer(batch_of(), trace=True)
    for node, children, gates in inner_gates(states):
        arity, own = len(children), SET_OF_NODE[node]
        x = torch.cat([states.h[child] for child in children])
        control = cell.control_maps.of(arity)
        update, logits = (control.weight[0] @ x + control.bias[0]).split([HIDDEN, 2 + cell.no_op])
        equal(gates["update"], update.sigmoid())
        names = ("push", "pop", "no_op")[: 2 + cell.no_op]
        equal(torch.cat([gates[name] for name in names]), logits.softmax(0))
        rows = cell.row_maps.of(arity)
        beside = torch.cat([states.S[child] for child in children], 1)
        push, pop, *no_op = (beside @ rows.weight[0].T + rows.bias[0]).sigmoid().split(HIDDEN, 1)
        empty = rows.bias[0][HIDDEN : 2 * HIDDEN].sigmoid()
        last = torch.zeros(HIDDEN) if options.get("pop_zero") == "after_map" else empty
        stack = []
        for i in range(3):
            row = gates["push"] * (push[i - 1] if i else gates["update"])
            row = row + gates["pop"] * (pop[i + 1] if i < 2 else last)
            stack.append(row + gates["no_op"] * no_op[0][i] if no_op else row)
        equal(states.S[node], torch.stack(stack))
        if "read" in options:
            maps, memory = cell.maps.of(arity), cell.memory_maps.of(arity)
            hidden, shares = (maps.weight[own] @ x + maps.bias[own]).split([HIDDEN, options["top_k"]])
            reading = shares.sigmoid() @ states.S[node][: options["top_k"]]
            equal(states.h[node], (hidden + memory.weight[own] @ reading + memory.bias[own]).sigmoid())


def test_every_engine_traces_the_same_in_node_order_and_the_trace_changes_no_state() -> None:
    layer = made(StackTreeLSTM, normalize=True, no_op=True)
    expected = layer(batch_of(shared=False), trace=True).trace
    assert set(expected) == {"forget", "push", "pop", "no_op", "output", "update"}
    assert not expected["push"].requires_grad
    for engine in ENGINES:
        layer.engine = engine
        for shared in (False, True):
            plain, traced = layer(batch_of(shared=shared)), layer(batch_of(shared=shared), trace=True)
            assert plain.trace == {}
            assert torch.equal(plain.h, traced.h)
            torch.testing.assert_close(traced.trace, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert made(TreeRNN)(batch_of(), trace=True).trace == {}
    with pytest.raises(RecipeError, match="keep='all'"):
        layer(batch_of(), keep="roots", trace=True)


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
