from __future__ import annotations

import numpy as np

from treemem.runs import OddsCount


def test_accuracy_at_even_odds_is_that_of_the_answers() -> None:
    generator = np.random.default_rng(1)
    probabilities, yes = generator.uniform(0.01, 0.99, 500), generator.random(500) < 0.5
    right = (probabilities > 0.5) == yes
    counts = OddsCount.of(probabilities, yes)
    assert counts.accuracy() == right.mean()
    assert counts.yes.sum() == yes.sum()
    again = OddsCount.from_lists(counts.to_lists())
    assert (again.no == counts.no).all()
    assert (again.yes == counts.yes).all()


def test_a_threshold_divides_the_answers() -> None:
    odds = np.array([-20.0, -1.1, -0.6, -0.4, 0.6, 3.0])
    yes = np.array([False, False, True, True, True, True])
    probabilities = 1 / (1 + np.exp(-odds))
    counts = OddsCount.of(probabilities, yes)
    assert counts.accuracy() == 4 / 6
    assert counts.accuracy(-0.75) == 1


def test_certain_answers_are_counted() -> None:
    counts = OddsCount.of(np.array([0.0, 1.0]), np.array([False, True]))
    assert counts.no[0] == counts.yes[-1] == 1


def test_an_even_probability_counts_as_yes_for_the_threshold_and_is_nobodys_label() -> None:
    counts = OddsCount.of(np.array([0.5, 0.5, 0.9]), np.array([False, True, True]))
    assert (counts.no.sum(), counts.yes.sum()) == (1, 2)
    assert counts.accuracy() == 2 / 3
