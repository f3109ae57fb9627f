from __future__ import annotations

import logging

import pytest

from treemem.tasks.equation_verification.generation.quotas import PUBLISHED_COUNTS, OpenQuotas, depth_quotas


def test_the_published_size_has_the_published_counts() -> None:
    expected = {depth: (total - true, true) for depth, (total, true) in PUBLISHED_COUNTS.items()}
    assert depth_quotas(41_894) == expected
    assert sum(total for total, _ in PUBLISHED_COUNTS.values()) == 41_894


@pytest.mark.parametrize("size", [0, 1, 7, 100, 999, 12_000, 418_940])
@pytest.mark.parametrize("max_depth", [2, 7, 13, 20])
def test_counts_add_up_to_the_size(size: int, max_depth: int) -> None:
    quotas = depth_quotas(size, max_depth)
    assert sum(map(sum, quotas.values())) == size
    assert list(quotas) == list(range(1, max_depth + 1))


def test_counts_go_on_falling_beyond_the_published_depths() -> None:
    quotas = depth_quotas(100_000, 20)
    totals = [sum(quotas[depth]) for depth in range(13, 21)]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] > 0


def test_an_exhausted_depth_passes_its_rest_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    quotas = OpenQuotas({1: 3, 2: 2}, patience=10, what="true")
    quotas.add_found(1)
    quotas.add_tries({1: 10})
    quotas.pass_on()
    assert quotas.missing == {1: 2, 2: 2}
    quotas.add_tries({1: 1})
    with caplog.at_level(logging.WARNING):
        quotas.pass_on()
    assert quotas.missing == {2: 4}
    assert quotas.num_found == 1
    assert "depth 1 has only 1 true equations; 2 more are taken from depth 2" in caplog.text
    quotas.add_tries({2: 11})
    with caplog.at_level(logging.WARNING):
        quotas.pass_on()
    assert quotas.missing == {}
    assert "stays 4 short" in caplog.text
