"""SPINN: where its transitions come from."""

from __future__ import annotations

import pytest
import torch

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError
from treemem.nn import SPINN
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "c"], [("f", 2)])
LEFT = Tree("f", [Tree("f", [Tree("a"), Tree("b")]), Tree("c")])
RIGHT = Tree("f", [Tree("a"), Tree("f", [Tree("b"), Tree("c")])])
BATCH = TreeBatch.from_trees([LEFT, RIGHT], VOCABULARY)


def spinn(transitions: str, form: str = "leaves") -> SPINN:
    torch.manual_seed(0)
    return SPINN(6, VOCABULARY, transitions=transitions, tracker_size=4, form=form)  # type: ignore[arg-type]


def test_trees_over_the_same_tokens_differ_if_their_transitions_are_read() -> None:
    for transitions in ("gold", "predicted"):
        network = spinn(transitions)
        assert not torch.allclose(*network(BATCH).root)
        is_read = transitions == "gold"
        assert torch.allclose(*network.eval()(BATCH).root) is not is_read


def test_the_likelihood_of_gold_transitions_is_learned() -> None:
    """Left and right branching trees of different tokens."""
    batch = TreeBatch.from_trees([LEFT, Tree("f", [Tree("c"), Tree("f", [Tree("b"), Tree("a")])])], VOCABULARY)
    network = spinn("predicted")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        loss = network(batch).auxiliary_losses["transitions"].mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    assert [str(tree) for tree in network.induced_trees(batch)] == ["(X (X a b) c)", "(X c (X b a))"]


def test_without_trees_there_are_no_gold_transitions() -> None:
    tokens = TokenBatch.from_sequences([[0, 1], [2]])
    for transitions in ("gold", "predicted"):
        with pytest.raises(GraphError, match=rf"transitions='{transitions}' needs trees, not sequences of tokens"):
            spinn(transitions)(tokens)
        with pytest.raises(GraphError, match=rf"transitions='{transitions}' needs the transitions of trees"):
            spinn(transitions).read(torch.zeros(1, 2, 6), torch.tensor([2]))
    assert spinn("predicted").eval()(tokens).root.shape == (2, 1, 6)


@pytest.mark.parametrize("form", ["leaves", "preorder", "function", "bracketed leaves"])
def test_a_graph_is_read_as_its_trees_are(form: str) -> None:
    pytest.importorskip("dgl")
    network = spinn("gold", form)
    torch.testing.assert_close(network(BATCH.graph).root, network(BATCH).root)
