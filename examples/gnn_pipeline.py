"""Formulas at the nodes of a graph: a tree layer encodes them, a graph convolution passes the encodings on.

Every node of a graph has a formula of its own and three neighbours. Its class says whether its formula is true, and
whether those of most neighbours are. Trees alone can be right on half of the nodes at most, and a graph whose nodes
know only which operators and constants their formulas hold cannot tell what these say. Each is trained, then both.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import Any

import torch

from treemem import Forest, Tree, TreeBatch, Vocabulary
from treemem.dgl_import import import_dgl
from treemem.nn import ClassifierHead, TreeLSTM
from treemem.schedule import SubtreeIndex

dgl = import_dgl()
from dgl.dataloading import GraphDataLoader  # noqa: E402 - after import_dgl, which knows how DGL 2.1.0 is imported

VOCABULARY = Vocabulary(["false", "true"], [("not", 1), ("and", 2), ("or", 2), ("xor", 2)])
NODES, NEIGHBOURS, HIDDEN_SIZE, CLASSES = 40, 3, 24, 4


def formula(generator: random.Random, value: bool, depth: int) -> Tree:
    """A formula of at most ``depth`` operators above each constant that has this value."""
    if depth == 0 or generator.random() < 0.1:
        return Tree("true" if value else "false")
    operator = generator.choice(["not", "and", "or", "xor"])
    if operator == "not":
        return Tree("not", [formula(generator, not value, depth - 1)])
    left = generator.random() < 0.5
    right = left ^ value
    if operator != "xor":
        deciding = operator == "or"  # one true side makes an `or` true, one false side an `and` false
        left, right = generator.choice([(deciding, left), (left, deciding)]) if value == deciding else (value, value)
    return Tree(operator, [formula(generator, left, depth - 1), formula(generator, right, depth - 1)])


def graph_of_formulas(generator: random.Random, first: int) -> tuple[list[Tree], Any]:
    """Formulas, and a graph whose node field ``tree`` says which is whose, counted from ``first``."""
    values = [generator.random() < 0.5 for _ in range(NODES)]
    trees = [formula(generator, value, depth=4) for value in values]
    near = [generator.sample([other for other in range(NODES) if other != node], NEIGHBOURS) for node in range(NODES)]
    graph = dgl.graph((torch.tensor(near).flatten(), torch.arange(NODES).repeat_interleave(NEIGHBOURS)))
    graph.ndata["tree"] = first + torch.arange(NODES)
    most = [2 * sum(values[other] for other in others) > NEIGHBOURS for others in near]
    graph.ndata["class"] = 2 * torch.tensor(values).long() + torch.tensor(most).long()
    return trees, graph


class Pipeline(torch.nn.Module):
    """Encodings of formulas, a graph convolution beside each node's own encoding, a class for every node.

    Args:
        index: the formulas of all graphs.
        reads: ``"trees"``: nothing comes from the neighbours; ``"graph"``: a formula is the mean of its labels'
            vectors, whatever its form; ``"both"``.
        convolution: ``"GraphConv"`` or ``"GATConv"``.
    """

    def __init__(self, index: SubtreeIndex, reads: str, convolution: str) -> None:
        super().__init__()
        self.index, self.reads = index, reads
        self.trees = TreeLSTM(HIDDEN_SIZE, VOCABULARY)
        self.labels = torch.nn.Embedding(len(VOCABULARY.labels), HIDDEN_SIZE)
        if convolution == "GATConv":
            self.neighbours = dgl.nn.GATConv(HIDDEN_SIZE, HIDDEN_SIZE, num_heads=1)
        else:
            self.neighbours = dgl.nn.GraphConv(HIDDEN_SIZE, HIDDEN_SIZE, norm="right")
        self.own = torch.nn.Linear(HIDDEN_SIZE, HIDDEN_SIZE)
        self.head = ClassifierHead(HIDDEN_SIZE, CLASSES, nodes="every")

    def forward(self, graph: Any) -> torch.Tensor:
        """Logits of every node, ``[nodes, 4]``."""
        batch = TreeBatch.from_index(self.index, graph.ndata["tree"].numpy())
        if self.reads == "graph":
            trees = batch.graph
            trees.ndata["vector"] = self.labels(trees.ndata["label"])
            encodings = dgl.mean_nodes(trees, "vector")
        else:
            encodings = self.trees(batch).root.squeeze(1)  # [nodes of the graph, hidden_size]
        states = self.own(encodings)
        if self.reads != "trees":
            states = states + self.neighbours(graph, encodings).view_as(states)
        return self.head(torch.relu(states))


def accuracy(pipeline: Pipeline, loader: GraphDataLoader) -> float:
    with torch.no_grad():
        right = [pipeline(graph).argmax(1) == graph.ndata["class"] for graph in loader]
    return torch.cat(right).double().mean().item()


def train(pipeline: Pipeline, loader: GraphDataLoader, epochs: int) -> None:
    optimizer = torch.optim.Adam(pipeline.parameters(), lr=0.01)
    for _ in range(epochs):
        for graph in loader:
            loss = pipeline.head.loss(pipeline(graph), graph.ndata["class"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200, help="graphs to train on, of 40 formulas each (%(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--convolution", choices=["GraphConv", "GATConv"], default="GraphConv", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of data, weights and shuffling (%(default)s)")
    options = parser.parse_args(arguments)
    if min(options.size, options.epochs) < 1:
        parser.error("there must be a graph to train on, and an epoch")

    generator, trees, graphs = random.Random(options.seed), [], []
    for _ in range(options.size + max(1, options.size // 4)):
        own, graph = graph_of_formulas(generator, len(trees))
        trees.extend(own)
        graphs.append(graph)
    index = SubtreeIndex(Forest.from_trees(trees), VOCABULARY)
    seen, unseen = graphs[: options.size], GraphDataLoader(graphs[options.size :], batch_size=50)
    print(f"accuracy in % on {NODES * (len(graphs) - options.size):,} nodes of graphs not seen in training")
    for reads, name in (("trees", "trees alone"), ("graph", "graph alone"), ("both", "both")):
        torch.manual_seed(options.seed)
        begun = time.perf_counter()
        pipeline = Pipeline(index, reads, options.convolution)
        train(pipeline, GraphDataLoader(seen, batch_size=5, shuffle=True), options.epochs)
        print(f"{name:12} {100 * accuracy(pipeline, unseen):5.1f}   ({time.perf_counter() - begun:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
