from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_task import MoreX, toy_data

from treemem.errors import RecipeError
from treemem.records import write_records
from treemem.runs import load_recipe, read_study
from treemem.runs.data_sets import DataSets, StudyPlaces
from treemem.runs.page_tables import aligned
from treemem.runs.results_page import write_page
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_file_run import StudyResults, run_study_file
from treemem.tasks.listops import ListOps
from treemem.trees.forest import Forest

SHARED = """
page: toys
data:
  data: {options: {count: 40}}
  half: {from: data, make: "test_study_file:half", split: train}
  other: {file: other, make: "test_study_file:others"}
  made: {make: "test_study_file:toy_data", count: 12}
"""
STUDY = """
networks: [sum]
seeds: [1, 2]
training: {epochs: 1, batch_size: 16}
variants:
  whole: {}
  half: {data: half, network_options: {hidden_size: 2}}
splits: [validation]
files: [other]
measurements:
  counts: {function: "test_study_file:counted", of: data}
"""
PAGE = """# Toys

{% set rows = same_options(page.records("small")) %}
{% filter aligned %}
network | validation
{% for row, runs in rows.items() %}
{{ row }} | {{ metric(runs, "validation") }}
{% endfor %}
{% endfilter %}
"""


def half(forest: Forest, split: str) -> Forest:
    keep = forest.tree_data["split"] != split
    keep[: len(forest) // 2] = True
    return forest[keep]


def last(forest: Forest, count: int) -> Forest:
    return forest[-count:]


def others(path: Path) -> Forest:
    return toy_data(int(path.read_text()), seed=1, divided=False)


def counted(done: StudyResults, before: Sequence[dict[str, Any]], *, of: str) -> Iterator[dict[str, Any]]:
    if not before:
        yield {"set": of, "examples": len(done.data[of]), "files": len(done.files)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    path = tmp_path / "task"
    (path / "studies").mkdir(parents=True)
    (path / "studies" / "shared.yaml").write_text(SHARED)
    (path / "studies" / "small.yaml").write_text(STUDY)
    (path / "results.md.j2").write_text(PAGE)
    return StudyFolder("more_x", MoreX, path, "")


def run(folder: StudyFolder, tmp_path: Path, **files: Path) -> list[dict[str, Any]]:
    places = StudyPlaces(tmp_path / "runs", tmp_path / "results", tmp_path / "toys.md", files=files)
    return run_study_file(folder.study("small"), places)


def test_a_study_is_run_measured_and_written_as_a_page(folder: StudyFolder, tmp_path: Path) -> None:
    (tmp_path / "count").write_text("20")
    records = run(folder, tmp_path, other=tmp_path / "count")
    assert [record["run"] for record in records] == [
        f"small/sum, {variant}/seed-{seed}" for seed in (1, 2) for variant in ("whole", "half")
    ]
    assert records[1]["network"]["options"]["hidden_size"] == 2
    assert records[0]["data"]["hash"] != records[1]["data"]["hash"]
    assert records[0]["scores"].keys() == {"validation", "other"}
    assert read_study(tmp_path / "results" / "counts.jsonl") == [{"set": "data", "examples": 40, "files": 1}]
    write_page(folder, tmp_path / "results", tmp_path / "toys.md")
    lines = (tmp_path / "toys.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| sum")] == ["sum, whole", "sum, half"]


def test_what_is_recorded_is_not_run_again(
    folder: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    records = run(folder, tmp_path)
    assert records[0]["scores"].keys() == {"validation"}
    before, _, after = caplog.text.partition("small: 0 of 4 runs have a record; first come the data")
    assert "small.jsonl: 0 of 4 runs are recorded; 4 to run, first small/sum, whole/seed-1" in after
    assert "small.jsonl" not in before
    monkeypatch.setattr("treemem.runs.run.fit", lambda *_, **__: pytest.fail("this was done before"))
    monkeypatch.setattr(MoreX, "make_data", lambda *_, **__: pytest.fail("the data are kept"))
    assert run(folder, tmp_path) == records
    assert "small.jsonl: 4 of 4 runs are recorded; --again FOLDER trains them anew" in caplog.text


def test_a_measurement_keeps_the_records_that_another_process_adds(
    folder: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(done: StudyResults, before: Sequence[dict[str, Any]], *, of: str) -> Iterator[dict[str, Any]]:
        write_records(tmp_path / "results" / "counts.jsonl", [{"set": "another", "examples": 1}])
        yield {"set": of, "examples": len(done.data[of])}

    monkeypatch.setattr("test_study_file.counted", measured)
    run(folder, tmp_path)
    assert [each["set"] for each in read_study(tmp_path / "results" / "counts.jsonl")] == ["another", "data"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds:", "seed:", "a study has no field 'seed'"),
        ("[sum]", "[sun]", "no network 'sun'; did you mean sum"),
        ("epochs: 1,", "epohcs: 1,", "variant 'whole': no field 'training.epohcs'"),
        ("{data: half,", "{date: half,", "variant 'half': a variant has no field 'date'"),
        ("{data: half,", "{data: third,", "no data set 'third'; there are data, half, other, made"),
        ("{data: half,", "{networks: [sun],", "no network 'sun'; did you mean sum"),
        ("splits:", "row: '{netwrk}'\nsplits:", "row: '{netwrk}' may contain {network}, {variant}, {study}, {seed}"),
    ],
)
def test_a_wrong_file_is_told(folder: StudyFolder, tmp_path: Path, old: str, new: str, message: str) -> None:
    (folder.path / "studies" / "small.yaml").write_text(STUDY.replace(old, new))
    with pytest.raises(RecipeError, match=re.escape(message)):
        run(folder, tmp_path)


def test_a_study_may_change_networks_of_a_recipe(folder: StudyFolder) -> None:
    (folder.path / "studies" / "changed.yaml").write_text(
        "recipe: small\nnetworks: {LSTM: {hidden_size: 7}, Transformer: null}\nseeds: [5]\n"
        "variants: {one: {networks: [LSTM]}}\n"
    )
    of_listops = dataclasses.replace(folder, name="listops", task=ListOps)
    recipe = load_recipe("listops/small")
    (found,) = of_listops.study("changed").runs()
    assert found.network == recipe.networks["LSTM"].replace(hidden_size=7)
    assert (found.training.seed, found.training.epochs) == (5, recipe.training.epochs)
    (folder.path / "studies" / "changed.yaml").write_text("recipe: small\nnetworks: [LSMT]\n")
    with pytest.raises(RecipeError, match="no network 'LSMT'; did you mean LSTM"):
        of_listops.study("changed").runs()


def test_a_data_set_that_is_made_of_a_users_file_is_made_of_the_file_at_hand(
    folder: StudyFolder, tmp_path: Path
) -> None:
    shared = SHARED + '  part: {from: other, make: "test_study_file:last", count: 3}\n'
    (folder.path / "studies" / "shared.yaml").write_text(shared)
    assert DataSets(folder.study("small"), tmp_path).find("part") is None
    with pytest.raises(RecipeError, match="the data set 'part' needs a file of yours: give --files other=PATH"):
        DataSets(folder.study("small"), tmp_path)["part"]
    for name, count in (("one", 20), ("another", 30)):
        (tmp_path / name).write_text(str(count))
        made = DataSets(folder.study("small"), tmp_path, files={"other": tmp_path / name})["part"]
        assert made == toy_data(count, seed=1, divided=False)[-3:]


def test_a_function_makes_a_data_set_of_nothing_else(folder: StudyFolder, tmp_path: Path) -> None:
    assert DataSets(folder.study("small"), tmp_path)["made"] == toy_data(12)


def test_a_file_that_no_study_scores_is_told(folder: StudyFolder, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no file is called 'others'; there are other"):
        run(folder, tmp_path, others=tmp_path / "count")


def test_an_unknown_study_and_a_page_without_records_are_told(folder: StudyFolder, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no study 'smal'; did you mean small"):
        folder.study("smal")
    with pytest.raises(RecipeError, match=r"there are no records in .*name studies of more_x to run: small"):
        write_page(folder, tmp_path, tmp_path / "page.md")
    (folder.path / "results.md.j2").write_text("{{ page.records('small')[0].row }}")
    (tmp_path / "counts.jsonl").write_text('{"set": "data"}\n')
    with pytest.raises(RecipeError, match="needs the records of more studies"):
        write_page(folder, tmp_path, tmp_path / "page.md")


def test_studies_without_a_template_of_their_page_are_refused_before_anything_is_trained(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treemem.runs.study_file.task_folder", lambda name: folder.path)
    assert StudyFolder.find("listops").studies == ["small"]
    (folder.path / "results.md.j2").unlink()
    with pytest.raises(RecipeError, match=r"has studies and no results\.md\.j2, the template of their page; add it"):
        StudyFolder.find("listops")


def test_a_table_of_a_template_is_aligned() -> None:
    assert aligned("a | bcd\n\nlong | 1\n") == "| a    | bcd |\n|------|----:|\n| long |   1 |"
