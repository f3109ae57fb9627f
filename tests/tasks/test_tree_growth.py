"""How the trees of a run form, from the models of its epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from treemem.networks import NetworkConfig
from treemem.runs import StudyRun, TrainingOptions, run_study
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.induced_trees import growth_records
from treemem.tasks.logical_inference import LogicalInference
from treemem.tasks.logical_inference.data import LogicDataOptions


@pytest.mark.parametrize("network", ["OrderedMemory", "ONLSTM"])
def test_each_epoch_has_the_f1_of_its_trees_and_a_memory_its_sharpness(network: str, tmp_path: Path) -> None:
    task = LogicalInference()
    options = LogicDataOptions(size=300, seed=1, max_operations=4, max_training_operations=3)
    data = task.make_data(options).forest
    sizes = {"hidden_size": 8} if network == "OrderedMemory" else {"hidden_size": 8, "chunk_size": 4, "num_layers": 1}
    training = TrainingOptions(epochs=2, keep_epochs=True, learning_rate=0.05, seed=1)
    run = StudyRun("a/seed-1", "a", NetworkConfig(network, sizes), training, task=task)
    records = run_study(task, [run], {"data": data}, folder=tmp_path, results=tmp_path / "a.jsonl")
    study, sets = StudyFolder.find("logical_inference").study("published"), cast(Any, {"data": data})
    done = StudyResults(study, [run], records, sets, {}, tmp_path, tmp_path, tmp_path)
    (record,) = growth_records(done, [], sentences=20)
    assert [each["epoch"] for each in record["epochs"]] == [1, 2]
    assert all(0 < each["f1"] <= 1 and 0 < each["right"] <= 1 for each in record["epochs"])
    assert [0 < each.get("sharpness", 0) <= 1 for each in record["epochs"]] == [network == "OrderedMemory"] * 2
    assert list(growth_records(done, [record], sentences=20)) == []
