"""How runs of a study learned: loss and validation scores of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.records import read_records
from treemem.runs.study_file_run import StudyResults


def curve_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run: ``run``, ``row``, ``weights``, and of each of its epochs what its log holds."""
    metric = f"validation_{done.task.monitor.metric}"
    for run, first in done.unmeasured(before):
        log = [record.fields for record in read_records(done.folder / run.name / "metrics.jsonl")]
        fields = ("epoch", "loss", "validation_loss", metric)
        epochs = [{name: epoch[name] for name in fields if name in epoch} for epoch in log if "epoch" in epoch]
        yield {**first, "epochs": epochs}
