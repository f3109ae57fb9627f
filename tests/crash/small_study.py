"""A study of the toy task: a run, a measurement and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from toy_task import MoreX

from treemem.runs.study_file import StudyFolder
from treemem.runs.study_file_run import StudyResults

_SHARED = """
page: toys
data:
  data: {options: {count: 40}}
"""
_STUDY = """
networks: [sum]
seeds: [1]
training: {epochs: 1, batch_size: 16}
splits: [validation]
measurements:
  counts: {function: "crash.small_study:counted"}
"""
_PAGE = """# Toys

{% set rows = same_options(page.records("small")) %}
{% filter aligned %}
network | validation
{% for row, runs in rows.items() %}
{{ row }} | {{ metric(runs, "validation") }}
{% endfor %}
{% endfilter %}
"""


def counted(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Measure how many examples there are."""
    if not before:
        yield {"set": "data", "examples": len(done.data["data"])}


def study_folder(path: Path) -> StudyFolder:
    """Return the folder of the study, which is written if it is absent."""
    if not path.exists():
        (path / "studies").mkdir(parents=True)
        (path / "studies" / "shared.yaml").write_text(_SHARED)
        (path / "studies" / "small.yaml").write_text(_STUDY)
        (path / "results.md.j2").write_text(_PAGE)
    return StudyFolder("more_x", MoreX, path, "")
