"""RRNet: where its transitions come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError
from treemem.nn import RRNet
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "c"], [("f", 2)])
LEFT = Tree("f", [Tree("f", [Tree("a"), Tree("b")]), Tree("c")])
RIGHT = Tree("f", [Tree("a"), Tree("f", [Tree("b"), Tree("c")])])


def rrnet(**options: Any) -> RRNet:
    torch.manual_seed(0)
    return RRNet(6, VOCABULARY, policy_size=8, form="leaves", **options)


def test_gold_trees_are_read_and_found_again() -> None:
    batch = TreeBatch.from_trees([LEFT, RIGHT], VOCABULARY)
    network = rrnet(transitions="gold")
    assert not torch.allclose(*network(batch).root)
    assert [str(tree) for tree in network.induced_trees(batch)] == ["(X (X a b) c)", "(X a (X b c))"]
    assert network(batch).auxiliary_losses == {}
    with pytest.raises(GraphError, match="RRNet with transitions='gold' needs trees, not sequences of tokens"):
        network(TokenBatch.from_sequences([[0, 1]]))


def test_a_left_branching_tree_is_read_by_an_lstm() -> None:
    network = rrnet(transitions="gold")
    state = None
    for token in (0, 1, 2):
        state = network.lstm(network.embedding.weight[None, token], state)
    assert state is not None
    torch.testing.assert_close(network(TreeBatch.from_trees([LEFT], VOCABULARY)).root[0], state[0])


def test_the_likelihood_of_gold_transitions_is_learned() -> None:
    batch = TreeBatch.from_trees([LEFT, Tree("f", [Tree("c"), Tree("f", [Tree("b"), Tree("a")])])], VOCABULARY)
    network = rrnet(transitions="predicted")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(80):
        loss = network(batch).auxiliary_losses["transitions"].mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    assert [str(tree) for tree in network.induced_trees(batch)] == ["(X (X a b) c)", "(X c (X b a))"]
