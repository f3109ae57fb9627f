"""Table 2 with each network's own learning rate, from records that nobody trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from made_records import made_record

from treemem.records import write_records
from treemem.runs.results_page import write_page
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_records import packed_answers
from treemem.tasks.equation_verification.generation.numeric import KINDS
from treemem.tasks.equation_verification.own_rates import (
    BEST,
    claim_table,
    end_rates,
    own_rates,
    rate_table,
    rows_with_own_rates,
)
from treemem.tasks.equation_verification.task import EquationVerification

FOLDER = StudyFolder.find("equation_verification")
STUDY, OTHER = FOLDER.study("own-rates"), FOLDER.study("own-rates-tree-rnn")
RATES = list(STUDY.variants)
OWN = {network: RATES[place % 4] for place, network in enumerate((*OTHER.networks, *STUDY.networks))}
"""The rate with the best validation in the made records."""
DEPTHS = range(8, 14)


class Page:
    """What the table of claims asks of a page."""

    def figure(self, network: str, split: str, metric: str = "accuracy") -> Any:
        key = (network, split, metric)
        return next(f for f in EquationVerification.published if (f.network, f.split, f.metric) == key)


def records(seeds: int = 2, *, without: str = "") -> list[dict[str, Any]]:
    """All runs of the first seeds. The more of a stack, the better, most so on deep equations."""
    found = []
    for run in (*OTHER.runs(), *STUDY.runs()):
        network, _, rate = run.row.partition(", ")
        if run.training.seed not in STUDY.seeds[:seeds] or run.row == without:
            continue
        parts = network.count("+")
        within = dict.fromkeys(range(1, 8), (100, 90 if rate == OWN[network] else 80))
        deep = {depth: (100, 60 + 5 * parts + parts * (depth - 8)) for depth in DEPTHS}
        groups = {"train": within, "validation": within, "test": deep, "general_deeper": deep}
        found.append(made_record(run, groups, group="depth"))
    return found


def test_networks_whose_rate_is_at_an_end_are_named() -> None:
    told = end_rates(STUDY, records())
    assert [name for name in OWN if f"{name} (" in told] == [
        name for name, rate in OWN.items() if rate in (RATES[0], RATES[3])
    ]
    assert end_rates(STUDY, []) == ""


def test_each_network_has_the_rate_with_the_best_validation() -> None:
    assert own_rates(STUDY, records()) == OWN
    rows = rows_with_own_rates(STUDY, records())
    assert {name: [run["row"] for run in runs] for name, runs in rows.items()} == {
        name: [f"{name}, {rate}"] * 2 for name, rate in OWN.items()
    }
    line = next(line for line in rate_table(STUDY, records()).splitlines() if line.startswith(f"| {BEST} "))
    assert [cell.strip() for cell in line.split("|")[2:7]] == [
        "2",
        *["80.00 ± 0.00"] * 2,
        "**90.00 ± 0.00**",
        "80.00 ± 0.00",
    ]


def test_the_claims_are_answered_by_differences_and_their_intervals() -> None:
    lines = claim_table(rows_with_own_rates(STUDY, records()), Page()).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    answers = {row[0]: (row[1], row[2], row[-1]) for row in cells}
    assert answers["The stack helps Tree-LSTM"] == ("+1.60", "+7.50", "yes")
    assert answers["The stack lowers Tree-RNN"] == ("+2.65", "-7.50", "no, the opposite")
    assert answers["It is better not to normalise the actions"] == ("+0.80", "-7.50", "no, the opposite")
    lead = "+15.0, +18.0, +21.0, +24.0, +27.0, +30.0"
    assert answers["Its lead widens with depth (8 to 13)"] == ("a plot", lead, "yes")
    assert answers["Its lead is up to 10 %"] == ("a plot", "+30.0 at depth 13", "yes")


def _score(group: int | str, top: float) -> dict[str, Any]:
    return {"group": group, "equations": 10, "top": [top] * 10, "mrr": top}


def test_the_page_shows_what_is_recorded_and_names_the_command_for_the_rest(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()

    def page(**made: list[dict[str, Any]]) -> str:
        for name, found in made.items():
            write_records(results / f"{name.replace('_', '-')}.jsonl", found)
        write_page(FOLDER, results, tmp_path / "page.md")
        return (tmp_path / "page.md").read_text()

    def trained(study: str) -> list[dict[str, Any]]:
        parts = ("train", "validation", "test", "general_deeper", "published_dev")
        return [
            made_record(run, {part: dict.fromkeys(DEPTHS, (100, 70 + place)) for part in parts}, group="depth")
            for place, run in enumerate(FOLDER.study(study).runs())
        ]

    text = page(stack_forms=trained("stack-forms"))
    assert "`treemem queue equation_verification/own-rates-tree-rnn equation_verification/own-rates`" in text
    assert "| gated readout of the top 2 rows " in text
    assert " +1.00 | " in text
    own = records()
    kinds = [{"way": "function", "group": "sin", "members": packed_answers(np.arange(600) < 60)}]
    completed = {"run": "x", "network": BEST, "seed": 12093, "set": "generated", "hash": "h"}
    completed |= {"scores": {"class": [_score(8, 0.5), _score("all", 0.25)]}, "constant": [_score("all", 0.125)]}
    errors = [
        {"kind": kind, "examples": 9, "accuracy": 0.5, "error": 0.1, "separated": 0.9} for kind in (*KINDS, "all")
    ]
    numeric = trained("numeric")
    text = page(
        own_rates=own,
        test_kinds=kinds,
        completion_generated=[completed],
        **{name.replace("-", "_"): trained(name) for name in ("stack", "sample-efficiency", "ablation", "best")},
        numeric=numeric,
        numeric_errors=[{"row": run["row"], "training": run["training"], "errors": errors} for run in numeric],
    )
    assert "Not recorded yet" not in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["generated", "_commonest values first_", *["12.50"] * 5] in cells
    assert ["generated", BEST, *["25.00"] * 5] in cells
    assert any(row[:3] == ["Its lead is up to 10 %", "a plot", "+30.0 at depth 13"] for row in cells)
    assert any(row[:3] == ["no-op", "1 row", "+2.00"] for row in cells)
    assert any(row[:1] == [f"{BEST}, p 2"] for row in cells)
