from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from treemem.metrics.score import Score
from treemem.runs import gathered_rows, score_row, scores_by_network, write_results

SCORES = {
    "A": [Score(3, 10, {"accuracy": 0.5}), Score("all", 10, {"accuracy": 0.5})],
    "B": [Score(3, 10, {"accuracy": 0.75})],
}


def written(output: Path, name: str, digest: str, card: str = "# Toys\n") -> list[dict[str, Any]]:
    rows = [score_row(name, score, "depth") for score in SCORES[name]]
    (output / name).mkdir()
    write_results(output / name, rows, card, digest)
    return rows


def test_rows_of_all_networks_of_the_same_data_are_gathered_those_just_trained_first(tmp_path: Path) -> None:
    of_a, of_b = written(tmp_path, "A", "toys", "# Toys\r\n"), written(tmp_path, "B", "toys", "toys of another name")
    assert gathered_rows(tmp_path, ["B"], "toys") == [*of_b, *of_a]
    assert scores_by_network([*of_b, *of_a], "depth") == {"B": SCORES["B"], "A": SCORES["A"]}
    write_results(tmp_path, gathered_rows(tmp_path, ["B"], "toys"), "# Toys\n", "toys")
    assert gathered_rows(tmp_path, ["A", "B"], "toys") == [*of_a, *of_b], "the gathered rows are no network's"
    assert (tmp_path / "data.md").read_text() == "# Toys\n\nSHA-256 of trees, labels and splits: toys\n"


def test_networks_of_other_data_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, "A", "others")
    (tmp_path / "C").mkdir()
    for name, content in (("data.md", b"# Toys\n\xff"), ("results.jsonl", b"")):
        (tmp_path / "C" / name).write_bytes(content)
    of_b = written(tmp_path, "B", "toys")
    with caplog.at_level(logging.INFO):
        assert gathered_rows(tmp_path, ["B"], "toys") == of_b
    for name in ("A", "C"):
        assert f"{name} was trained on other data, so that its scores are left out of" in caplog.text
