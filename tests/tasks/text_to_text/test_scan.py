"""The study of SCAN: its page from some of its records, and what its recipe asks of the published files."""

from __future__ import annotations

from pathlib import Path

from made_records import made_record

from treemem.records import write_records
from treemem.runs.data_sets import DataSets
from treemem.runs.results_page import write_page
from treemem.runs.study_file import StudyFolder
from treemem.tasks.text_to_text import TextToText

# Beside the checkout, in a folder of data that the project does not ship.


def test_the_page_has_the_seeds_that_are_recorded_beside_the_published_figures(tmp_path: Path) -> None:
    folder = StudyFolder.find("text_to_text/scan")
    runs = [run for run in folder.study("scan").runs() if run.row == "LSTM, 2 layers, length"]
    (tmp_path / "results").mkdir()
    made = [
        made_record(run, {split: {32: (5, 1)} for split in folder.study("scan").splits}, group="length") for run in runs
    ]
    for record in made:
        record["compute_seconds"] = 1800.0
        for columns in record["scores"].values():
            columns["exact match"], columns["token accuracy"] = columns.pop("accuracy"), columns.pop("f1")
    write_records(tmp_path / "results" / "scan.jsonl", made[:2])
    write_page(folder, tmp_path / "results", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    planned = [len(folder.study(name).runs()) for name in folder.studies]
    assert f"2 of {sum(planned)} runs are recorded" in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["LSTM, 2 layers", "2 of 3", "12,345", "30.0", *["20.00 ± 0.00"] * 3, "13.8"] in cells
    assert ["LSTM, 2 layers", "0 of 3", "", "", "", "", "", "0.08"] in cells
    assert ["_the best network of Lake & Baroni on this split_", *[""] * 6, "20.8"] in cells
    assert text.count("Exact match in the test by the number of actions") == 1


def test_the_published_files_are_divided_as_the_page_says(shared_data: Path) -> None:
    sets = DataSets(StudyFolder.find("text_to_text/scan").study("scan"), Path(), shared_data / "scan")
    for name, counts, longest in (("length", [16_140, 850, 3920], (22, 22, 48)), ("jump", None, None)):
        forest = sets[name]
        examples = TextToText(group_by="target").examples(forest)
        parts = [examples.part(split) for split in ("train", "validation", "test")]
        assert counts is None or [len(part) for part in parts] == counts
        difficulty = examples.difficulty
        assert difficulty is not None
        assert longest is None or tuple(int(difficulty[part].max()) for part in parts) == longest
    sources = [record["source"] for record in TextToText().records_of(forest) if record["split"] == "train"]
    assert sources.count("jump") == 1467, "the seed leaves it in training"
