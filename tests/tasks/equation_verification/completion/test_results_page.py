from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_pages import table_below

from treemem.metrics.score import Score
from treemem.runs import packed_answers
from treemem.tasks.equation_verification.completion import results_page
from treemem.tasks.equation_verification.completion.ranks import RANKS, TOP
from treemem.tasks.equation_verification.completion.results_page import write_page

GROUPS = {8: 3, 9: 5, "all": 8}
"""Equations by depth."""

NETWORKS = ("Tree-RNN", "Tree-LSTM", "Tree-LSTM, best recipe")
RIGHT = {"Tree-RNN": 0b00110000, "Tree-LSTM": 0b01110001, "Tree-LSTM, best recipe": 0b11110111}


def numbers(network: int, rank: int, group: int, seed: int = 1) -> list[float]:
    """The shares within the first 1, 2, ..., 10 ranks and the MRR, none of which is the same for other arguments.

    The mean over the seeds 1 and 3 is what seed 2 would have.
    """
    return [
        0.05 * place + 0.012 * network + 0.0031 * rank + 0.0007 * group + 0.0001 * (seed - 2) for place in range(11)
    ]


def scores(network: int, rank: int, seed: int = 1) -> list[dict[str, Any]]:
    made = []
    for group, (name, count) in enumerate(GROUPS.items()):
        *top, mrr = numbers(network, rank, group, seed)
        made.append({"group": name, "equations": count, "top": top, "mrr": mrr})
    return made


def record_of(network: str, seed: int) -> dict[str, Any]:
    number = NETWORKS.index(network)
    right = np.unpackbits(np.array([RIGHT[network]], np.uint8)).astype(bool)
    return {
        "run": f"{network}/seed-{seed}",
        "network": network,
        "seed": seed,
        "weights": f"{network} {seed}",
        "data": {"name": "generated", "hash": "abc", "equations": 8000},
        "command": "the command",
        "seconds": 1.0 if seed == 1 else 59.0,
        "scores": {name: scores(number, place, seed) for place, name in enumerate(RANKS)},
        "constant": scores(3, 0, seed=2),
        "right": {"class": packed_answers(right)},
    }


def cells(value: float, *, deviation: bool) -> str:
    return f"{100 * value:.2f}" + (" ± 0.01" if deviation else "")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, list[Score]]]:
    """A page of records all of whose numbers differ, and what was plotted."""
    plotted: dict[str, list[Score]] = {}
    monkeypatch.setattr(results_page, "plot_accuracy", lambda scores, *_, **__: plotted.update(scores))
    records = [record_of(network, seed) for network in NETWORKS for seed in (1, 3)]
    records[-1:] = []  # the last network has one seed
    write_page({"generated": records}, tmp_path / "page.md")
    return (tmp_path / "page.md").read_text(encoding="utf-8"), plotted


def test_every_rank_has_its_own_numbers_in_its_own_columns(page: tuple[str, dict[str, list[Score]]]) -> None:
    for rank, name in enumerate(RANKS):
        head, *rows = table_below(page[0], f"(`{name}`)\n")
        assert head == ["network", "top 1", "top 3", "top 5", "top 10", "MRR"]
        expected = [
            [network, *(cells(shown[place], deviation=network != NETWORKS[2]) for place in (0, 2, 4, 9, 10))]
            for number, network in enumerate(NETWORKS)
            for shown in [numbers(number, rank, 2, seed=1 if network == NETWORKS[2] else 2)]
        ]
        if name in ("class", "collapsed"):
            constant = numbers(3, 0, 2, seed=2)
            expected.insert(
                0, ["commonest values first", *(cells(constant[place], deviation=False) for place in (0, 2, 4, 9, 10))]
            )
        assert rows == expected


def test_tables_by_depth_are_of_the_class_rank(page: tuple[str, dict[str, list[Score]]]) -> None:
    for heading, most in (("Within the first rank:", 1), ("Within the first ten:", 10)):
        head, constant, *rows, equations = table_below(page[0], heading)
        assert head == ["network", "depth 8", "depth 9", "all"]
        assert equations == ["equations", "3", "5", "8"]
        of_constant = [cells(numbers(3, 0, group, seed=2)[most - 1], deviation=False) for group in range(3)]
        assert constant == ["commonest values first", *of_constant]
        for number, (network, row) in enumerate(zip(NETWORKS, rows, strict=True)):
            one = network == NETWORKS[2]
            found = [numbers(number, RANKS.index("class"), group, seed=1 if one else 2) for group in range(3)]
            assert row == [network, *(cells(values[most - 1], deviation=not one) for values in found)]


def test_the_plot_is_of_the_class_rank_over_all_depths(page: tuple[str, dict[str, list[Score]]]) -> None:
    for number, network in enumerate(NETWORKS):
        one = network == NETWORKS[2]
        *expected, _ = numbers(number, RANKS.index("class"), 2, seed=1 if one else 2)
        *constant, _ = numbers(3, 0, 2, seed=2)
        drawn = page[1][network]
        assert [(score.group, score.examples) for score in drawn] == [(most, 8) for most in TOP]
        assert [score.accuracy for score in drawn] == pytest.approx(expected)
        assert [score.majority for score in drawn] == pytest.approx(constant)
        assert [score.deviation is None for score in drawn] == [one] * len(TOP)


def test_comparisons_are_with_the_answers_of_the_same_seeds(page: tuple[str, dict[str, list[Score]]]) -> None:
    rows = table_below(page[0], "### Against Tree-LSTM, equation by equation")
    assert [[row[1], *row[3:]] for row in rows] == [
        ["difference, points", "right alone", "wrong alone", "McNemar's p by seed"],
        ["-25.00", "0", "4", "0.5, 0.5"],
        ["+37.50", "3", "0", "0.25"],
    ]
    assert [row[0] for row in rows[1:]] == ["Tree-RNN", "Tree-LSTM, best recipe"]


def test_the_origin_adds_up_the_runs(page: tuple[str, dict[str, list[Score]]]) -> None:
    origin = "8,000 equations, SHA-256 of them and their blanks `abc`. Command: `the command`; 5 runs of the seeds 1, 3"
    assert f"{origin}, 2 minutes on one thread, 331 equations a second." in page[0]


def test_without_the_network_to_compare_with_nothing_is_compared(tmp_path: Path) -> None:
    for runs in ([record_of("Tree-RNN", 1)], [record_of("Tree-LSTM", 1)]):
        write_page({"generated": runs}, tmp_path / "page.md")
        assert "### Against" not in (tmp_path / "page.md").read_text(encoding="utf-8")
