"""The Gumbel Tree-LSTM: when it is C++, scores that are not finite or almost equal, and attention."""

from __future__ import annotations

import pytest
import torch
from sequence_networks import SIZE, made
from torch import Tensor

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.gumbel_tree_lstm.run import attend_to_nodes, gumbel_trees
from treemem.ops import compile_steps

WEIGHTS = made("GumbelTreeLSTM").cell.weights()


def leaves_of(*lengths: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(lengths), max(lengths), 2 * SIZE).double()


@pytest.mark.parametrize("compiles", [True, False])
def test_scores_that_are_not_finite_end_in_an_encoding_that_is_not_finite(compiles: bool) -> None:
    leaves = leaves_of(4, 3)
    leaves[0, 2] = torch.nan
    with compile_steps(compiles):
        found = gumbel_trees(leaves, torch.tensor([4, 3]), WEIGHTS, temperature=1.0, trace=True)
    assert found.joined is not None
    assert found.joined[0].isnan().any()
    assert found.roots[1].isfinite().all()


@pytest.mark.parametrize("engine", ["naive", "fused"])
@pytest.mark.parametrize("compiles", [True, False])
def test_pairs_that_differ_by_rounding_alone_are_equally_good(compiles: bool, engine: SequenceEngine) -> None:
    scores = {3: [1.0, 1.0 + 1e-15, 0.5], 2: [1.0, 1.0 + 1e-13]}
    weights = WEIGHTS._replace(query=torch.zeros(SIZE).double())

    def noise(shape: tuple[int, ...]) -> Tensor:
        return torch.tensor([scores[shape[1]]], dtype=torch.float64)

    with compile_steps(compiles):
        found = gumbel_trees(leaves_of(4), torch.tensor([4]), weights, noise=noise, engine=engine, trace=True).joined
    assert found is not None
    assert found[0].tolist() == [0, 1, 3, 2]


def test_attention_reads_the_nodes_of_each_tree_alone() -> None:
    torch.manual_seed(0)
    leaves, inner = torch.randn(4, 3, SIZE).double(), torch.randn(4, 2, SIZE).double()
    found = attend_to_nodes(leaves, inner, torch.tensor([3, 2, 1, 0]))
    for row, length in enumerate((3, 2, 1)):
        nodes = torch.cat([leaves[row, :length], inner[row, : length - 1]])
        torch.testing.assert_close(found[row], (nodes @ nodes.mean(0)).softmax(0) @ nodes)
    assert not found[3].any()
