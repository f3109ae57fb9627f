"""Scores of several runs on the same sentences, against gold trees and against each other."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, RecipeError
from treemem.induction.scores import SpanScore, corpus_score, sentence_score
from treemem.induction.spans import Bracketing, bracketings
from treemem.trees.tree import Tree

Average = Literal["corpus", "sentence"]

_SCORES: dict[str, Callable[[Sequence[Bracketing], Sequence[Bracketing]], SpanScore]] = {
    "corpus": corpus_score,
    "sentence": sentence_score,
}


@dataclass(frozen=True)
class Agreement:
    """Agreement between the trees of several runs.

    Attributes:
        runs: their names.
        f1: ``[runs, runs]``, the F1 of the trees of one run against those of another; 1 on the diagonal.
        mean: over all pairs of different runs; None for a single run.
    """

    runs: tuple[str, ...]
    f1: NDArray[np.float64]
    mean: float | None


@dataclass(frozen=True)
class RunsScore:
    """Scores of the trees of several runs.

    Attributes:
        of_run: the score of each run by its name.
        mean: mean F1 of the runs.
        deviation: sample standard deviation of their F1; None for a single run.
        agreement: between their trees.
    """

    of_run: dict[str, SpanScore]
    mean: float
    deviation: float | None
    agreement: Agreement


def score_runs(gold: Sequence[Tree], runs: Mapping[str, Sequence[Tree]], *, average: Average = "corpus") -> RunsScore:
    """Return the scores of the trees of several runs, against gold trees and against each other.

    Args:
        gold: the gold trees.
        runs: the trees of each run by its name, one for each gold tree.
        average: ``"corpus"`` as :func:`corpus_f1`, or ``"sentence"`` as :func:`mean_sentence_f1`.

    Raises:
        RecipeError: no runs, no trees, different numbers of trees, or an unknown average.
        GraphError: a sentence with different words; names the run.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> gold, other = parse_brackets("(X a (X b c))"), parse_brackets("(X (X a b) c)")
        >>> scores = score_runs([gold], {"seed 0": [gold], "seed 1": [other]})
        >>> scores.mean, scores.agreement.mean
        (0.75, 0.5)
    """
    score = _score(average)
    of_gold, of_runs = bracketings(gold), _bracketings(runs)
    of_run = {name: _named(score, of_gold, trees, name) for name, trees in of_runs.items()}
    f1 = [own.f1 for own in of_run.values()]
    deviation = statistics.stdev(f1) if len(f1) > 1 else None
    return RunsScore(of_run, statistics.fmean(f1), deviation, _agreement(score, of_runs))


def run_agreement(runs: Mapping[str, Sequence[Tree]], *, average: Average = "corpus") -> Agreement:
    """Return the agreement between the trees of several runs without gold trees; see :func:`score_runs`.

    Raises:
        RecipeError: no runs, no trees, different numbers of trees, or an unknown average.
        GraphError: a sentence with different words; names the runs.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> one, other = parse_brackets("(X a (X b c))"), parse_brackets("(X (X a b) c)")
        >>> run_agreement({"seed 0": [one, one], "seed 1": [other, one]}).mean
        0.75
    """
    return _agreement(_score(average), _bracketings(runs))


def _score(average: str) -> Callable[[Sequence[Bracketing], Sequence[Bracketing]], SpanScore]:
    if average not in _SCORES:
        raise RecipeError(f"there is no average {average!r}; there are {', '.join(get_args(Average))}")
    return _SCORES[average]


def _bracketings(runs: Mapping[str, Sequence[Tree]]) -> dict[str, list[Bracketing]]:
    if not runs:
        raise RecipeError("there are no runs to compare")
    return {name: bracketings(trees) for name, trees in runs.items()}


def _agreement(
    score: Callable[[Sequence[Bracketing], Sequence[Bracketing]], SpanScore], runs: Mapping[str, Sequence[Bracketing]]
) -> Agreement:
    names = tuple(runs)
    f1 = np.eye(len(names))
    for second, other in enumerate(names):
        for first, one in enumerate(names[:second]):
            value = _named(score, runs[one], runs[other], f"{other} beside {one}").f1
            f1[first, second] = f1[second, first] = value  # F1 is the same either way round
    pairs = f1[np.triu_indices(len(names), 1)]
    return Agreement(names, f1, float(pairs.mean()) if pairs.size else None)


def _named(
    score: Callable[[Sequence[Bracketing], Sequence[Bracketing]], SpanScore],
    gold: Sequence[Bracketing],
    predicted: Sequence[Bracketing],
    name: str,
) -> SpanScore:
    """The score; errors name the run."""
    try:
        return score(gold, predicted)
    except (GraphError, RecipeError) as error:
        raise type(error)(f"{name}: {error}") from error
