from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_checkout_is_compared_with_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    words = [".", ".", "--only", "tree-rnn", "--rounds", "1", "--seconds", "0.01"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.pairs", *words])
    importlib.import_module("benchmarks.pairs").main()
    *_, heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.startswith("| workload | training | inference | peak memory |")
    name, training, inference, memory, _, same = row.strip("| ").split(" | ")
    assert (name, memory, same) == ("logic tree-rnn 200", "1.00", "yes")
    assert float(training.split()[0]) > 0
    assert float(inference.split()[0]) > 0
