"""Every fault of the list can be put into the project, and names tests that are there."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_every_fault_has_its_text_once_and_its_tests() -> None:
    mutations = yaml.safe_load(Path(__file__).with_name("mutations.yaml").read_text(encoding="utf-8"))
    assert len({mutation["name"] for mutation in mutations}) == len(mutations) >= 60
    for mutation in mutations:
        assert (ROOT / mutation["file"]).read_text(encoding="utf-8").count(mutation["old"]) == 1, mutation["name"]
        assert all((ROOT / test).exists() for test in mutation["tests"].split()), mutation["name"]
