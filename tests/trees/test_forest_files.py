from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from pyarrow import parquet
from tree_strategies import forests, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.trees import forest_files
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


def with_data(forest: Forest) -> Forest:
    return Forest.from_arrays(
        forest.labels,
        forest.label,
        forest.arity,
        forest.begin,
        forest.value,
        node_data={
            "class": np.arange(forest.num_nodes, dtype=np.int8),
            "features": np.arange(6.0 * forest.num_nodes, dtype=np.float32).reshape(forest.num_nodes, 2, 3),
        },
        tree_data={
            "id": np.array([f"tree {i}" for i in range(len(forest))], "U8"),
            "holds": np.ones(len(forest), bool),
        },
    )


@given(forests())
@settings(max_examples=25)
def test_files_give_the_forest_back(forest: Forest) -> None:
    forest = with_data(forest)
    with tempfile.TemporaryDirectory() as folder:
        forest.to_parquet(Path(folder) / "forest.parquet")
        forest.save(Path(folder) / "arrays")
        for again in (
            Forest.from_parquet(Path(folder) / "forest.parquet"),
            Forest.load(Path(folder) / "arrays", mmap=False),
            Forest.load(Path(folder) / "arrays"),
        ):
            assert again == forest
            assert [again.node_data[name].dtype for name in ("class", "features")] == [np.int8, np.float32]


def test_a_loaded_forest_and_its_slices_are_mapped_not_copied(tmp_path: Path) -> None:
    forest = random_forest(0, 10, 20)
    forest.save(tmp_path)
    loaded = Forest.load(tmp_path)
    assert loaded[2:5] == forest[2:5]
    for array in (loaded.label, loaded.begin, loaded[2:5].label):
        owner = array
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        assert isinstance(owner, np.memmap)


def test_saving_again_with_less_leaves_nothing_behind_that_is_read(tmp_path: Path) -> None:
    with_data(Forest.from_trees([Tree("Number", value=1.0)])).save(tmp_path)
    Forest.from_trees([Tree("x")]).save(tmp_path)
    assert Forest.load(tmp_path) == Forest.from_trees([Tree("x")])


def test_parquet_of_many_row_groups(tmp_path: Path) -> None:
    forest = random_forest(2, 50, 20)
    forest.to_parquet(tmp_path / "whole.parquet")
    table = parquet.read_table(tmp_path / "whole.parquet")
    parquet.write_table(table, tmp_path / "parts.parquet", row_group_size=7)
    assert Forest.from_parquet(tmp_path / "parts.parquet") == forest


def test_files_that_hold_no_forest_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_text("label,arity\n")
    with pytest.raises(GraphError, match="is no Parquet file of a forest"):
        Forest.from_parquet(path)
    parquet.write_table(pyarrow.table({"label": ["x"]}), path)
    with pytest.raises(GraphError, match=r"holds no forest: it has the columns \['label'\]"):
        Forest.from_parquet(path)
    with pytest.raises(GraphError, match="holds no whole forest"):
        Forest.load(tmp_path / "absent")


def test_a_mapped_forest_can_be_saved_over_its_own_files(tmp_path: Path) -> None:
    forest = with_data(Forest.from_trees([Tree("x"), Tree("f", [Tree("Number", value=1.5)])]))
    forest.save(tmp_path)
    loaded = Forest.load(tmp_path)
    loaded.save(tmp_path)
    assert loaded == forest
    assert Forest.load(tmp_path) == forest
    loaded[1:].save(tmp_path)
    assert Forest.load(tmp_path) == forest[1:]
    assert loaded == forest


def test_a_write_that_fails_leaves_the_forest_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = with_data(random_forest(0, 3, 5))
    forest.save(tmp_path / "folder")
    forest.to_parquet(tmp_path / "forest.parquet")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    save = np.save

    def array_fails(stream: object, array: np.ndarray, **options: bool) -> None:
        if array.dtype == np.int64:
            raise OSError("no space left")
        save(stream, array, **options)

    def table_fails(table: pyarrow.Table, place: Path, **_: object) -> None:
        Path(place).write_bytes(b"PAR1")
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", array_fails)
    monkeypatch.setattr(parquet, "write_table", table_fails)
    other = Forest.from_trees([Tree("x")])
    for write, name in ((other.save, "folder"), (other.to_parquet, "forest.parquet")):
        with pytest.raises(RecipeError, match=r"cannot write .*: no space left"):
            write(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_forest_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(seed=1, num_trees=2, size=5)
    with monkeypatch.context() as patch:
        patch.setattr(forest_files, "_FORMAT", 2)
        forest.save(tmp_path / "folder")
        forest.to_parquet(tmp_path / "file.parquet")
    for load, name in ((Forest.load, "folder"), (Forest.from_parquet, "file.parquet")):
        with pytest.raises(GraphError, match=f"{name} holds a forest in format 2; this version reads format 1"):
            load(tmp_path / name)


def test_what_was_added_to_the_files_of_a_forest_is_named(tmp_path: Path) -> None:
    forest = random_forest(seed=1, num_trees=2, size=5)
    forest.to_parquet(tmp_path / "file.parquet")
    table = parquet.read_table(tmp_path / "file.parquet")
    parquet.write_table(table.append_column("tree.extra", pyarrow.array([1, 2])), tmp_path / "file.parquet")
    with pytest.raises(GraphError, match=r"the columns \['tree.extra'\] are none"):
        Forest.from_parquet(tmp_path / "file.parquet")
    forest.save(tmp_path / "folder")
    path = tmp_path / "folder" / "forest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "node_data": []}))
    with pytest.raises(GraphError, match="holds no whole forest"):
        Forest.load(tmp_path / "folder")
