"""How runs of a study learned: loss and validation scores of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.records import read_records
from treemem.runs.study_file_run import StudyResults


def curve_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run: ``run``, ``row``, ``weights``, and of each of its epochs what its log holds."""
    known = {record["run"]: record["weights"] for record in before}
    metric = f"validation_{done.task.monitor.metric}"
    for run, record in zip(done.runs, done.records, strict=True):
        if known.get(run.name) == record["weights"]:
            continue
        log = [each.fields for each in read_records(done.folder / run.name / "metrics.jsonl")]
        fields = ("epoch", "loss", "validation_loss", metric)
        epochs = [{name: each[name] for name in fields if name in each} for each in log if "epoch" in each]
        yield {
            "run": run.name,
            "row": run.row,
            "training": {"seed": run.training.seed},
            "weights": record["weights"],
            "epochs": epochs,
        }
