"""Sections for runs at published settings, from records that nobody trained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_records import made_record

from treemem.records import write_records
from treemem.runs import read_study
from treemem.runs.results_page import write_page
from treemem.runs.study_file import StudyFolder

LENGTHS = {10: (50, 50), 100: (50, 48), 1000: (20, 5)}
OPERATIONS = {number: (40, 40 - number) for number in range(1, 13)}
STUDIES = {
    "listops": (["published", "published-others", "length"], LENGTHS, "length"),
    "logical_inference": (["published", "published-held-out", "published-others"], OPERATIONS, "operations"),
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


@pytest.mark.parametrize(
    ("name", "missing"), [("listops", "published-others"), ("logical_inference", "published-held-out")]
)
def test_a_row_has_its_seeds_the_published_figure_and_what_differs(name: str, missing: str, tmp_path: Path) -> None:
    folder, (studies, groups, group) = StudyFolder.find(name), STUDIES[name]
    (tmp_path / "results").mkdir()
    for study in (folder.study(each) for each in studies if each != missing):
        parts = dict.fromkeys((*study.splits, *study.files), groups)
        made = [made_record(run, parts, group=group) for run in study.runs()[:-1]]
        write_records(tmp_path / "results" / f"{study.name}.jsonl", made)
    memory = [each for each in read_study(tmp_path / "results" / "published.jsonl") if each["row"] == "Ordered Memory"]
    trees = {
        "network": "Ordered Memory",
        "weights": {f"seed {each['training']['seed']}": each["weights"] for each in memory},
        "groups": [{"group": "all", "sentences": 9, "corpus": {"f1": {"a": 0.5, "b": 0.7}}}],
    }
    write_records(tmp_path / "results" / "published-trees.jsonl", [trees])
    write_page(folder, tmp_path / "results", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert re.findall("Not recorded yet: `treemem queue ([^`]*)`", text) == [f"{name}/{missing}"]
    for study_name in studies:
        runs = len(folder.study(study_name).runs())
        assert study_name == missing or f"{runs - 1} of {runs} runs are recorded" in text
    row = next(cells(line) for line in text.splitlines() if re.match(r"\| Ordered Memory +\| \d of \d", line))
    assert row[1:4] == ["4 of 5", "4", "30"]
    assert "60.00 ± 14.14 all" in row
    assert row[-1]


def test_the_networks_of_the_studies_say_what_differs() -> None:
    for name, (studies, *_) in STUDIES.items():
        folder = StudyFolder.find(name)
        differs = folder.function("published:DIFFERENCES")
        for study_name in studies[:1] + studies[-1:] if name == "logical_inference" else studies[:2]:
            assert {run.row for run in folder.study(study_name).runs()} <= {*differs}  # type: ignore[misc]
