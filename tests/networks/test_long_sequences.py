"""Networks that build trees, over sequences longer than Python's recursion limit."""

from __future__ import annotations

import sys

import pytest
import torch

from treemem import Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.networks import NetworkConfig

VOCABULARY = Vocabulary(["x", "y", "z", "<eos>"], [("f", 2)])
LENGTH = 1100


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig("EfficientBeamTreeGRC", {"beam_size": 2}),
        NetworkConfig("BeamTreeGRC", {"beam_size": 2}),
        NetworkConfig("GumbelTreeLSTM", {}),
        NetworkConfig("SPINN", {"transitions": "reinforced", "tracker_size": 3}),
        NetworkConfig("CRvNN", {}),
        NetworkConfig("RRNet", {"policy_size": 3}),
        NetworkConfig("DisjointTreeLSTM", {}),
        NetworkConfig("PRPN", {"num_layers": 1}),
    ],
    ids=str,
)
def test_trees_of_sequences_longer_than_the_recursion_limit(network: NetworkConfig) -> None:
    assert sys.getrecursionlimit() < LENGTH
    torch.manual_seed(0)
    encoder = network.replace(hidden_size=2, form="leaves").build(VOCABULARY).train()
    batch = TokenBatch(torch.randint(0, 3, (1, LENGTH)), torch.tensor([LENGTH]))
    encoder(batch).root.sum().backward()
    gradient = encoder.embedding.weight.grad
    assert gradient is not None
    assert gradient.isfinite().all()
    (tree,) = encoder.induced_trees(batch)
    assert sum(1 for _ in tree.leaves()) == LENGTH
