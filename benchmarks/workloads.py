"""What is measured, and against what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from benchmarks.dgl_tree_lstm import dgl_tree_lstm
from benchmarks.examples import (
    NUM_RELATIONS,
    Examples,
    equal_trees,
    equations,
    logic_pairs,
    long_chains,
    sentences,
)
from benchmarks.level_autograd import level_autograd
from benchmarks.own_cells import AttentiveGRU, HiddenLayerLSTM, equal_trees_of_20_leaves, own_cell_network
from benchmarks.problem import Head, Problem
from benchmarks.products import Products
from benchmarks.recursion import ByRecursion
from benchmarks.ways import ByBatch, Way, by_engine
from treemem.nn import (
    ClassifierHead,
    EqualityHead,
    RelationHead,
    StackTreeLSTM,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
)
from treemem.ops import Engine
from treemem.trees.vocabulary import Vocabulary

Network = Callable[[Vocabulary], tuple[TreeNetwork, Head]]
_SMALL = 24  # examples for the comparison of outcomes


def prepared(problem: Problem) -> ByBatch:
    """Our engine on batches made before, on the device: what is missing to it is the time that schedules take."""
    return by_engine(problem, steps=[step._replace(batch=step.batch.to(problem.device)) for step in problem])


def unshared(problem: Problem) -> ByBatch:
    """Our engine on batches in which every node has a row of its own."""
    return by_engine(problem.with_sharing(False))


BASELINES: dict[str, Callable[[Problem], Way]] = {
    "recursion": ByRecursion,
    "naive": partial(by_engine, engine="naive"),
    "dgl": dgl_tree_lstm,
    "level-autograd": level_autograd,
    "products": Products,
    "unshared": unshared,
    "prepared": prepared,
    "uncompiled": partial(by_engine, engine="autograd"),  # what runs without a C++ compiler
}
NEED_DGL = ("naive", "dgl")
NEED_CPU = (*NEED_DGL, "recursion")


@dataclass(frozen=True)
class Workload:
    """A network, examples and how they are batched.

    Attributes:
        name: as in the table.
        network: makes layer and head.
        examples: makes at most so many examples.
        small: the same sort of examples, few and small enough to compare the outcomes of all ways of running them.
        batch_size: examples in a batch.
        baselines: keys of ``BASELINES``.
        share_subtrees: whether equal subtrees of a batch are computed once.
        memory: whether the memory of a training step is measured too.
        compiling: whether the time that compiling takes is measured too.
        engine: that of our way.
    """

    name: str
    network: Network
    examples: Callable[[int], Examples]
    small: Callable[[], Examples]
    batch_size: int
    baselines: tuple[str, ...]
    share_subtrees: bool = False
    memory: bool = False
    compiling: bool = False
    engine: Engine = "auto"

    def problem(self, most: int) -> Problem:
        """The problem with at most ``most`` examples, or one batch of them if that is more."""
        torch.manual_seed(0)
        examples = self.examples(max(most, self.batch_size))
        return Problem(*self.network(examples.vocabulary), examples, self.batch_size, self.share_subtrees)

    def small_problem(self, device: torch.device) -> Problem:
        """The problem in float64 with few small examples, in one batch, on a device."""
        torch.manual_seed(0)
        examples = self.small()
        problem = Problem(*self.network(examples.vocabulary), examples, self.batch_size, self.share_subtrees, device)
        return problem.in_float64(examples)


def equation_network(vocabulary: Vocabulary, stack_size: int = 5) -> tuple[TreeLayer, Head]:
    """The stack-augmented Tree-LSTM of the published tables, a set of parameters for each function."""
    return StackTreeLSTM(60, vocabulary, stack_size=stack_size, normalize=True, no_op=True), EqualityHead()


def sentence_network(hidden_size: int) -> Network:
    """A binary Tree-LSTM on word vectors and a class for every node."""
    return lambda _: (
        TreeLSTM(hidden_size, input_size=300, node_features=False, arities=(2,)),
        ClassifierHead(hidden_size, 5, nodes="every"),
    )


def logic_network(vocabulary: Vocabulary) -> tuple[TreeLayer, Head]:
    """A Tree-RNN with one composition function, and the comparison of two encodings."""
    return TreeRNN(200, vocabulary, activation="tanh"), RelationHead(200, NUM_RELATIONS)


def gated_network(vocabulary: Vocabulary) -> tuple[TreeLayer, Head]:
    """The gated recursive cell of the Ordered Memory with one composition function, and the same head."""
    return TreeCell(200, vocabulary, shared_kinds=True), RelationHead(200, NUM_RELATIONS)


def plain_network(vocabulary: Vocabulary) -> tuple[TreeLayer, Head]:
    """A Tree-LSTM of modest width and a class for every tree: for trees of which there are many nodes."""
    return TreeLSTM(60, vocabulary), ClassifierHead(60, 2)


def of_equations(least: int, greatest: int, batch_size: int, share_subtrees: bool, memory: bool = False) -> Workload:
    """Equations of some depths; what does not depend on sharing is measured once, against the shared ones."""
    return Workload(
        f"equations {least}-{greatest} batch {batch_size} {'shared' if share_subtrees else 'unshared'}",
        equation_network,
        partial(equations, least, greatest),
        lambda: equations(least, greatest, 256).first(_SMALL),
        batch_size,
        ("naive", "level-autograd", "products", "uncompiled") + ("recursion", "prepared", "unshared") * share_subtrees,
        share_subtrees,
        memory,
        compiling=memory and share_subtrees,
    )


def of_sentences(hidden_size: int) -> Workload:
    """Sentences with a class at every node; nodes with features share no rows."""
    return Workload(
        f"sst hidden {hidden_size}",
        sentence_network(hidden_size),
        lambda most: sentences(min(most, 1024)),
        lambda: sentences(_SMALL),
        256,
        ("dgl", "level-autograd", "products", "prepared", "uncompiled"),
        memory=True,
        compiling=True,
    )


def of_logic(name: str, network: Network, share_subtrees: bool) -> Workload:
    """Pairs of formulas, for any network."""
    return Workload(
        f"logic {name} {'shared' if share_subtrees else 'unshared'}",
        network,
        logic_pairs,
        lambda: logic_pairs(_SMALL),
        256,
        ("naive", "level-autograd", "products") + ("prepared", "unshared") * share_subtrees,
        share_subtrees,
    )


def of_chains(length: int) -> Workload:
    """A batch of eight chains: nothing but levels of eight rows."""
    return Workload(
        f"chains {length} nodes",
        plain_network,
        lambda _: long_chains(8, length),
        lambda: long_chains(3, 40),
        8,
        ("level-autograd", "products", "prepared"),
    )


def of_one_tree(nodes: int) -> Workload:
    """One random binary tree of about so many nodes."""
    return Workload(
        f"tree {nodes} nodes",
        plain_network,
        lambda _: equal_trees(1, (nodes + 1) // 2),
        lambda: equal_trees(1, 150),
        1,
        ("level-autograd", "products", "prepared", "uncompiled"),
        memory=True,
    )


def of_forest(nodes: int) -> Workload:
    """About so many nodes in one batch of random trees of 37 nodes each: equal examples, so rates tell costs a node."""
    return Workload(
        f"forest {nodes} nodes",
        plain_network,
        lambda _: equal_trees(nodes // 37, 19),
        lambda: equal_trees(_SMALL, 19),
        nodes // 37,
        (),
    )


def of_own_cell(name: str, cell: type[torch.nn.Module], size: int, batch_size: int) -> Workload:
    """A cell in plain torch over random trees of 20 leaves, compiled: the engine native refuses what is not."""
    return Workload(
        f"own cell {name} {size} batch {batch_size}",
        partial(own_cell_network, cell, size),
        equal_trees_of_20_leaves,
        lambda: equal_trees(_SMALL, 5),
        batch_size,
        ("uncompiled", "naive"),
        engine="native",
    )


WORKLOADS = (
    *(of_sentences(size) for size in (150, 256)),
    *(
        of_equations(least, greatest, size, share_subtrees, memory=size == 256)
        for least, greatest in ((8, 13), (1, 7))
        for size in (32, 256, 1024)
        for share_subtrees in (True, False)
    ),
    *(
        of_logic(name, network, share_subtrees)
        for name, network in (("tree-cell hidden 200", gated_network), ("tree-rnn hidden 200", logic_network))
        for share_subtrees in (True, False)
    ),
    *(of_own_cell("gru", AttentiveGRU, size, batch) for size in (50, 150) for batch in (25, 256)),
    of_own_cell("lstm", HiddenLayerLSTM, 150, 25),
    of_chains(10_000),
    of_one_tree(1_000_000),
)
GPU_WORKLOADS = (
    of_sentences(256),
    *(
        of_equations(least, greatest, size, share_subtrees=True, memory=size == 1024)
        for least, greatest in ((8, 13), (1, 7))
        for size in (256, 1024, 4096)
    ),
    of_logic("tree-cell hidden 200", gated_network, share_subtrees=True),
    of_chains(1_000),
    of_one_tree(1_000_000),
)
"""In place of the workloads of the CPU."""
QUICK_WORKLOADS = (
    replace(  # short stacks compile sooner, and the time that compiling takes is measured with sentences
        of_equations(1, 7, 256, share_subtrees=True, memory=True),
        network=partial(equation_network, stack_size=2),
        compiling=False,
    ),
    of_sentences(150),
    of_logic("tree-rnn hidden 200", logic_network, share_subtrees=True),
    of_chains(300),
    of_one_tree(3_000),
)
FORESTS = tuple(of_forest(nodes) for nodes in (10_000, 1_000, 100_000, 1_000_000))
QUICK_FORESTS = tuple(of_forest(nodes) for nodes in (1_000, 3_000))
"""For the cost per node; the first of them is the baseline of the others."""
