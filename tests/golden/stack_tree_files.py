"""Checks of golden files of stack-augmented trees, one function for each sort of file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine_parity import ENGINES
from golden.stack_tree_networks import (
    Arrays,
    Network,
    build,
    functions_of,
    load_weights,
    network_of,
    places,
    weight_places,
)
from torch.nn import functional

from treemem.networks.trees.stack_tree_lstm.equations import stack_tree_lstm_gates
from treemem.networks.trees.stack_tree_rnn.equations import stack_candidates
from treemem.networks.trees.tree_lstm.equations import tree_lstm_gates
from treemem.nn import (
    LSTM,
    RNN,
    EqualityHead,
    NumberDecoder,
    StackTreeLSTM,
    StackTreeRNN,
    TreeLayer,
    TreeLSTM,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

EQUALITY = "Equality"
SEQUENCES = ("lstm", "rnn")
"""Baselines over the tokens, as files call them."""


def same(
    ours: torch.Tensor, golden: Any, name: str, dtype: torch.dtype = torch.float64, *, exact: float = 1e-10
) -> None:
    """Assert that a tensor is the golden array: to ``exact``, or in float32 to 1e-5 of the largest entry."""
    golden = np.asarray(golden, dtype=np.float64)
    assert tuple(ours.shape) == golden.shape, name
    tolerance = exact if dtype == torch.float64 else 1e-5 * max(1.0, float(np.abs(golden).max(initial=0)))
    np.testing.assert_allclose(ours.detach().double().numpy(), golden, rtol=0, atol=tolerance, err_msg=name)


def has_check(path: Path) -> bool:
    """Whether there is a test for a file."""
    prefix, _, sort = path.stem.rpartition("_")
    return sort in SEQUENCES if prefix == "x_seq" else sort in CHECKS and network_of(prefix) is not None


def check(path: Path) -> None:
    """Check one file."""
    prefix, _, sort = path.stem.rpartition("_")
    arrays, network = dict(np.load(path)), network_of(prefix)
    if network is None:
        check_sequence(arrays, sort)
    else:
        CHECKS[sort](path, prefix, network, arrays)


def check_node(path: Path, prefix: str, network: Network, arrays: Arrays) -> None:
    """One node: gates and states."""
    arity = 1 if path.stem.endswith("unary") else 2
    suffixes = [""] if arity == 1 else [str(position) for position in range(1, arity + 1)]
    hidden_size = arrays["out_h"].shape[0]
    layer = build(path, prefix, network, hidden_size, Vocabulary(["x"], [("f", arity)]))
    where = places(layer, 1, arity)
    assert {f"w_{name}" for name in where} == {name for name in arrays if name.startswith("w_")}
    load_weights(layer, arrays, where)
    names = [name for name in ("h", "c", "S") if f"out_{name}" in arrays]
    for dtype in (torch.float64, torch.float32):
        layer = layer.to(dtype)
        children = {
            name: torch.stack([torch.from_numpy(arrays[f"in_{name}{suffix}"]) for suffix in suffixes])[None].to(dtype)
            for name in names
        }
        states = layer.cell(children, None, 1)
        assert sorted(states) == sorted(names)
        for name in names:
            same(states[name][0], arrays[f"out_{name}"], name, dtype)
        gates = node_gates(layer, children, arity, suffixes)
        golden = {name.removeprefix("gate_") for name in arrays if name.startswith("gate_")}
        assert gates.keys() == golden
        for name in golden:
            same(gates[name][0], arrays[f"gate_{name}"], name, dtype)


def node_gates(
    layer: TreeLayer, children: dict[str, torch.Tensor], arity: int, suffixes: list[str]
) -> dict[str, torch.Tensor]:
    """What lies between a node's inputs and its states, by the names in the files."""
    cell, size = layer.cell, layer.hidden_size
    products = cell.products_of(children, None, 1)
    if isinstance(layer, TreeLSTM):
        gates = tree_lstm_gates(products["gates"], arity, size)
        forget = {f"f{suffix}": gates["forget"][:, place] for place, suffix in enumerate(suffixes)}
        return {"inp": gates["input"], "o": gates["output"], "u": gates["update"], **forget}
    if isinstance(layer, StackTreeRNN):
        rows = products["rows"].unflatten(0, (1, -1))
        action, candidates = stack_candidates(products["control"], rows, size, cell.no_op, True)
        names = ("S_push_shifted", "S_pop_shifted", "S_noop")
        update = torch.sigmoid(products["control"][:, :size])
        return {"a": action, "u": update, **dict(zip(names, candidates, strict=False))}
    if not isinstance(layer, StackTreeLSTM):
        return {}
    gates = stack_tree_lstm_gates(products["gates"], arity, size, cell.stack_options)
    found = {f"f{suffix}": gates["forget"][:, place] for place, suffix in enumerate(suffixes)}
    found["S_c"] = (gates["forget"][:, :, None] * children["S"]).sum(1)
    found["u"], found["o"] = gates["update"], gates["output"]
    if cell.stack_options.actions == "scalar":
        found["a"] = torch.cat([gates[name] for name in cell.stack_options.action_names], dim=1)
    else:
        found |= {f"a_{name.replace('_', '')}": gates[name] for name in cell.stack_options.action_names}
    if cell.stack_options.input_gate:
        found["inp"] = gates["input"]
    if cell.stack_options.top_k > 1:
        found["p"] = gates["readout"] if cell.stack_options.gated_top_k else gates["readout"][:, :, 0]
    return found


def check_tree(path: Path, prefix: str, network: Network, arrays: Arrays) -> None:
    """One equation: every node's states, score, losses and gradients, on every engine."""
    trees, nodes = read_tree(arrays)

    def outputs(states: Any, score: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        losses = {f"out_loss_label{label}": EqualityHead.loss(score, torch.tensor([label])) for label in (0, 1)}
        found = {"out_score": score[0], "out_prob": EqualityHead.probability(score)[0], **losses}
        return found, losses["out_loss_label1"]

    check_equations(path, prefix, network, arrays, trees, nodes, outputs)


def check_batch(path: Path, prefix: str, network: Network, arrays: Arrays) -> None:
    """Several equations at once: scores, losses and gradients, on every engine."""
    functions = dict(functions_of(arrays, arrays["w_E"].shape[1]))
    trees = [side for text in arrays["prefix"] for side in read_prefix(str(text).split(), functions).children]
    labels = torch.from_numpy(arrays["label"])

    def outputs(states: Any, score: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        loss = functional.binary_cross_entropy_with_logits(score, labels.to(score.dtype), reduction="none")
        mean = EqualityHead.loss(score, labels)
        correct = EqualityHead.correct(score, labels)
        predicted = EqualityHead.prediction(score) == labels.bool()
        assert correct.tolist() == predicted.tolist() == arrays["out_correct"].tolist()
        return {"out_score": score, "out_loss": loss, "out_mean_loss": mean}, mean

    check_equations(path, prefix, network, arrays, trees, None, outputs)


def check_equations(
    path: Path,
    prefix: str,
    network: Network,
    arrays: Arrays,
    trees: list[Tree],
    nodes: list[int] | None,
    outputs: Callable[[Any, torch.Tensor], tuple[dict[str, torch.Tensor], torch.Tensor]],
) -> None:
    """Run the sides of equations on every engine, with and without shared subtrees, in both precisions."""
    hidden_size = arrays["w_E"].shape[1]
    vocabulary = Vocabulary([str(name) for name in arrays["token_name"]], functions_of(arrays, hidden_size))
    layer, head = build(path, prefix, network, hidden_size, vocabulary), EqualityHead().double()
    where = weight_places(layer, arrays)
    named = {name.removeprefix("w_") for name in arrays if name.startswith("w_")} - {"E", "bias"}
    assert where.keys() == {name for name in named if not name.startswith("shared_")} | (where.keys() & named)
    load_weights(layer, arrays, where)
    assert layer.leaves is not None
    with torch.no_grad():
        layer.leaves.embedding.weight.copy_(torch.from_numpy(arrays["w_E"]))
        head.bias.copy_(torch.from_numpy(arrays["w_bias"]))
    for engine, share, dtype in (
        *((engine, share, torch.float64) for engine in ENGINES for share in (True, False)),
        ("auto", True, torch.float32),
    ):
        layer.engine = engine
        layer, head = layer.to(dtype), head.to(dtype)
        layer.zero_grad()
        head.zero_grad()
        batch = TreeBatch.from_trees(trees, vocabulary, trees_per_example=2, share_subtrees=share)
        states = layer(batch)
        found, loss = outputs(states, head(states))
        for name, value in found.items():
            same(value, arrays[name], f"{name} ({engine})", dtype)
        if nodes is not None:
            for name in states.names:
                same(states[name], arrays[f"out_{name}"][nodes], f"{name} ({engine})", dtype)
        loss.backward()
        gradients = {"E": layer.leaves.embedding.weight.grad, "bias": head.bias.grad}
        for name, place in where.items():
            parameter = place.parameter(name.rpartition(".")[2])
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients[name] = place.of(gradient)
        for name, gradient in gradients.items():
            assert gradient is not None
            same(gradient, arrays[f"grad_{name}"], f"gradient of {name} ({engine})", dtype)


def check_numeric(path: Path, prefix: str, network: Network, arrays: Arrays) -> None:
    """A numeric equation, sin(Mul(-1, number)) = target: encoder, states, decoder and squared error."""
    hidden_size = arrays["out_encoding"].shape[0]
    activation = "relu" if network.layer is StackTreeRNN else "sigmoid"
    network = Network(network.layer, {**network.options, "number_activation": activation})
    vocabulary = Vocabulary(["NegativeOne"], functions_of(arrays, hidden_size), number="Number")
    layer = build(path, prefix, network, hidden_size, vocabulary)
    decoder = NumberDecoder(hidden_size, activation).double()
    load_weights(layer, arrays, weight_places(layer, arrays))
    assert layer.leaves is not None
    assert layer.leaves.number is not None
    with torch.no_grad():
        layer.leaves.embedding.weight.copy_(torch.from_numpy(arrays["w_E_NegativeOne"])[None])
        for name, module in (("enc", layer.leaves.number), ("dec", decoder)):
            for position, linear in enumerate((module.first, module.second), start=1):
                linear.weight.copy_(torch.from_numpy(arrays[f"w_{name}.W{position}"]))
                linear.bias.copy_(torch.from_numpy(arrays[f"w_{name}.b{position}"]))
    number = Tree("Number", value=float(arrays["in_number"]))
    tree = Tree("sin", [Tree("Mul", [Tree("NegativeOne"), number])])
    batch = TreeBatch.from_trees([tree], vocabulary)
    for engine in ENGINES:
        layer.engine = engine
        states = layer(batch)
        decoded = decoder(states)[0]
        same(states.h[1], arrays["out_encoding"], "encoding")
        same(states.h[2], arrays["out_h_mul"], "h of Mul")
        same(states.h[3], arrays["out_h_sin"], "h of sin")
        same(decoded, arrays["out_decoded"], "decoded")
        same(NumberDecoder.loss(decoded[0], torch.from_numpy(arrays["in_target"])), arrays["out_sq_error"], "loss")


def check_sequence(arrays: Arrays, sort: str) -> None:
    """A flat baseline over both sides of one equation, which have different lengths."""
    hidden_size = arrays["out_h_l"].shape[0]
    vocabulary = Vocabulary(["x"], [("f", 1)])
    layer = (LSTM if sort == "lstm" else RNN)(hidden_size, vocabulary).double()
    head = EqualityHead().double()
    weights = {name.removeprefix("w_"): torch.from_numpy(value) for name, value in arrays.items() if name[:2] == "w_"}
    with torch.no_grad():
        head.bias.copy_(weights.pop("bias"))
        if isinstance(layer, LSTM):
            gates = ("inp", "f", "u", "o")
            of_hidden, of_token = torch.cat([weights.pop(f"U_{gate}") for gate in gates]).split(hidden_size, dim=1)
            layer.lstm.weight_hh_l0.copy_(of_hidden)
            layer.lstm.weight_ih_l0.copy_(of_token)
            layer.lstm.bias_ih_l0.copy_(torch.cat([weights.pop(f"b_{gate}") for gate in gates]))
            layer.lstm.bias_hh_l0.zero_()
        else:
            for linear, suffix in ((layer.recurrent, ""), (layer.output, "2")):
                linear.weight.copy_(weights.pop(f"W{suffix}"))
                linear.bias.copy_(weights.pop(f"b{suffix}"))
    assert not weights
    sides = [torch.from_numpy(arrays[f"in_x_{side}"]) for side in "lr"]
    inputs = torch.nn.utils.rnn.pad_sequence(sides, batch_first=True)
    for engine in ("torch", "naive") if isinstance(layer, LSTM) else ("auto",):
        if isinstance(layer, LSTM):
            layer.engine = engine  # type: ignore[assignment]
        last = layer.read(inputs, torch.tensor([len(side) for side in sides])).encoding
        for position, side in enumerate("lr"):
            same(last[position], arrays[f"out_h_{side}"], f"final state of side {side} ({engine})")
        score = head(last[None])
        same(score[0], arrays["out_score"], f"score ({engine})")
        same(EqualityHead.loss(score, torch.tensor([1])), arrays["out_loss_label1"], f"loss ({engine})")


def read_tree(arrays: Arrays) -> tuple[list[Tree], list[int]]:
    """The two sides of an equation in preorder arrays, and the place in these of each of their nodes in post-order."""
    names = [str(name) for name in arrays["token_name"]]

    def build_tree(node: int) -> tuple[Tree, list[int]]:
        below = [int(arrays[side][node]) for side in ("tree_left", "tree_right") if arrays[side][node] >= 0]
        if not below:
            return Tree(names[int(arrays["tree_token"][node])]), [node]
        parts = [build_tree(child) for child in below]
        order = [place for _, places_below in parts for place in places_below]
        return Tree(str(arrays["tree_func"][node]), [tree for tree, _ in parts]), [*order, node]

    assert arrays["tree_func"][0] == EQUALITY
    sides = [build_tree(int(arrays[side][0])) for side in ("tree_left", "tree_right")]
    trees = [tree for tree, _ in sides]
    assert Forest.from_trees(trees).num_nodes == len(arrays["tree_func"]) - 1
    return trees, [node for _, order in sides for node in order]


def read_prefix(words: list[str], functions: dict[str, int]) -> Tree:
    """The equation that a prefix text says."""
    done: list[Tree] = []
    for word in reversed(words):
        arity = 2 if word == EQUALITY else functions.get(word, 0)
        children = [done.pop() for _ in range(arity)]
        done.append(Tree(word, children))
    assert len(done) == 1
    return done[0]


CHECKS: dict[str, Callable[[Path, str, Network, Arrays], None]] = {
    "binary": check_node,
    "unary": check_node,
    "tree": check_tree,
    "batch": check_batch,
    "numeric": check_numeric,
}
