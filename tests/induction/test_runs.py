from __future__ import annotations

import statistics

import numpy as np
import pytest

from treemem.errors import GraphError, RecipeError
from treemem.induction import baseline_trees, corpus_f1, mean_sentence_f1, score_runs
from treemem.trees.tree import Tree

SENTENCES = [list("abcde"), list("ab"), list("abcdefghij"), list("xyz")]
GOLD = baseline_trees(SENTENCES, "balanced")
RUNS = {f"seed {seed}": baseline_trees(SENTENCES, "random", seed=seed) for seed in range(3)}


@pytest.mark.parametrize(("average", "score"), [("corpus", corpus_f1), ("sentence", mean_sentence_f1)])
def test_runs_are_scored_against_gold_and_each_other(average: str, score: object) -> None:
    assert callable(score)
    result = score_runs(GOLD, RUNS, average=average)
    assert result.of_run == {name: score(GOLD, trees) for name, trees in RUNS.items()}
    f1 = [score(GOLD, trees).f1 for trees in RUNS.values()]
    assert result.mean == pytest.approx(sum(f1) / 3)
    assert result.deviation == pytest.approx(statistics.stdev(f1))
    between = [[score(one, other).f1 for other in RUNS.values()] for one in RUNS.values()]
    assert result.agreement.runs == tuple(RUNS)
    np.testing.assert_allclose(result.agreement.f1, between)
    assert result.agreement.mean == pytest.approx((between[0][1] + between[0][2] + between[1][2]) / 3)


def test_one_run_has_neither_deviation_nor_agreement() -> None:
    result = score_runs(GOLD, {"only": GOLD})
    assert (result.mean, result.deviation, result.agreement.mean) == (1.0, None, None)
    assert result.agreement.f1.tolist() == [[1.0]]


def test_the_run_that_is_wrong_is_named() -> None:
    other = [*RUNS["seed 1"][:-1], Tree("x")]
    with pytest.raises(GraphError, match="bad: the trees of sentence 3 have other words"):
        score_runs(GOLD, {"good": GOLD, "bad": other})
    with pytest.raises(RecipeError, match="bad: 4 trees cannot be compared with 3"):
        score_runs(GOLD, {"bad": GOLD[:3]})
    with pytest.raises(RecipeError, match="no runs"):
        score_runs(GOLD, {})
    with pytest.raises(RecipeError, match="there is no average 'macro'; there are corpus, sentence"):
        score_runs(GOLD, RUNS, average="macro")
