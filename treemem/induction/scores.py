"""Unlabelled F1 of predicted trees, both ways that it is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treemem.induction.spans import Bracketing, bracketings, check_same_words
from treemem.trees.tree import Tree


@dataclass(frozen=True)
class SpanScore:
    """How well predicted trees bracket their sentences; fractions.

    Attributes:
        precision: of the predicted spans, the part that the given trees have.
        recall: of the given trees' spans, the part that is predicted.
        f1: their harmonic mean, or the mean of the sentences' harmonic means.
        sentences: how many were compared.
    """

    precision: float
    recall: float
    f1: float
    sentences: int


def corpus_f1(gold: Sequence[Tree], predicted: Sequence[Tree]) -> SpanScore:
    """Unlabelled F1 over the spans of all sentences together, as EVALB counts: the F1 of Ordered Memory.

    Every inner node counts, the root included; nodes with the same span count each, so that a given node of one child
    is a bracket of its own (:func:`treemem.induction.remove_brackets` with no brackets takes such nodes away, and with
    them the parts of speech above words). Sentences of one word have no spans. Between binary trees precision,
    recall and F1 are equal. EVALB as it was shipped drops sentences of over 200 words; this does not.

    Args:
        gold: the given trees.
        predicted: a tree for each, with the same words.

    Raises:
        RecipeError: other numbers of trees, or none.
        GraphError: a sentence with other words, or trees that stand in no list.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> gold, predicted = parse_brackets("(X (X a b) (X c d))"), parse_brackets("(X a (X b (X c d)))")
        >>> round(corpus_f1([gold], [predicted]).f1, 3)
        0.667
    """
    return corpus_score(bracketings(gold), bracketings(predicted))


def mean_sentence_f1(gold: Sequence[Tree], predicted: Sequence[Tree]) -> SpanScore:
    """Unlabelled F1 of each sentence, averaged: the F1 that is published of ON-LSTM on the Wall Street Journal.

    Only spans of several words and not of the whole sentence count, each once, so that nodes of one child change
    nothing. A given tree without such spans has recall 1, and precision 1 if it has no predicted ones either, else
    0; one with some and no predicted ones has F1 0. (The authors' code adds 1e-8 to the denominators; this does
    not, so that a tree scores 1 against itself.) Precision and recall are means over the sentences too.

    Args:
        gold: the given trees.
        predicted: a tree for each, with the same words.

    Raises:
        RecipeError: other numbers of trees, or none.
        GraphError: a sentence with other words, or trees that stand in no list.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> gold, predicted = parse_brackets("(X (X a b) (X c d))"), parse_brackets("(X a (X b (X c d)))")
        >>> mean_sentence_f1([gold, gold], [gold, predicted]).f1
        0.75
    """
    return sentence_score(bracketings(gold), bracketings(predicted))


def sentence_f1(gold: Tree, predicted: Tree) -> float:
    """The F1 of one sentence as :func:`mean_sentence_f1` counts it.

    Raises:
        GraphError: the trees have other words.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> sentence_f1(parse_brackets("(X (X a b) (X c d))"), parse_brackets("(X a (X b (X c d)))"))
        0.5
    """
    return mean_sentence_f1([gold], [predicted]).f1


def corpus_score(gold: Sequence[Bracketing], predicted: Sequence[Bracketing]) -> SpanScore:
    """:func:`corpus_f1` of trees whose spans are known."""
    check_same_words(gold, predicted)
    matched = sum((ours.all_spans & theirs.all_spans).total() for ours, theirs in zip(gold, predicted, strict=True))
    num_gold = sum(tree.all_spans.total() for tree in gold)
    num_predicted = sum(tree.all_spans.total() for tree in predicted)
    precision, recall, f1 = _fractions(matched, num_gold, num_predicted)
    return SpanScore(precision, recall, f1, len(gold))


def sentence_score(gold: Sequence[Bracketing], predicted: Sequence[Bracketing]) -> SpanScore:
    """:func:`mean_sentence_f1` of trees whose spans are known."""
    check_same_words(gold, predicted)
    of_sentences = [
        _fractions(len(ours.inner_spans & theirs.inner_spans), len(ours.inner_spans), len(theirs.inner_spans))
        for ours, theirs in zip(gold, predicted, strict=True)
    ]
    precision, recall, f1 = (sum(values) / len(of_sentences) for values in zip(*of_sentences, strict=True))
    return SpanScore(precision, recall, f1, len(of_sentences))


def _fractions(matched: int, num_gold: int, num_predicted: int) -> tuple[float, float, float]:
    """Precision, recall and F1; where nothing is to be found, finding nothing is right and finding something wrong."""
    if not num_gold:
        right = 0.0 if num_predicted else 1.0
        return right, 1.0, right
    precision = matched / num_predicted if num_predicted else 0.0
    return precision, matched / num_gold, 2 * matched / (num_gold + num_predicted)
