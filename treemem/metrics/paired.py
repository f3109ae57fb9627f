"""Paired statistics of two models on the same examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import RecipeError


@dataclass(frozen=True)
class Comparison:
    """Two models, or two networks trained from several seeds, on the same examples.

    Attributes:
        difference: accuracy of the first minus that of the second, a fraction.
        differences: of each seed.
        interval: confidence interval of the difference, by bootstrap over the examples.
        level: of the interval.
        only_first, only_second: number of examples that only one of them has correct, summed over the seeds.
        p_values: of McNemar's exact test, one for each seed.
    """

    difference: float
    differences: tuple[float, ...]
    interval: tuple[float, float]
    level: float
    only_first: int
    only_second: int
    p_values: tuple[float, ...]

    def p_text(self) -> str:
        """The p-values with two digits; one below the smallest float as a bound."""
        return ", ".join(f"{value:.2g}" if value else "<1e-300" for value in self.p_values)


def compare(
    first: ArrayLike, second: ArrayLike, *, repeats: int = 10_000, level: float = 0.95, seed: int = 0
) -> Comparison:
    """Compare two models by the examples that they have correct.

    The interval is the percentile bootstrap (Efron 1979) over examples, each with the answers of all seeds. It covers
    other examples of the same kind, not other seeds. In McNemar's exact test (1947), the number of examples that only
    the first has correct is ``Binomial(n, 1/2)`` if both models are equally good.

    Args:
        first, second: whether each example is correct, bool ``[examples]`` or ``[seeds, examples]``.
        repeats: number of bootstrap samples.
        level: of the interval.
        seed: of the bootstrap.

    Raises:
        RecipeError: the shapes differ, there is no example, or the level is not between 0 and 1.

    Example:
        >>> compare([True, True, True, False], [True, False, False, False]).difference
        0.5
    """
    from scipy.stats import binomtest

    ours, theirs = _answers(first), _answers(second)
    if ours.shape != theirs.shape or not ours.size:
        raise RecipeError(
            f"a comparison needs the same examples and seeds on both sides, not {ours.shape} and {theirs.shape}"
        )
    if not 0 < level < 1:
        raise RecipeError(f"level must lie between 0 and 1, not {level}")
    only_first, only_second = (ours & ~theirs).sum(1), (theirs & ~ours).sum(1)
    by_seed = ours.astype(np.int64) - theirs
    of_pairs = by_seed.sum(0)
    values, counts = np.unique(of_pairs, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(of_pairs.size, counts / of_pairs.size, size=repeats)
    differences = drawn @ values / ours.size
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    return Comparison(
        float(of_pairs.sum() / ours.size),
        tuple(by_seed.mean(1).tolist()),
        (float(low), float(high)),
        level,
        int(only_first.sum()),
        int(only_second.sum()),
        tuple(
            float(binomtest(int(a), int(a + b)).pvalue) if a + b else 1.0
            for a, b in zip(only_first, only_second, strict=True)
        ),
    )


def _answers(given: ArrayLike) -> NDArray[np.bool_]:
    answers = np.asarray(given)
    if answers.dtype != bool or answers.ndim not in (1, 2):
        raise RecipeError(
            f"answers must be bool [examples] or [seeds, examples], not {answers.dtype} {list(answers.shape)}"
        )
    return np.atleast_2d(answers)
