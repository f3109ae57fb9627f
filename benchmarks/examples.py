"""What is measured: published data where they lie beside the checkout, otherwise made-up trees of the same sort."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.random_trees import INNER, chains, random_binary_trees, words
from treemem.tasks.equation_verification import equation_vocabulary, read_equations
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees import parse_brackets, read_sentiment_trees
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary

DATA = Path(__file__).parents[2] / "shared" / "data"
_RELATIONS = ("=", "<", ">", "^", "|", "v", "#")
NUM_RELATIONS = len(_RELATIONS)


@dataclass(frozen=True, eq=False)
class Examples:
    """Trees and their labels.

    Attributes:
        forest: the trees of one example adjacent.
        vocabulary: what their labels mean.
        label: one for each example or, where ``every_node``, for each node.
        trees_per_example: 2 for pairs.
        every_node: whether every node has a label.
        source: where they are from, which is told before they are measured.
    """

    forest: Forest
    vocabulary: Vocabulary
    label: Tensor
    source: str
    trees_per_example: int = 1
    every_node: bool = False

    def __len__(self) -> int:
        return len(self.forest) // self.trees_per_example

    def first(self, count: int) -> Examples:
        """The first ``count`` examples."""
        forest = self.forest[: count * self.trees_per_example]
        label = self.label[: forest.num_nodes if self.every_node else count]
        return Examples(forest, self.vocabulary, label, self.source, self.trees_per_example, self.every_node)


@cache
def equations(least_depth: int, greatest_depth: int, count: int) -> Examples:
    """Labelled equations; of depth 8 and more the published sample, where it is there."""
    published = DATA / "equations" / "published_sample.jsonl"
    if least_depth >= 8 and published.exists():
        source, forest = "published sample", read_equations(published).forest
    else:
        source, forest = "generated", generate_equations(max(4 * count, 2000), seed=1)
    depth = forest.height()[forest.begin[1:] - 1]
    chosen = np.flatnonzero((depth >= least_depth) & (depth <= greatest_depth))
    chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:count])
    forest = forest[np.random.default_rng(1).permutation(chosen)]
    label = torch.from_numpy(forest.tree_data["label"].astype(np.float32))
    return Examples(forest.split_roots(), equation_vocabulary(), label, source, trees_per_example=2)


@cache
def sentences(count: int) -> Examples:
    """Binary trees of 5 to 35 words with a class at every node: the Stanford Sentiment Treebank, where it is there."""
    treebank = DATA / "sst" / "train.txt"
    if not treebank.exists():
        drawn = np.random.default_rng(0)
        forest = random_binary_trees(drawn.integers(5, 36, count).tolist(), words(5000))
        label = torch.from_numpy(drawn.integers(5, size=forest.num_nodes))
        return Examples(forest, _vocabulary(forest), label, "random trees", every_node=True)
    forest = read_sentiment_trees(treebank)
    num_words = (np.diff(forest.begin) + 1) // 2
    forest = forest[np.flatnonzero((num_words >= 5) & (num_words <= 35))[:count]]
    return Examples(
        forest.with_data(), _vocabulary(forest), torch.tensor(forest.node_data["class"]), "SST train", every_node=True
    )


@cache
def logic_pairs(count: int) -> Examples:
    """Pairs of propositional formulas and how they relate (Bowman et al. 2015), where they are there."""
    published = DATA / "logic" / "train.tsv.gz"
    if not published.exists():
        drawn = np.random.default_rng(0)
        forest = random_binary_trees(drawn.integers(2, 16, 2 * count).tolist(), [*"abcdef", "and", "or", "not"])
        label = torch.from_numpy(drawn.integers(NUM_RELATIONS, size=count))
        return Examples(forest, _vocabulary(forest), label, "random trees", trees_per_example=2)
    with gzip.open(published, "rt", encoding="utf-8", newline="") as lines:
        records = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    chosen = [records[place] for place in np.random.default_rng(0).permutation(len(records))[:count]]
    sides = [record[side] for record in chosen for side in ("left", "right")]
    trees = [parse_brackets(side.replace("( ", f"({INNER} ").replace(" )", ")")) for side in sides]
    relations = [_RELATIONS.index(record["label"]) for record in chosen]
    forest = Forest.from_trees(trees)
    return Examples(forest, _vocabulary(forest), torch.tensor(relations), "published pairs", trees_per_example=2)


@cache
def long_chains(count: int, length: int) -> Examples:
    """Chains of ``length`` nodes, of two classes."""
    forest = chains(count, length, words(100))
    return Examples(forest, _vocabulary(forest), torch.arange(count) % 2, "chains")


@cache
def equal_trees(count: int, leaves: int) -> Examples:
    """Random binary trees of so many leaves each, of two classes."""
    forest = random_binary_trees([leaves] * count, words(100))
    return Examples(forest, _vocabulary(forest), torch.arange(count) % 2, "random trees")


def _vocabulary(forest: Forest) -> Vocabulary:
    """The labels of a forest whose inner nodes of one arity all share their parameters."""
    return Vocabulary.from_forest(forest, kinds="arity")
