"""Networks that shift and reduce, SPINN and RRNet: where their transitions come from, and their engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_parity import assert_same, needs_dgl
from sequence_networks import SIZE, made, padded_inputs, with_gradients

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError
from treemem.native import compile_mode
from treemem.networks import NetworkConfig
from treemem.networks.parsers.rrnet.run import run_rrnet
from treemem.networks.parsers.spinn.equations import Policy
from treemem.networks.parsers.spinn.run import run_transitions, transition_actions
from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

OPTIONS: dict[str, dict[str, Any]] = {"SPINN": {"tracker_size": 3}, "RRNet": {"policy_size": 3}}
RUNS = {"SPINN": (run_transitions, 2 * SIZE), "RRNet": (run_rrnet, SIZE)}
VOCABULARY = Vocabulary(["a", "b", "c"], [("f", 2)])
LEFT, RIGHT = (Tree("f", [Tree("f", ["a", "b"]), "c"]), Tree("f", ["a", Tree("f", ["b", "c"])]))
BATCH = TreeBatch.from_trees([LEFT, RIGHT], VOCABULARY)
LENGTHS = (5, 1, 9, 0, 2, 3)
every_network = pytest.mark.parametrize("name", OPTIONS)


def network_of(name: str, transitions: str, form: str = "leaves") -> Any:
    torch.manual_seed(0)
    return (
        NetworkConfig(name, {"hidden_size": 6, "form": form, **OPTIONS[name]})
        .replace(transitions=transitions)
        .build(VOCABULARY)
    )


def uniform_of(engine: str) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """The same numbers of each sequence and step whatever the engine; both read the longest sequence first."""
    longest = sorted(LENGTHS, reverse=True)
    numbers = torch.rand(len(longest), 20, generator=torch.Generator().manual_seed(0)).double()
    alone = iter([(row, step) for row, length in enumerate(longest) for step in range(2 * length - 1)])
    steps = iter(range(20))
    if engine == "naive":
        return lambda shape: numbers[next(alone)][None]
    return lambda shape: numbers[: shape[0], next(steps)]


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler"))]
)
@pytest.mark.parametrize("sort", ["any transitions", "samples"])
@every_network
def test_engines_agree_on_any_transitions_and_on_the_same_samples(name: str, sort: str, compiled: bool) -> None:
    """The definition reads sequence by sequence, so the batch has no effect either."""
    network, (run, width) = made(name, transitions="reinforced", **OPTIONS[name]), RUNS[name]
    given = torch.randint(0, 2, (len(LENGTHS), 19), generator=torch.Generator().manual_seed(0))
    found = []
    for engine in ("naive", "fused"):
        network.zero_grad()
        leaves = padded_inputs(LENGTHS, width).requires_grad_()
        source: dict[str, Any] = {"given": given} if sort != "samples" else {"policy": Policy(0.7, uniform_of(engine))}
        with compile_steps(compiled):
            done = run(leaves, torch.tensor(LENGTHS), network.weights(), engine=engine, **source)
            outputs = done._asdict() | {"joined": done.joined(torch.tensor(LENGTHS))}
            found.append(with_gradients(outputs, {"leaves": leaves, **dict(network.named_parameters())}))
    assert_same(found[1], found[0], sort)


@pytest.mark.parametrize("engine", ["naive", "fused"])
@every_network
def test_transitions_that_are_not_possible_are_replaced(name: str, engine: Any) -> None:
    network, (run, width) = made(name, transitions="reinforced", **OPTIONS[name]), RUNS[name]
    leaves = padded_inputs((3, 1), width)
    for choice, actions in ((0, [0, 0, 0, 1, 1]), (1, [0, 0, 1, 0, 1])):
        given = torch.full((2, 7), choice)
        found = run(leaves, torch.tensor([3, 1]), network.weights(), given=given, engine=engine)
        assert found.actions.tolist() == [[*actions, 0, 0], [0] * 7]
        assert found.chosen.tolist() == [[choice] * 5 + [0, 0], [choice] + [0] * 6]


def test_transitions_from_reductions() -> None:
    expected = [[0, 0, 0, 1, 1], [0] * 5, [0] * 5, [0, 0, 1, 0, 1]]
    found = transition_actions(np.array([0, 0, 2, 0, 0, 1, 1]), np.array([0, 3, 3, 4, 7]))
    assert found.tolist() == expected
    assert transition_actions(np.zeros(0, np.int64), np.zeros(1, np.int64)).shape == (0, 0)


@every_network
def test_gold_trees_are_read_and_found_again_and_predicted_ones_are_read_in_training_only(name: str) -> None:
    for transitions in ("gold", "predicted"):
        network = network_of(name, transitions)
        assert not torch.allclose(*network(BATCH).root)
        assert torch.allclose(*network.eval()(BATCH).root) is (transitions == "predicted")
        if transitions == "gold":
            assert [str(tree) for tree in network.induced_trees(BATCH)] == ["(X (X a b) c)", "(X a (X b c))"]


@every_network
def test_the_likelihood_of_gold_transitions_is_learned(name: str) -> None:
    batch = TreeBatch.from_trees([LEFT, Tree("f", ["c", Tree("f", ["b", "a"])])], VOCABULARY)
    network = network_of(name, "predicted")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(80):
        loss = network(batch).auxiliary_losses["transitions"].mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    assert [str(tree) for tree in network.induced_trees(batch)] == ["(X (X a b) c)", "(X c (X b a))"]


@every_network
def test_without_trees_there_are_no_gold_transitions(name: str) -> None:
    tokens = TokenBatch.from_sequences([[0, 1], [2]])
    for transitions in ("gold", "predicted"):
        network = network_of(name, transitions)
        with pytest.raises(GraphError, match=f"transitions='{transitions}' needs trees"):
            network(tokens)
        with pytest.raises(GraphError, match=f"transitions='{transitions}' needs the transitions"):
            network.read(torch.zeros(1, 2, 6), torch.tensor([2]))
    assert network_of(name, "predicted").eval()(tokens).root.shape == (2, 1, 6)


@needs_dgl
@pytest.mark.parametrize("form", ["leaves", "preorder", "function", "bracketed leaves"])
def test_a_graph_is_read_as_its_trees_are(form: str) -> None:
    network = network_of("SPINN", "gold", form)
    torch.testing.assert_close(network(BATCH.graph).root, network(BATCH).root)
