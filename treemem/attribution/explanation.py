"""What an explanation says of one example."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

_DIGITS = 6


@dataclass(frozen=True, eq=False)
class Explanation:
    """How much each node of an example speaks for an answer.

    Nodes are in post-order, counted from 0: children before their parent, from left to right. In a pair, the nodes of
    the left tree come first. Scores are in the units of ``value``. A positive score speaks for the answer, a negative
    score against it.

    Attributes:
        forest: the tree, or the trees of a pair.
        method: how it was made.
        answer: the answer that is explained: a class, a label, or the name of a number; 1 and 0 are yes and no.
        value: the model's score of this answer: the log odds of a class or label at temperature 1, or the number.
        score: float64 ``[nodes]``: the part of each node itself. NaN if the method says nothing about a node.
        baseline: the value that the explanation starts from, if there is one: that of a tree whose labels all have the
            vector 0.
    """

    forest: Forest
    method: str
    answer: Any
    value: float
    score: NDArray[np.float64]
    baseline: float | None = None

    @cached_property
    def subtree(self) -> NDArray[np.float64]:
        """The part of each subtree, float64 ``[nodes]``: the sum of the scores of its nodes, without NaN."""
        total = np.concatenate([[0.0], np.nancumsum(self.score)])
        return total[1:] - total[self.forest.subtree_begin()]

    @property
    def gap(self) -> float | None:
        """By how much the scores miss ``value - baseline``, the sum that they should have; None without a baseline.

        Integrated gradients miss it by the error of the numerical integral.
        """
        return None if self.baseline is None else float(self.value - self.baseline - np.nansum(self.score))

    def ranking(self) -> list[int]:
        """Return the nodes whose subtrees mattered most first.

        A subtree contains its children's, so a large part of one of them is also a part of all above it. Subtrees are
        therefore ordered by how much larger their part is than that of any child, without signs: the first one is the
        smallest that explains most. Of equal ones the first node comes first.
        """
        pointer, child = self.forest.children()
        size = np.abs(self.subtree)
        of_children = np.zeros(len(size))
        np.maximum.at(of_children, np.repeat(np.arange(len(size)), np.diff(pointer)), size[child])
        return np.argsort(of_children - size, kind="stable").tolist()

    def tree_at(self, node: int) -> Tree:
        """Return the subtree of a node."""
        tree = int(np.searchsorted(self.forest.begin, node, side="right")) - 1
        return list(self.forest[tree].postorder())[node - int(self.forest.begin[tree])]

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON can hold it, numbers to six digits, with a list of all nodes."""
        labels = [self.forest.labels[label] for label in self.forest.label.tolist()]
        rank = np.argsort(self.ranking()) + 1
        nodes = [
            {"node": node, "label": label, "score": None if np.isnan(score) else _plain(score), "subtree": _plain(part)}
            for node, (label, score, part) in enumerate(zip(labels, self.score, self.subtree, strict=True))
        ]
        nodes = [{**entry, "rank": place} for entry, place in zip(nodes, rank.tolist(), strict=True)]
        gaps = {} if self.baseline is None else {"baseline": _plain(self.baseline), "gap": _plain(self.gap or 0.0)}
        return {"method": self.method, "answer": self.answer, "value": _plain(self.value), **gaps, "nodes": nodes}


def _plain(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
