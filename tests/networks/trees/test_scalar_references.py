"""Networks without golden vectors, against loops over scalars written from the equations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from engine_parity import ENGINES

from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, StackTreeRNN, TreeLSTM
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("k", 2)])
X, Y = Tree("x"), Tree("y")
TREE = Tree("g", [Tree("k", [Tree("f", [X]), Y]), Tree("g", [Tree("k", [Y, X]), X])])
HIDDEN = 2

Vector = list[float]
Matrix = Sequence[Sequence[float]]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def affine(weight: Matrix, bias: Sequence[float], x: Sequence[float]) -> Vector:
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def mapped(function: Callable[[float], float], values: Sequence[float]) -> Vector:
    return [function(value) for value in values]


def rows(tensor: torch.Tensor) -> list[Vector]:
    return tensor.detach().tolist()


def assert_states(layer: torch.nn.Module, tree: Tree, expected: dict[str, object], **inputs: torch.Tensor) -> None:
    """The states of the root on every engine."""
    batch = TreeBatch.from_trees([tree], VOCABULARY, share_subtrees=False)
    for engine in ENGINES:
        layer.engine = engine  # type: ignore[assignment]
        states = layer(batch, **inputs)
        for name, value in expected.items():
            torch.testing.assert_close(
                states[name][-1], torch.tensor(value, dtype=torch.float64), rtol=0, atol=1e-12, msg=f"{name}, {engine}"
            )


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ({"input_size": 3}, "features"),
        ({"input_size": 3, "node_features": False}, "features at leaves, labels above"),
        ({}, "labels"),
    ],
)
def test_child_sum_tree_lstm_is_the_papers(options: dict[str, Any], reads: str) -> None:
    torch.manual_seed(0)
    layer = ChildSumTreeLSTM(HIDDEN, VOCABULARY, **options).double()
    feat = torch.randn(TREE.size, 3, dtype=torch.float64)
    gates, gates_bias = rows(layer.cell.gates_map.weight)[0], rows(layer.cell.gates_map.bias)[0]
    forget, forget_bias = rows(layer.cell.forget_map.weight)[0], rows(layer.cell.forget_map.bias)[0]
    features = iter(feat.tolist())
    table = [] if layer.leaves is None else rows(layer.leaves.embedding.weight)
    vector = dict(zip(VOCABULARY.labels, table, strict=False))

    def run(tree: Tree) -> tuple[Vector, Vector]:
        below = [run(child) for child in tree.children]
        own = next(features)
        if reads == "labels" and not below:
            return vector[tree.label], [0.0] * HIDDEN
        x = own if reads == "features" or not below else vector[tree.label]
        columns = {"features": x, "labels": x}.get(reads) or ([*x, 0, 0] if not below else [0, 0, 0, *x])
        total = [sum(h[place] for h, _ in below) for place in range(HIDDEN)]
        a = affine(gates, gates_bias, [*total, *columns])
        i, o, u = mapped(sigmoid, a[:2]), mapped(sigmoid, a[2:4]), mapped(math.tanh, a[4:])
        c = [i[place] * u[place] for place in range(HIDDEN)]
        for h, child_c in below:
            f = mapped(sigmoid, affine(forget, forget_bias, [*h, *x]))
            c = [c[place] + f[place] * child_c[place] for place in range(HIDDEN)]
        return [o[place] * math.tanh(c[place]) for place in range(HIDDEN)], c

    hidden, cell = run(TREE)
    assert_states(layer, TREE, {"h": hidden, "c": cell}, **({} if reads == "labels" else {"feat": feat}))


def test_tree_lstm_runs_leaves_with_features_without_children() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(HIDDEN, VOCABULARY, input_size=3).double()
    feat = torch.randn(1, 3, dtype=torch.float64)
    a = affine(rows(layer.cell.leaf_map.weight)[0], rows(layer.cell.leaf_map.bias)[0], feat[0].tolist())
    i, o, u = mapped(sigmoid, a[:2]), mapped(sigmoid, a[2:4]), mapped(math.tanh, a[4:])
    c = [i[place] * u[place] for place in range(HIDDEN)]
    h = [o[place] * math.tanh(c[place]) for place in range(HIDDEN)]
    assert_states(layer, X, {"h": h, "c": c}, feat=feat)


@pytest.mark.parametrize(
    ("pop_zero", "no_op", "top_k"), [("before_map", False, 1), ("after_map", True, 2), ("before_map", True, 3)]
)
def test_stack_tree_rnn_that_reads_its_own_stack_is_the_papers(pop_zero: str, no_op: bool, top_k: int) -> None:
    torch.manual_seed(0)
    stack_size = 3
    layer = StackTreeRNN(
        HIDDEN, VOCABULARY, stack_size=stack_size, read="own", top_k=top_k, no_op=no_op, pop_zero=pop_zero
    ).double()
    parts = layer.cell
    embedding = dict(zip("xy", rows(layer.leaves.embedding.weight), strict=True))

    def run(tree: Tree) -> tuple[Vector, list[Vector]]:
        if tree.is_leaf:
            return embedding[tree.label], [[0.0] * HIDDEN for _ in range(stack_size)]
        below = [run(child) for child in tree.children]
        own = {"f": 0, "g": 0, "k": 1}[tree.label]
        x = [value for h, _ in below for value in h]
        arity = len(below)
        control = parts.control_maps.of(arity)
        a_u = affine(rows(control.weight)[0], rows(control.bias)[0], x)
        u, logits = mapped(sigmoid, a_u[:HIDDEN]), a_u[HIDDEN:]
        exponents = mapped(math.exp, logits)
        action = [value / sum(exponents) for value in exponents]
        row_map = parts.row_maps.of(arity)
        weight, bias = rows(row_map.weight)[0], rows(row_map.bias)[0]

        def maps(number: int, merged: Vector) -> Vector:
            block = slice(number * HIDDEN, (number + 1) * HIDDEN)
            return mapped(sigmoid, affine(weight[block], bias[block], merged))

        merged = [[value for _, stack in below for value in stack[row]] for row in range(stack_size)]
        nothing = [0.0] * (arity * HIDDEN)
        stack = []
        for row in range(stack_size):
            pushed = u if row == 0 else maps(0, merged[row - 1])
            if row + 1 < stack_size:
                popped = maps(1, merged[row + 1])
            else:
                popped = maps(1, nothing) if pop_zero == "before_map" else [0.0] * HIDDEN
            new = [action[0] * pushed[place] + action[1] * popped[place] for place in range(HIDDEN)]
            if no_op:
                kept = maps(2, merged[row])
                new = [new[place] + action[2] * kept[place] for place in range(HIDDEN)]
            stack.append(new)
        w, memory = parts.maps.of(arity), parts.memory_maps.of(arity)
        a_p = affine(rows(w.weight)[own], rows(w.bias)[own], x)
        p = mapped(sigmoid, a_p[HIDDEN:])
        assert len(p) == top_k
        reading = [sum(p[row] * stack[row][place] for row in range(top_k)) for place in range(HIDDEN)]
        m = affine(rows(memory.weight)[own], rows(memory.bias)[own], reading)
        return mapped(sigmoid, [a + b for a, b in zip(a_p[:HIDDEN], m, strict=True)]), stack

    hidden, stack = run(TREE)
    assert_states(layer, TREE, {"h": hidden, "S": stack})


@pytest.mark.parametrize(
    ("queue", "normalize"),
    [(False, "divide"), (False, "softmax"), (True, "none"), (True, "softmax_of_gates"), (False, "softmax_of_gates")],
)
def test_stack_tree_lstm_normalizes_and_queues_as_said(queue: bool, normalize: str) -> None:
    torch.manual_seed(0)
    stack_size = 3
    layer = StackTreeLSTM(
        HIDDEN, VOCABULARY, stack_size=stack_size, queue=queue, normalize=normalize, no_op=True
    ).double()
    embedding = dict(zip("xy", rows(layer.leaves.embedding.weight), strict=True))

    def softmax(values: Sequence[float]) -> Vector:
        exponents = mapped(math.exp, values)
        return [value / sum(exponents) for value in exponents]

    def actions(logits: Sequence[float]) -> Vector:
        gates = mapped(sigmoid, logits)
        return {
            "none": gates,
            "softmax_of_gates": softmax(gates),
            "divide": [gate / sum(gates) for gate in gates],
            "softmax": softmax(logits),
        }[normalize]

    def run(tree: Tree) -> tuple[Vector, list[Vector]]:
        if tree.is_leaf:
            return embedding[tree.label], [[0.0] * HIDDEN for _ in range(stack_size)]
        below = [run(child) for child in tree.children]
        own, arity = {"f": 0, "g": 0, "k": 1}[tree.label], len(below)
        module = layer.cell.maps.of(arity)
        a = affine(rows(module.weight)[own], rows(module.bias)[own], [value for h, _ in below for value in h])
        forget, logits = a[: arity * HIDDEN], a[arity * HIDDEN : (arity + 3) * HIDDEN]
        output, update = a[(arity + 3) * HIDDEN : (arity + 4) * HIDDEN], mapped(math.tanh, a[(arity + 4) * HIDDEN :])
        merged = [
            [
                sum(sigmoid(forget[child * HIDDEN + place]) * below[child][1][row][place] for child in range(arity))
                for place in range(HIDDEN)
            ]
            for row in range(stack_size)
        ]
        stack = [[0.0] * HIDDEN for _ in range(stack_size)]
        for place in range(HIDDEN):
            push, pop, no_op = actions([logits[number * HIDDEN + place] for number in range(3)])
            for row in range(stack_size):
                below_row = merged[row + 1][place] if row + 1 < stack_size else 0.0
                if queue:
                    pushed = update[place] if row == stack_size - 1 else merged[row + 1][place]
                else:
                    pushed = update[place] if row == 0 else merged[row - 1][place]
                stack[row][place] = push * pushed + pop * below_row + no_op * merged[row][place]
        return [sigmoid(output[place]) * math.tanh(stack[0][place]) for place in range(HIDDEN)], stack

    hidden, stack = run(TREE)
    assert_states(layer, TREE, {"h": hidden, "S": stack})
