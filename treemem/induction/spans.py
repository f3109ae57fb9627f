"""The brackets of a tree as spans of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from treemem.errors import GraphError, RecipeError
from treemem.trees.tree import Tree

Span = tuple[int, int]


def tree_spans(tree: Tree) -> list[Span]:
    """Return ``(first word, one after the last)`` of every inner node, children first; words count from 0.

    Several nodes with the same span give it several times: a node of one child repeats the child's span, or has a span
    of one word if the child is a leaf.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
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
    """Return the bracketing of each tree."""
    made = []
    for tree in trees:
        words = tuple(leaf.label for leaf in tree.leaves())
        spans = Counter(tree_spans(tree))
        whole = (0, len(words))
        inner = frozenset(span for span in spans if span[1] - span[0] > 1 and span != whole)
        made.append(Bracketing(words, spans, inner))
    return made


def check_same_words(gold: Sequence[Bracketing], predicted: Sequence[Bracketing]) -> None:
    """Check that two lists bracket the same sentences.

    Raises:
        RecipeError: one list is longer, or both are empty.
        GraphError: a sentence has different words; names it and the first word that differs.
    """
    if len(gold) != len(predicted):
        raise RecipeError(f"{len(gold)} trees cannot be compared with {len(predicted)}; give one for each sentence")
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
