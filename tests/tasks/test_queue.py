"""The queue of studies: which jobs there are, and which of them a worker takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from treemem.errors import RecipeError
from treemem.records import write_records
from treemem.runs.data_sets import DataSets
from treemem.runs.study_file import StudyFolder
from treemem.tasks import queue
from treemem.tasks.listops import ListOps, ListOpsDataOptions
from treemem.tasks.queue import Entry, Job, Places, chosen_entries, jobs_of, read_queue, remaining

ENTRIES = read_queue()
PUBLISHED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "runs" / "queue").mkdir(parents=True)
    return Places(tmp_path / "runs", tmp_path / "results", tmp_path / "published")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.study)
def test_every_study_of_the_queue_has_jobs_with_names_of_their_own(entry: Entry, places: Places) -> None:
    names = [job.name for job in entry.jobs(places)]
    assert len(names) > 1
    assert len(set(names)) == len(names)
    (state,) = remaining([entry], places)
    assert (state.done, state.jobs, state.hours) == (0, len(names), entry.hours)


def test_first_studies_and_the_first_rows_of_every_part_of_the_comparison_come_before_all_else(places: Places) -> None:
    wanted = [entry for entry in ENTRIES if entry.first or entry.study.startswith("comparison/")]
    names = [job.name for job in jobs_of(wanted, places)]
    rows = ["listops/TreeCell", "logic/TreeCell", "equations/TreeCell", "equations/LSTM, preorder", "listops/DIORA"]
    at = [names.index(f"comparison/learned-{name}") for name in rows]
    assert at == sorted(at)
    assert all(names.index(job.name) < at[0] for entry in wanted if entry.first for job in entry.jobs(places))


def test_the_files_that_the_queue_names_are_published_ones() -> None:
    if not PUBLISHED.exists():
        pytest.skip("the published files are not at hand")
    named = {
        *(entry.data for entry in ENTRIES if entry.data),
        *(file for each in ENTRIES for file in each.files.values()),
    }
    assert [name for name in named if not (PUBLISHED / name).exists()] == []


def test_studies_are_chosen_by_name_in_the_order_of_the_queue() -> None:
    names = [entry.study for entry in ENTRIES]
    assert [entry.study for entry in chosen_entries(ENTRIES, [names[2], names[0]])] == [names[0], names[2]]
    assert chosen_entries(ENTRIES, []) == ENTRIES
    with pytest.raises(RecipeError, match="did you mean"):
        chosen_entries(ENTRIES, [names[0] + "s"])


@pytest.mark.parametrize(
    ("changes", "is_done"),
    [
        ({}, True),
        ({"scores": {"validation": []}}, False),
        ({"data": {"name": "published 1000", "hash": "of other trees"}}, False),
        ({"task": {"form": "nary"}}, False),
    ],
)
def test_a_run_is_done_if_its_record_has_its_options_its_data_and_all_scores(
    changes: dict[str, Any], is_done: bool, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = ListOps().make_data(ListOpsDataOptions(training_size=20, test_size=5, test_sets=["iid"])).forest
    monkeypatch.setattr(DataSets, "at_hand", lambda self, name: forest if name == "published 1000" else None)
    (entry,) = chosen_entries(ENTRIES, ["listops/data-size"])
    run, other, *_ = StudyFolder.find("listops").study("data-size").runs()
    assert run.task is not None
    record = {
        "run": run.name,
        "task": run.task.options,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"name": run.data, "hash": run.task.examples(forest).digest()},
        "scores": {"train": [], "validation": [], "test": []},
        **changes,
    }
    (places.results / "listops").mkdir(parents=True)
    unlike = {"run": other.name, "data": {"name": other.data, "hash": "of trees that are not at hand"}}
    same = {"network": dataclasses.asdict(other.network), "training": dataclasses.asdict(other.training)}
    scores = {"train": [], "validation": [], "test": []}
    records = [record, {**record, **unlike, **same, "task": run.task.options, "scores": scores}]
    write_records(places.results / "listops" / "data-size.jsonl", records)
    assert [job.is_done() for job in entry.jobs(places)[:3]] == [is_done, True, False]


def worked(jobs: list[Job], places: Places, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Do jobs as a worker of the queue does, and return the errors."""
    monkeypatch.setattr(Entry, "jobs", lambda self, places: jobs)
    return queue.run_queue([Entry("any/study", 1.0)], places, 1)


def test_a_worker_does_what_is_open_and_ready_in_order(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = ["recorded"]

    def job(name: str, needs: str = "recorded") -> Job:
        return Job(name, lambda: name in done, lambda: done.append(name), lambda: needs in done)

    jobs = [job("recorded"), job("last/row", needs="second"), job("first"), job("second"), job("never", needs="absent")]
    assert worked(jobs, places, monkeypatch) == {}
    assert done == ["recorded", "first", "second", "last/row"]


def test_a_worker_leaves_what_another_one_has_taken(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    jobs = [Job(name, lambda name=name: name in done, lambda name=name: done.append(name)) for name in ("a", "b")]  # type: ignore[misc]
    with FileLock(places.runs / "queue" / "a.lock"):
        worked(jobs, places, monkeypatch)
    assert done == ["b"]
    worked(jobs, places, monkeypatch)
    assert done == ["b", "a"]


def test_a_failed_job_is_told_and_stops_no_other(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fail() -> None:
        raise RecipeError("no such data")

    jobs = [Job("bad", lambda: False, fail), Job("good", lambda: "good" in done, lambda: done.append("good"))]
    assert worked(jobs, places, monkeypatch) == {"bad": "no such data"}
    assert done == ["good"]


def test_a_job_that_does_not_become_done_is_tried_once(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def job(name: str) -> Job:
        return Job(name, lambda: runs.count(name) > 2, lambda: runs.append(name))

    worked([job("a"), job("b")], places, monkeypatch)
    assert runs == ["a", "b"]


class ManyErrors(Entry):
    """A study whose jobs fail with more text than a pipe holds."""

    def jobs(self, places: Places) -> list[Job]:
        def failing(number: int) -> Job:
            def fail() -> None:
                raise RecipeError(f"no such data {number} " * 80)

            return Job(f"bad {number}", lambda: False, fail)

        return [failing(number) for number in range(60)]


def test_all_errors_come_back_from_the_workers(places: Places) -> None:
    assert len(queue.run_queue([ManyErrors("any/study", 1.0)], places, processes=2)) == 60
