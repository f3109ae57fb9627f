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
        >>> from treemem.trees.formats.brackets import parse_brackets
        >>> gold, other = parse_brackets("(X a (X b c))"), parse_brackets("(X (X a b) c)")
        >>> scores = score_runs([gold], {"seed 0": [gold], "seed 1": [other]})
        >>> scores.mean, scores.agreement.mean
        (0.75, 0.5)
    """
    if average not in _SCORES:
        raise RecipeError(f"there is no average {average!r}; there are {', '.join(get_args(Average))}")
    if not runs:
        raise RecipeError("there are no runs to compare; give at least one")
    score, of_gold = _SCORES[average], bracketings(gold)
    of_runs = {name: bracketings(trees) for name, trees in runs.items()}
    of_run = {}
    for name, run_trees in of_runs.items():
        try:
            of_run[name] = score(of_gold, run_trees)
        except (GraphError, RecipeError) as error:
            raise type(error)(f"{name}: {error}") from error
    f1 = [run_score.f1 for run_score in of_run.values()]
    deviation = statistics.stdev(f1) if len(f1) > 1 else None
    between = np.array([[score(one, other).f1 for other in of_runs.values()] for one in of_runs.values()])
    pairs = between[np.triu_indices(len(runs), 1)]
    agreement = Agreement(tuple(runs), between, float(pairs.mean()) if pairs.size else None)
    return RunsScore(of_run, statistics.fmean(f1), deviation, agreement)
