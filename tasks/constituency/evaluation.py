"""Induced trees of a model that reads words, scored against gold trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from treemem.data.token_batch import TokenBatch
from treemem.errors import RecipeError
from treemem.induction import baseline_trees, corpus_f1, mean_sentence_f1, remove_brackets
from treemem.induction.spans import tree_spans
from treemem.model import Model
from treemem.tasks.induced_trees import BASELINES
from treemem.tasks.language_modeling.sentences import batches_by_length, word_ids
from treemem.trees.tree import Tree

BASELINE_NAMES = tuple(name if name in ("balanced", "random") else f"{name}-branching" for name in BASELINES)


@dataclass(frozen=True)
class TreeScore:
    """How well trees agree with gold trees; fractions.

    Attributes:
        trees: what made them: ``"layer 2"``, ``"induced"``, ``"right-branching"``.
        sentence_f1: mean F1 of the sentences without the span of the whole sentence, as published for ON-LSTM; see
            :func:`~treemem.induction.mean_sentence_f1`.
        corpus_f1: F1 of all spans with those of whole sentences, as EVALB counts; see
            :func:`~treemem.induction.corpus_f1`.
        depth: the depth of a word, averaged over the words of a sentence and then over the sentences; the root has
            depth 0.
        recall: for each label of gold constituents of several words, the fraction of them that the trees have; the most
            frequent label first.
        constituents: how many gold constituents of several words have each label.
        sentences: how many were compared.
    """

    trees: str
    sentence_f1: float
    corpus_f1: float
    depth: float
    recall: dict[str, float]
    constituents: dict[str, int]
    sentences: int


def evaluate_trees(
    model: Model,
    gold: Sequence[Tree],
    *,
    gate: Literal["forget", "input"] = "forget",
    seed: int = 0,
) -> list[TreeScore]:
    """Return the scores of the induced trees, of each layer if there are layers, and then of the four baselines.

    Args:
        model: one that reads words and induces trees.
        gold: a tree for each sentence; a node with one child counts for the recall of its label only.
        gate: of ON-LSTM layers, whose distances; see :meth:`treemem.nn.LanguageModel.induced_trees`.
        seed: of the random baseline.

    Raises:
        RecipeError: the model induces no trees, or there are no gold trees.
        VocabularyError: a word that the model does not know, if its vocabulary has no unknown word.
    """
    sentences = [[leaf.label for leaf in tree.leaves()] for tree in gold]
    ways = ways_to_induce(model, gate)
    scores = [score_trees(gold, induce_trees(model, sentences, **options), name) for name, options in ways.items()]
    for branching, name in zip(BASELINES, BASELINE_NAMES, strict=True):
        scores.append(score_trees(gold, baseline_trees(sentences, branching, seed=seed), name))
    return scores


def ways_to_induce(model: Model, gate: Literal["forget", "input"] = "forget") -> dict[str, dict[str, Any]]:
    """Return the options of :func:`induce_trees` by name: ``"layer 1"`` and so on, or ``"induced"`` without layers.

    Args:
        model: one that induces trees.
        gate: of ON-LSTM layers, whose distances; see :meth:`treemem.nn.LanguageModel.induced_trees`.

    Raises:
        RecipeError: the model induces no trees.
    """
    encoder = _inducing_encoder(model)
    if not hasattr(encoder, "stack"):
        return {"induced": {}}
    layers = range(len(encoder.stack.layer_sizes))
    return {f"layer {layer + 1}": {"layer": layer, "gate": gate} for layer in layers}


def _inducing_encoder(model: Model) -> Any:
    name, encoder = model.network.network, model.encoder
    if not getattr(encoder, "can_induce_trees", False):
        networks = "a LanguageModel with cell='ON-LSTM', a PRPN, or OrderedMemory"
        raise RecipeError(f"this {name} induces no trees; train {networks} on sentences")
    if getattr(encoder, "form", "leaves") != "leaves":
        raise RecipeError(f"this {name} reads more tokens than words; give a model of sentences")
    return encoder


def induce_trees(model: Model, sentences: Sequence[Sequence[str]], **options: Any) -> list[Tree]:
    """Return the tree that a model induces over each sentence, read alone; a language model reads ``<eos>`` before it.

    Args:
        model: one that reads words and induces trees.
        sentences: the words of each, at least one. Unknown words are read as the vocabulary's unknown one.
        options: of the encoder's ``induced_trees``, such as ``layer`` and ``gate`` of
            :meth:`treemem.nn.LanguageModel.induced_trees`.

    Raises:
        RecipeError: the model induces no trees, or has no such layer.
        VocabularyError: a word that the model does not know, if its vocabulary has no unknown word; names the sentence.
    """
    encoder = _inducing_encoder(model)
    ids = word_ids(sentences, model.vocabulary)
    trees: list[Tree | None] = [None] * len(ids)
    for places in batches_by_length([len(sentence) for sentence in ids]):
        batch = TokenBatch.from_sequences([ids[place] for place in places]).to(model.device)
        for place, tree in zip(places, encoder.induced_trees(batch, **options), strict=True):
            trees[place] = with_words(tree, sentences[place])
    return [tree for tree in trees if tree is not None]


def with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """Return the tree with its leaves replaced by words in order."""
    rest, done = iter(words), []
    for node in tree.postorder():
        if node.is_leaf:
            done.append(Tree(next(rest)))
        else:
            done[-node.arity :] = [Tree(node.label, done[-node.arity :])]
    return done[0]


def score_trees(gold: Sequence[Tree], predicted: Sequence[Tree], trees: str = "") -> TreeScore:
    """Return how well trees agree with gold trees of the same sentences.

    Args:
        gold: may have nodes with one child; F1 does not count them.
        predicted: a tree for each gold tree.
        trees: a name.

    Raises:
        RecipeError: different numbers of trees, or none.
        GraphError: a sentence with different words.
    """
    plain = [remove_brackets(tree, ()) for tree in gold]
    sentence, corpus = mean_sentence_f1(plain, predicted).f1, corpus_f1(plain, predicted).f1
    counts: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for gold_tree, other in zip(gold, predicted, strict=True):
        spans = set(tree_spans(other))
        labelled = {
            (*span, node.label)
            for node, span in zip(
                (node for node in gold_tree.postorder() if not node.is_leaf), tree_spans(gold_tree), strict=True
            )
            if span[1] - span[0] > 1
        }
        total.update(label for _, _, label in labelled)
        counts.update(label for first, last, label in labelled if (first, last) in spans)
    constituents = dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
    recall = {label: counts[label] / count for label, count in constituents.items()}
    depth = float(np.mean([_mean_depth(tree) for tree in predicted]))
    return TreeScore(trees, sentence, corpus, depth, recall, constituents, len(gold))


def _mean_depth(tree: Tree) -> float:
    """Return the mean depth of the leaves."""
    depths, pending = [], [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if node.is_leaf:
            depths.append(depth)
        pending.extend((child, depth + 1) for child in node.children)
    return sum(depths) / len(depths)
