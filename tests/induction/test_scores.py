from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from induction.random_trees import ANY_TREES, leaves, pairs_of_any_trees, pairs_of_trees

from treemem.errors import GraphError, RecipeError
from treemem.induction import (
    SpanScore,
    corpus_f1,
    left_branching,
    mean_sentence_f1,
    remove_brackets,
    right_branching,
    sentence_f1,
    tree_spans,
)
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree


def spans_by_numbering(tree: Tree) -> Counter[tuple[int, int]]:
    """The spans of inner nodes, by carrying every word's number up through the tree."""
    spans: Counter[tuple[int, int]] = Counter()
    numbers = iter(range(tree.size))

    def words_of(node: Tree) -> list[int]:
        words = [word for child in node.children for word in words_of(child)] if node.children else [next(numbers)]
        if node.children:
            spans[min(words), max(words) + 1] += 1
        return words

    words_of(tree)
    return spans


@given(tree=ANY_TREES)
def test_spans_are_those_of_the_words_below_each_node(tree: Tree) -> None:
    assert Counter(tree_spans(tree)) == spans_by_numbering(tree)


@given(trees=st.lists(ANY_TREES, min_size=1, max_size=4))
def test_trees_score_one_against_themselves(trees: list[Tree]) -> None:
    perfect = SpanScore(1.0, 1.0, 1.0, len(trees))
    assert corpus_f1(trees, trees) == mean_sentence_f1(trees, trees) == perfect


@given(pairs=st.lists(pairs_of_trees(), min_size=1, max_size=4))
def test_corpus_precision_and_recall_of_binary_trees_are_equal(pairs: list[tuple[Tree, Tree]]) -> None:
    score = corpus_f1(*zip(*pairs, strict=True))
    assert score.precision == score.recall == pytest.approx(score.f1)


@given(pairs=st.lists(pairs_of_any_trees(), min_size=1, max_size=4))
def test_corpus_f1_is_counted_over_all_spans_of_all_sentences(pairs: list[tuple[Tree, Tree]]) -> None:
    of_corpus = [
        Counter(
            (sentence, span)
            for sentence, pair in enumerate(pairs)
            for span in spans_by_numbering(pair[side]).elements()
        )
        for side in (0, 1)
    ]
    matched = sum(min(count, of_corpus[1][key]) for key, count in of_corpus[0].items())
    num_gold, num_predicted = (sum(spans.values()) for spans in of_corpus)
    score = corpus_f1(*zip(*pairs, strict=True))
    assert score.sentences == len(pairs)
    if num_gold and num_predicted:
        assert score.precision == matched / num_predicted
        assert score.recall == matched / num_gold
        assert score.f1 == pytest.approx(2 * matched / (num_gold + num_predicted))


@given(pair=pairs_of_any_trees())
def test_sentence_f1_is_that_of_the_published_code(pair: tuple[Tree, Tree]) -> None:
    whole = (0, len(leaves(pair[0])))
    gold, predicted = (
        {span for span in spans_by_numbering(tree) if span != whole and span[1] - span[0] > 1} for tree in pair
    )
    overlap = gold & predicted
    precision, recall = len(overlap) / (len(predicted) + 1e-8), len(overlap) / (len(gold) + 1e-8)
    if not gold:
        recall = 1.0
        if not predicted:
            precision = 1.0
    assert sentence_f1(*pair) == pytest.approx(2 * precision * recall / (precision + recall + 1e-8), abs=1e-7)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ("a", "a", (1, 1, 1)),
        ("(X a b)", "(X a b)", (1, 1, 1)),
        ("(X a b c)", "(X a b c)", (1, 1, 1)),
        ("(X a b c)", "(X a (X b c))", (0, 1, 0)),
        ("(X a (X b c))", "(X a b c)", (0, 0, 0)),
        ("(X (X a b) (X c d))", "(X (X a b) c d)", (1, 0.5, 2 / 3)),
    ],
)
def test_sentences_without_spans_have_the_published_scores(
    gold: str, predicted: str, expected: tuple[float, float, float]
) -> None:
    score = mean_sentence_f1([parse_brackets(gold)], [parse_brackets(predicted)])
    assert (score.precision, score.recall, score.f1) == pytest.approx(expected)


def test_the_two_ways_weigh_sentences_and_roots_differently() -> None:
    short, long = list("ab"), list("abcdef")
    gold = [left_branching(short), left_branching(long)]
    predicted = [right_branching(short), right_branching(long)]
    assert corpus_f1(gold, predicted).f1 == pytest.approx(2 / 6)  # two roots of six spans
    assert mean_sentence_f1(gold, predicted).f1 == 0.5  # nothing to find in one, nothing found in the other


def test_a_node_of_one_child_is_a_bracket_of_the_corpus_f1_alone() -> None:
    gold, predicted = parse_brackets("(S (NP (NN a)) (VP b c))"), parse_brackets("(X a (X b c))")
    assert corpus_f1([gold], [predicted]) == SpanScore(1.0, 0.5, pytest.approx(2 / 3), 1)
    assert corpus_f1([remove_brackets(gold, [])], [predicted]).f1 == 1
    assert mean_sentence_f1([gold], [predicted]).f1 == 1
    twice = parse_brackets("(S (S a b))")
    assert corpus_f1([twice], [parse_brackets("(X a b)")]).recall == 0.5


def test_deep_trees_are_scored() -> None:
    words = ["w"] * 20_000
    score = corpus_f1([left_branching(words)], [right_branching(words)])
    assert score.f1 == 1 / 19_999


@pytest.mark.parametrize("score", [corpus_f1, mean_sentence_f1])
def test_trees_that_cannot_be_compared_are_told(score: object) -> None:
    assert callable(score)
    one, other = parse_brackets("(X a b)"), parse_brackets("(X a c)")
    with pytest.raises(GraphError, match="the trees of sentence 1 have other words: 'b' against 'c' at word 1"):
        score([one, one], [one, other])
    with pytest.raises(GraphError, match="sentence 0 have other words: 2 words against 3"):
        score([one], [parse_brackets("(X a b c)")])
    with pytest.raises(RecipeError, match="1 trees cannot be compared with 2"):
        score([one], [one, one])
    with pytest.raises(RecipeError, match="no sentences"):
        score([], [])
