from __future__ import annotations

import pytest

from treemem.runs.page_tables import sentence_f1


def test_the_f1_by_sentence_of_all_groups_counts_each_sentence_once() -> None:
    groups = [
        {"sentences": 3, "sentence": {"f1": {"seed 1": 1.0, "seed 2": 0.6}}},
        {"sentences": 1, "sentence": {"f1": {"seed 1": 0.0, "seed 2": 0.2}}},
    ]
    mean, deviation = map(float, sentence_f1({"groups": groups}).split(" ± "))
    assert (mean, deviation) == pytest.approx((62.5, 17.68))
