"""Checks of golden files of sequence models and their cells, one function a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from golden import disjoint_files, gumbel_files, memory_files, on_lstm_files, ordered_memory_files
from golden.induction_files import TREE_CHECKS
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.cell import State
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions
from treemem.networks.trees.tree_cell.layer import GatedRecursiveCell
from treemem.nn import TreeNetwork
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["leaf"], [("node", 2)])


def has_check(path: Path) -> bool:
    """Whether there is a test for a file."""
    return path.name in CHECKS or path.name in TREE_CHECKS


def check(path: Path) -> None:
    """Check one file, by the model and by the trees in it."""
    checks = [table[path.name] for table in (CHECKS, TREE_CHECKS) if path.name in table]
    content = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else dict(np.load(path))
    for check_content in checks:
        check_content(content)


class CellOfGivenLeaves(GatedRecursiveCell):
    """The gated recursive cell over leaves whose features are their states."""

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}


def check_gated_cell(arrays: Arrays) -> None:
    """Nodes of the Ordered Memory: the right child is what the files call vertical, the left one horizontal."""
    num_nodes, size = arrays["vertical"].shape
    cell = CellOfGivenLeaves(SetsByArity(None, [2]), CellOptions(size, size), leaf_dropout=0.0).double()
    with torch.no_grad():
        hidden_map, gate_map = cell.hidden_maps.of(2), cell.gate_maps.of(2)
        hidden_map.weight[0] = left_first(torch.from_numpy(arrays["W1"]), size, dim=1)
        hidden_map.bias[0] = torch.from_numpy(arrays["b1"])
        gate_map.weight[0] = left_first(torch.from_numpy(arrays["W2"]), size, dim=0)
        gate_map.bias[0] = left_first(torch.from_numpy(arrays["b2"]), size, dim=0)
        cell.norm.weight.copy_(torch.from_numpy(arrays["ln_g"]))
        cell.norm.bias.copy_(torch.from_numpy(arrays["ln_b"]))
    left, right = torch.from_numpy(arrays["horizontal"]), torch.from_numpy(arrays["vertical"])
    network = TreeNetwork(cell, input_size=size)
    pair = Tree("node", [Tree("leaf"), Tree("leaf")])
    batch = TreeBatch.from_trees([pair] * num_nodes, VOCABULARY, share_subtrees=False)
    feat = torch.stack([left, right, torch.zeros_like(left)], 1).flatten(0, 1)  # in post-order
    for dtype in (torch.float64, torch.float32):
        network, children = network.to(dtype), {"h": torch.stack([left, right], 1).to(dtype)}
        preactivation = cell.products_of(children, None, 0)["gates"]
        same(left_first(preactivation, size, dim=1), arrays["pre_activation"], "pre_activation", dtype)
        same(cell(children, None, 0)["h"], arrays["output"], "output", dtype)
        found = {engine: results(network, batch, engine, feat.to(dtype)) for engine in ENGINES}
        for engine, values in found.items():
            same(values["root"][:, 0], arrays["output"], f"output ({engine})", dtype)
            assert_same(values, found[REFERENCE], engine)


def left_first(values: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    """``values`` with the first two blocks along ``dim`` swapped: the left child's before the right one's."""
    right, left, *others = values.split(size, dim)
    return torch.cat([left, right, *others], dim)


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "om_cell.npz": check_gated_cell,
    **ordered_memory_files.CHECKS,
    **on_lstm_files.CHECKS,
    **memory_files.CHECKS,
    **gumbel_files.SEQUENCE_CHECKS,
    **disjoint_files.SEQUENCE_CHECKS,
}
