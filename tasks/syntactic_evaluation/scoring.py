"""How often a language model prefers the grammatical sentence of a minimal pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from treemem.errors import RecipeError
from treemem.model import Model
from treemem.tasks.language_modeling import LanguageModeling
from treemem.tasks.language_modeling.generation.english import (
    FEWEST_WORDS,
    MinimalPair,
    english_grammar,
    minimal_pairs,
)
from treemem.tasks.language_modeling.sentences import log_probabilities


class ConstructionScore(NamedTuple):
    """The score of a construction.

    Attributes:
        construction: its name, or ``"all"``.
        pairs: how many there are.
        accuracy: the fraction of them whose good sentence has the greater log probability.
        margin: the mean difference of the log probabilities, in nats.
        known_pairs: how many of the pairs have no unknown word.
        known_accuracy: the accuracy of those; None if there are none.
    """

    construction: str
    pairs: int
    accuracy: float
    margin: float
    known_pairs: int
    known_accuracy: float | None


def pairs_of_grammar(model: Model, count: int, seed: int = 0) -> list[MinimalPair]:
    """Return minimal pairs of the grammar that a model was trained on.

    Args:
        model: a language model of the English grammar.
        count, seed: see :func:`~treemem.tasks.language_modeling.generation.english.minimal_pairs`.

    Raises:
        RecipeError: the model was trained on another text.
    """
    task = model.task
    if isinstance(task, LanguageModeling):
        words = set(model.vocabulary.leaves)
        grammar = english_grammar(max(FEWEST_WORDS, task.grammar_words))
        if words >= set(grammar.words):
            return minimal_pairs(grammar, count, seed)
    raise RecipeError("the model was not trained on the English grammar; give a file of minimal pairs (--pairs)")


def score_pairs(
    model: Model,
    pairs: Sequence[MinimalPair],
    *,
    end: bool = True,
    advance: Callable[[int], object] = lambda count: None,
) -> list[ConstructionScore]:
    """Return the scores of the constructions in the order of their first pairs, and last one of all pairs.

    A pair counts as correct if the total log probability of the good sentence is strictly greater; never if it differs
    in unknown words alone. Each sentence is read alone, after an end of sentence.

    Args:
        model: a language model.
        pairs: for example of :func:`~treemem.tasks.language_modeling.generation.english.minimal_pairs`.
        end: whether the end of the sentence counts; not in the published evaluation.
        advance: called with the number of sentences after each batch.

    Raises:
        RecipeError: there are no pairs, or the model is no language model.
        VocabularyError: a word that the model does not know, if its vocabulary has no unknown word.
    """
    if not pairs:
        raise RecipeError("there are no minimal pairs to score")
    sentences = [side for pair in pairs for side in (pair.good, pair.bad)]
    values = np.asarray(log_probabilities(model, sentences, end=end, advance=advance))
    margin = values[::2] - values[1::2]
    construction = np.array([pair.construction for pair in pairs])
    chosen = {name: construction == name for name in dict.fromkeys(construction.tolist())}
    chosen["all"] = np.ones(len(pairs), bool)
    known = frozenset(model.vocabulary.leaves) - {model.vocabulary.unknown}
    is_known = np.array([known.issuperset(pair.good) and known.issuperset(pair.bad) for pair in pairs])
    scores = []
    for name, in_construction in chosen.items():
        of_known = margin[in_construction & is_known] > 0
        scores.append(
            ConstructionScore(
                name,
                int(in_construction.sum()),
                float((margin[in_construction] > 0).mean()),
                float(margin[in_construction].mean()),
                len(of_known),
                float(of_known.mean()) if len(of_known) else None,
            )
        )
    return scores
