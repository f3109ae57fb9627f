"""The brackets of a tree as spans of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treemem.errors import GraphError, RecipeError
from treemem.trees.tree import Tree

Span = tuple[int, int]


def tree_spans(tree: Tree) -> list[Span]:
    """``(first word, one after the last)`` of every inner node, a node after its children; words count from 0.

    A span stands there once for each node that has it: a node of one child repeats the child's, or has a span of one
    word where the child is a leaf.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> tree_spans(parse_brackets("(X a (X b c))"))
        [(1, 3), (0, 3)]
    """
    spans, begins = [], []
    num_words = 0
    for node in tree.postorder():
        if node.is_leaf:
            begins.append(num_words)
            num_words += 1
            continue
        del begins[len(begins) - node.arity + 1 :]
        spans.append((begins[-1], num_words))
    return spans


@dataclass(frozen=True)
class Bracketing:
    """The words of a sentence and what a tree brackets.

    Attributes:
        words: the leaves' labels.
        all_spans: how many inner nodes have each span.
        inner_spans: the spans of several words, but not of all words.
    """

    words: tuple[str, ...]
    all_spans: Counter[Span]
    inner_spans: frozenset[Span]


def bracketings(trees: Sequence[Tree]) -> list[Bracketing]:
    """The bracketing of each tree.

    Raises:
        GraphError: a single tree, or something else than a tree.
    """
    made = []
    for tree in checked_trees(trees):
        words = tuple(leaf.label for leaf in tree.leaves())
        spans = Counter(tree_spans(tree))
        whole = (0, len(words))
        inner = frozenset(span for span in spans if span[1] - span[0] > 1 and span != whole)
        made.append(Bracketing(words, spans, inner))
    return made


def checked_trees(trees: Iterable[Tree]) -> list[Tree]:
    """``trees`` as a list.

    Raises:
        GraphError: a single tree, or something else than a tree.
    """
    if not isinstance(trees, Iterable):
        what = "a list of trees is needed, one for each sentence"
        raise GraphError(
            f"{what}; put the single Tree in a list" if isinstance(trees, Tree) else f"{what}, not {trees!r:.100}"
        )
    found = list(trees)
    for sentence, tree in enumerate(found):
        if not isinstance(tree, Tree):
            raise GraphError(f"sentence {sentence} must be a Tree, not {type(tree).__name__}")
    return found


def check_same_words(gold: Sequence[Bracketing], predicted: Sequence[Bracketing]) -> None:
    """Check that two lists bracket the same sentences.

    Raises:
        RecipeError: one is longer, or both are empty.
        GraphError: a sentence has other words; the message says which, and the first word that differs.
    """
    if len(gold) != len(predicted):
        raise RecipeError(f"{len(gold)} trees cannot be compared with {len(predicted)}; each sentence needs two")
    if not gold:
        raise RecipeError("there are no sentences to compare")
    for sentence, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        if ours.words == theirs.words:
            continue
        shared = zip(ours.words, theirs.words, strict=False)
        place = next((place for place, (one, other) in enumerate(shared) if one != other), None)
        if place is None:
            what = f"{len(ours.words)} words against {len(theirs.words)}"
        else:
            what = f"{ours.words[place]!r} against {theirs.words[place]!r} at word {place}"
        raise GraphError(f"the trees of sentence {sentence} have other words: {what}; remove brackets from both")
