"""Checks of the trees in golden files: read out of pointers and distances, brackets removed, their spans."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from treemem.induction import (
    remove_brackets,
    tree_from_distances,
    tree_from_pointer_probabilities,
    tree_from_pointers,
    tree_spans,
)
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.tree import Tree

Nested = str | list[Any]


def as_tree(nested: Nested) -> Tree:
    """The tree of nested lists of words."""
    return Tree(nested) if isinstance(nested, str) else Tree(CONSTITUENT, map(as_tree, nested))


def words(count: int) -> list[str]:
    return [f"w{index}" for index in range(count)]


def check_trees_from_pointers(cases: dict[str, list[dict[str, Any]]]) -> None:
    for case in cases["random"]:
        depth = case["depth"]
        found = tree_from_pointers(depth, words(len(depth)))
        assert found == as_tree(case["tree"])
        # The first entry is the number of slots, which is no slot: it says nothing.
        assert tree_from_pointers([0, *depth[1:]], words(len(depth)), slots=case["n_slots"]) == found
    for case in cases["bracketed"]:
        tokens = case["tokens"]
        depth = case["depth"][: len(tokens)]  # one more than tokens: the last step is of no token
        raw = tree_from_pointers(depth, tokens)
        assert raw == as_tree(case["tree_raw"])
        assert remove_brackets(raw) == as_tree(case["tree"])
        gold = [leaf.label for leaf in as_tree(case["gold"]).leaves()]
        assert [leaf.label for leaf in remove_brackets(raw).leaves()] == gold


def check_trees_from_distances(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        tree = tree_from_distances(case["distances"], words(len(case["distances"])))
        assert tree == as_tree(case["tree"])
        whole = (0, len(case["distances"]))
        assert sorted(span for span in tree_spans(tree) if span != whole) == [tuple(span) for span in case["brackets"]]


def check_trees_of_ordered_memory(arrays: dict[str, np.ndarray]) -> None:
    for sequence, case in enumerate(json.loads(str(arrays["trees"]))):
        length = len(case["depth"])
        probabilities = arrays["p"][:length, sequence]
        assert probabilities.argmax(1)[1:].tolist() == case["depth"][1:]
        assert tree_from_pointer_probabilities(probabilities, words(length)) == as_tree(case["tree"])


def check_trees_of_on_lstm(arrays: dict[str, np.ndarray]) -> None:
    for case in json.loads(str(arrays["trees"])):
        distances = arrays["dist_forget"][case["layer"], :, case["batch"]]
        assert distances.tolist() == case["distances"]
        assert tree_from_distances(distances, words(len(distances))) == as_tree(case["tree"])


TREE_CHECKS: dict[str, Callable[[Any], None]] = {
    "om_tree_induction.json": check_trees_from_pointers,
    "onlstm_greedy_trees.json": check_trees_from_distances,
    "om_right_padded.npz": check_trees_of_ordered_memory,
    "om_double_slots.npz": check_trees_of_ordered_memory,
    "onlstm_stack.npz": check_trees_of_on_lstm,
    "onlstm_stack_weightdrop_eval.npz": check_trees_of_on_lstm,
}
