"""Unlabelled F1 of predicted trees, in both published ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treemem.induction.spans import Bracketing, bracketings, check_same_words
from treemem.trees.tree import Tree


@dataclass(frozen=True)
class SpanScore:
    """Precision, recall and F1 of predicted trees, as fractions.

    Attributes:
        precision: the part of the predicted spans that the gold trees have.
        recall: the part of the gold trees' spans that is predicted.
        f1: their harmonic mean, or the mean of the sentences' harmonic means.
        sentences: how many were compared.
    """

    precision: float
    recall: float
    f1: float
    sentences: int


def corpus_f1(gold: Sequence[Tree], predicted: Sequence[Tree]) -> SpanScore:
    """Return the unlabelled F1 over the spans of all sentences together, as EVALB counts: the F1 of Ordered Memory.

    Every inner node counts, the root included. Nodes with the same span count each, so a node of one child is a bracket
    of its own (:func:`treemem.induction.remove_brackets` without brackets removes such nodes, and with them the parts
    of speech above words). Sentences of one word have no spans. Precision, recall and F1 of binary trees are equal.
    The original EVALB drops sentences of over 200 words; this function does not.

    Args:
        gold: the gold trees.
        predicted: a tree for each, with the same words.

    Raises:
        RecipeError: different numbers of trees, or none.
        GraphError: a sentence with different words.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
        >>> gold, predicted = parse_brackets("(X (X a b) (X c d))"), parse_brackets("(X a (X b (X c d)))")
        >>> round(corpus_f1([gold], [predicted]).f1, 3)
        0.667
    """
    return corpus_score(bracketings(gold), bracketings(predicted))


def mean_sentence_f1(gold: Sequence[Tree], predicted: Sequence[Tree]) -> SpanScore:
    """Return the mean unlabelled F1 of the sentences: the published F1 of ON-LSTM on the Wall Street Journal.

    Each span of several words counts once, but not that of the whole sentence; nodes of one child change nothing. A
    gold tree without such spans has recall 1, and precision 1 if the predicted tree has none either, else 0. A
    predicted tree without spans has F1 0 if the gold tree has some. (The authors' code adds 1e-8 to the denominators;
    this does not, so a tree scores 1 against itself.) Precision and recall are means over the sentences too. Arguments
    and errors are those of :func:`corpus_f1`.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
        >>> gold, predicted = parse_brackets("(X (X a b) (X c d))"), parse_brackets("(X a (X b (X c d)))")
        >>> mean_sentence_f1([gold, gold], [gold, predicted]).f1
        0.75
    """
    return sentence_score(bracketings(gold), bracketings(predicted))


def sentence_f1(gold: Tree, predicted: Tree) -> float:
    """Return the F1 of one sentence as :func:`mean_sentence_f1` counts it.

    Raises:
        GraphError: the trees have other words.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
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
    """Precision, recall and F1; without gold spans F1 is 1 if nothing is predicted, else 0."""
    if not num_gold:
        f1 = 0.0 if num_predicted else 1.0
        return f1, 1.0, f1
    precision = matched / num_predicted if num_predicted else 0.0
    return precision, matched / num_gold, 2 * matched / (num_gold + num_predicted)
