"""Checks of golden files of the Gumbel Tree-LSTM."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from golden.induction_files import as_tree, words
from golden.learned_weights import VOCABULARY, check_gradients, load
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.affine import Affine
from treemem.engines.choices import straight_through
from treemem.engines.sequence_engine import SequenceEngine
from treemem.induction import tree_from_splits
from treemem.networks.parsers.gumbel_tree_lstm.equations import GumbelTreeWeights
from treemem.networks.parsers.gumbel_tree_lstm.run import attend_to_nodes, gumbel_trees
from treemem.networks.trees.tree_lstm.equations import tree_lstm_step
from treemem.nn import GumbelTreeLSTM

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
_LEAVES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_GUMBEL = {
    "comp_query": "cell.query",
    "word_linear": "leaves.map",
    "treelstm_layer.comp_linear": "cell.map",
    **{f"leaf_rnn_cell.{name}": f"leaves.lstm.{name}_l0" for name in _LEAVES},
    **{f"leaf_rnn_cell_bw.{name}": f"leaves.lstm.{name}_l0_reverse" for name in _LEAVES},
}


def check_gumbel(arrays: Arrays, **options: Any) -> None:
    """Root, trees, and gradients of the batch; with noise or attention also of each sequence."""
    size = arrays["h"].shape[1]
    layer = GumbelTreeLSTM(size, VOCABULARY, embedding_size=arrays["input"].shape[2], **options).double()
    of_cell = [name for name in arrays if name.partition(".")[2].startswith("treelstm_layer.comp_linear")]
    arrays = {**arrays, **{name: blocks(arrays[name]) for name in of_cell}}
    ours = load(layer, arrays, _GUMBEL)
    with torch.no_grad():
        for forget in layer.cell.map.bias.chunk(5)[1:3]:
            forget += 1  # which their code adds to the gates
    lengths = torch.from_numpy(arrays["lengths"])
    noisy = "uniform0" in arrays
    attentive = "attention" in arrays
    for engine in ENGINES:
        inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
        layer.zero_grad()
        leaves = layer.leaves(inputs, lengths)
        temperature = float(arrays["temperature"]) if noisy else None
        found = [
            gumbel_trees(
                leaves[row : row + 1, :length],
                lengths[row : row + 1],
                layer.cell.weights(),
                temperature=temperature,
                noise=partial(_gumbel_row, arrays, row) if noisy else None,
                engine=engine,
                trace=True,
            )
            for row, length in enumerate(lengths.tolist())
        ]
        for row, (each, length) in enumerate(zip(found, lengths.tolist(), strict=True)):
            assert each.joined is not None
            begins = list(range(length))
            for step in range(1, length):
                place = arrays[f"layer{step - 1}.select"][row].argmax() if step < length - 1 else 0
                assert each.joined[0, begins.pop(place + 1)] == step
        roots = torch.cat([each.roots for each in found])
        if not noisy:
            same(gumbel_trees(leaves, lengths, layer.cell.weights(), engine=engine).roots, roots.detach(), "batch")
        hidden, cell = roots.chunk(2, 1)
        if attentive:
            of_nodes = [
                (leaves[row : row + 1, :length, :size], found[row].compositions[..., :size], lengths[row : row + 1])
                for row, length in enumerate(lengths.tolist())
            ]
            alone = torch.cat([attend_to_nodes(*each) for each in of_nodes])
            same(alone, arrays["h_alone"], f"h_alone ({engine})")
            count = torch.tensor([2.0 * inputs.shape[1] - 1])
            hidden = torch.cat([attend_to_nodes(*each, count) for each in of_nodes])
        same(hidden, arrays["h"], f"h ({engine})")
        same(cell, arrays["c"], f"c ({engine})")
        weights = (torch.from_numpy(arrays[name]) for name in ("loss_weight", "loss_weight_c"))
        sum((each * weight).sum() for each, weight in zip((hidden, cell), weights, strict=True)).backward()
        if layer.cell.query.grad is None:
            layer.cell.query.grad = torch.zeros_like(layer.cell.query)
        check_gradients(arrays, layer, ours, inputs, engine, 1e-10)


def blocks(values: Any) -> Any:
    """Blocks in our order from input gate, two forget gates, update, output gate."""
    input_gate, left, right, update, output = np.split(values, 5)
    return np.concatenate([input_gate, left, right, output, update])


def _gumbel_row(arrays: Arrays, row: int, shape: tuple[int, int]) -> torch.Tensor:
    """The noise of a step of one sequence, which has fewer pairs than the longest."""
    step = int(arrays["lengths"][row]) - 1 - shape[1]
    drawn = torch.from_numpy(arrays[f"uniform{step}"])[row : row + 1, : shape[1]]
    return gumbel(drawn)


def gumbel(drawn: torch.Tensor) -> torch.Tensor:
    """Gumbel noise from uniform numbers, as the authors' code has it."""
    return -torch.log(-torch.log(drawn + 1e-20) + 1e-20)


def check_pyramid(arrays: Arrays) -> None:
    """The cell by itself; roots and trees of given leaves in evaluation, with scores that are not divided."""
    bias = torch.from_numpy(blocks(arrays["b_comp"]))
    size = len(arrays["query"])
    bias[size : 3 * size] += 1
    weight = torch.from_numpy(blocks(arrays["W_comp"]))
    children = [torch.from_numpy(arrays[f"cell_{name}"]).flatten(0, 1) for name in ("hl", "hr", "cl", "cr")]
    preactivation = torch.cat(children[:2], 1) @ weight.t() + bias
    for found, name in zip(tree_lstm_step(preactivation, torch.stack(children[2:], 1)), ("h", "c"), strict=True):
        same(found, arrays[f"cell_{name}"].reshape(-1, size), name)
    weights = GumbelTreeWeights(Affine(weight, bias), torch.from_numpy(arrays["query"]), 1.0)
    lengths = torch.from_numpy(arrays["lengths"])
    for engine in ENGINES:
        found = gumbel_trees(torch.from_numpy(arrays["X"]), lengths, weights, engine=engine, trace=True)
        same(found.roots, np.concatenate([arrays["h"], arrays["c"]], 1), f"roots ({engine})")
        assert found.joined is not None
        for joined, length, tree in zip(found.joined, lengths, json.loads(str(arrays["trees"])), strict=True):
            assert tree_from_splits(joined[:length], words(int(length))) == as_tree(tree)


def check_straight_through(arrays: Arrays) -> None:
    """The choice, and its gradient, that of the softmax of what is present."""
    for row, present in enumerate(arrays["mask"].astype(bool)):
        logits, drawn = (torch.from_numpy(arrays[name][row, present]) for name in ("logits", "uniform"))
        same(straight_through(logits, None)[1], arrays["greedy"][row, present], "greedy")
        for temperature in (1.0, 0.5):
            soft = torch.from_numpy(arrays[f"soft_tau_{temperature:g}"][row, present])
            noisy = (logits + gumbel(drawn)).requires_grad_()
            _, choice = straight_through(noisy, temperature)
            same(choice, arrays["hard"][row, present], "hard")
            (gradient,) = torch.autograd.grad(choice[0], noisy)
            one = torch.eye(len(soft)).double()[0]
            same(gradient, soft[0] * (one - soft) / temperature, f"gradient at temperature {temperature}")


_leaf_lstm = partial(check_gumbel, leaf="lstm")
CHECKS: dict[str, Callable[[Arrays], None]] = {
    "gumbel_leaf_linear.npz": check_gumbel,
    "gumbel_leaf_lstm.npz": _leaf_lstm,
    "gumbel_leaf_bilstm_attention.npz": partial(check_gumbel, leaf="bilstm", intra_attention=True),
    "gumbel_noise_train.npz": check_gumbel,
    "gumbel_leaf_lstm_noise_train.npz": _leaf_lstm,
}
SEQUENCE_CHECKS: dict[str, Callable[[Arrays], None]] = {
    "gumbel_treelstm.npz": check_pyramid,
    "st_gumbel.npz": check_straight_through,
}
