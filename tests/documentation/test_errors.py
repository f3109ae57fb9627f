"""The page of errors quotes what the library says."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import networkx
import pytest
import torch
from documentation.page_blocks import DOCS
from toy_task import MoreX, toy_data

import treemem
from treemem import Forest, Tree, TreeBatch, TreePredictor, Vocabulary, dgl_import, native, predict_file
from treemem.explore import explore
from treemem.model import Model
from treemem.native import compile_mode
from treemem.networks import NetworkConfig
from treemem.nn import ONLSTM, EqualityHead, TreeLSTM, TreeNetwork
from treemem.records import read_records
from treemem.runs import TrainingOptions, fit, load_recipe
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.trees import parse_brackets, parse_equation
from treemem.trees.formats.text_forms import TextReader

VOCABULARY = Vocabulary(["x", "y"], [("Add", 2)])
WORDS = Vocabulary(["the", "cat", "sat"], [("S", 2), ("NP", 2)])


class Bad(torch.nn.Module):
    """A cell that takes the first node for the first child."""

    def leaf(self, x: torch.Tensor, kind: int) -> dict[str, torch.Tensor]:
        return {"h": x}

    def forward(self, children: dict[str, torch.Tensor], x: None, kind: int) -> dict[str, torch.Tensor]:
        return {"h": children["h"][0]}


def message(act: Callable[[], object]) -> str:
    with pytest.raises(treemem.TreememError) as caught:
        act()
    return str(caught.value)


def of_texts() -> Iterator[str]:
    for text in ("x + = y", "2x = x + x", "sinn(x) = y"):
        yield message(lambda text=text: parse_equation(text))  # type: ignore[misc]
    yield message(lambda: parse_brackets("(S (NP the cat) (VP sat)"))
    yield message(lambda: parse_brackets('["f","x"]'))
    yield message(lambda: Forest.from_trees(["( - ( -4 6 ) )"]))
    letters = TextReader("brackets", "Number")
    yield message(lambda: letters.check_column(Forest.from_trees([letters.parse("(f x y)")])))
    yield message(lambda: treemem.load_pretrained().predict("x = x"))


def of_labels_graphs_and_layers() -> Iterator[str]:
    yield message(lambda: TreeBatch.from_trees([parse_brackets("(S (NP the cats) sat)")], WORDS))
    yield message(lambda: TreeBatch.from_trees([parse_brackets("(Add x y x)")], VOCABULARY))
    sums = TreeBatch.from_trees([parse_brackets("(Add x y)")], VOCABULARY, share_subtrees=False)
    yield message(lambda: TreeLSTM(4, WORDS)(sums))

    graph = networkx.DiGraph([(0, 1), (0, 2)])
    networkx.set_node_attributes(graph, "x", "label")
    yield message(lambda: Tree.from_networkx(graph))
    cycle = networkx.DiGraph([(0, 1), (1, 0)])
    networkx.set_node_attributes(cycle, "x", "label")
    yield message(lambda: Tree.from_networkx(cycle))
    layer = TreeLSTM(4, input_size=3, arities=[2])
    ternary = Vocabulary(["x", "y"], [("Add", 3)])
    wide = TreeBatch.from_trees([parse_brackets("(Add x y x)")], ternary, share_subtrees=False)
    yield message(lambda: layer(wide, torch.zeros(4, 3)))
    yield message(lambda: layer(sums))
    yield message(lambda: layer(sums, torch.zeros(3, 4)))
    shared = TreeBatch.from_trees([parse_brackets("(Add x x)")], VOCABULARY)
    yield message(lambda: layer(shared, torch.zeros(3, 3)))
    yield message(lambda: EqualityHead()(torch.zeros(3, 1, 4)))

    yield message(lambda: TreeLSTM(4))
    yield message(lambda: ONLSTM(16, VOCABULARY, chunk_size=5))
    yield message(lambda: TreeNetwork(Bad(), vocabulary=VOCABULARY, embedding_size=4)(sums))


def of_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield message(lambda: load_recipe("equation_verification/small", ["training.epohcs=3"]))
    yield message(lambda: load_recipe("equation_verification/smal"))
    task, network = MoreX(), NetworkConfig("TreeLSTM", {"hidden_size": 4})
    data, options = toy_data(), TrainingOptions(epochs=1, batch_size=8)
    fit(task, network, data, options, output="runs/mine")
    yield message(lambda: fit(task, network, data, options, output="runs/mine"))
    other = network.replace(hidden_size=5)
    yield message(lambda: fit(task, other, data, options, output="runs/mine", resume=True))
    longer = dataclasses.replace(options, epochs=2)
    fit(task, network, data, longer, output="runs/mine", resume=True)
    yield message(lambda: fit(task, network, data, options, output="runs/mine", resume=True))
    steep = dataclasses.replace(options, learning_rate=1e30)
    yield message(lambda: fit(task, network, data, steep, output="runs/steep"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_cuda = dataclasses.replace(options, accelerator="cuda")
    yield message(lambda: fit(task, network, data, on_cuda, output="runs/cuda"))
    table = [{"tree": "x", "class": "pos", "importance": 1}, {"tree": "y", "class": "neg", "importance": -1}]
    columns = {"tree": "tree", "target": "class"}
    weighted = task_from_table(table, **columns, weight="importance")
    yield message(lambda: weighted.make_data(TableDataOptions()))
    yield message(lambda: task_from_table(table, **columns, class_weight={"positive": 2}))
    yield from of_tables()
    yield message(lambda: treemem.load("runs/other"))
    shutil.copytree(max(Path("runs/mine/checkpoints").iterdir()), "torn")
    weights = Path("torn/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    yield message(lambda: treemem.load("torn"))


def of_tables() -> Iterator[str]:
    counted = [{"tree": f"(f x{row})", "y": row % 21} for row in range(40)]
    yield message(lambda: task_from_table(counted, tree="tree", target="y"))
    equal = [{"tree": "x", "y": "ab"[row % 2], "person": "p3"} for row in range(10)]
    task = task_from_table(equal, tree="tree", target="y", group_column="person")
    yield message(lambda: task.make_data(TableDataOptions()))
    told = [{**row, "split": ("train", "test")[place % 2]} for place, row in enumerate(equal)]
    task = task_from_table(told, tree="tree", target="y", group_column="person")
    yield message(lambda: task.make_data(TableDataOptions(stratified=True)))
    yield message(lambda: task.make_data(TableDataOptions()))
    task = task_from_table(
        [{**row, "split": ("train", "validation")[place % 2]} for place, row in enumerate(equal)],
        tree="tree", target="y",
    )  # fmt: skip
    network = NetworkConfig("TreeLSTM", {"hidden_size": 4})

    def trained(monitor: str) -> None:
        data, options = task.make_data(TableDataOptions()), TrainingOptions(epochs=1, monitor=monitor)
        fit(task, network, data, options, output="runs/of_tables")

    yield message(lambda: trained("balanced"))
    yield message(lambda: trained("auc"))
    numbers = task_from_table([{"tree": "x", "y": 0.5}], tree="tree", target="y")
    yield message(lambda: TreePredictor(Model(numbers, network), threshold=0.2))


def of_files() -> Iterator[str]:
    Path("records.jsonl").write_text('{"equation": "x = x"}\n{"equation": "x ')
    yield message(lambda: list(read_records("records.jsonl")))
    Path("records.jsonl").write_text('{"equation": "x = x"}\n')
    records = read_records("records.jsonl")
    next(records)
    Path("records.jsonl").write_text('{"equation": "x = x"}\n' * 2)
    yield message(lambda: list(records))
    predictor = TreePredictor("equation_verification")
    Path("own.txt").write_text("x = x\n")
    predict_file(predictor, "own.txt", "answers.jsonl")
    yield message(lambda: predict_file(predictor, "own.txt", "answers.jsonl"))
    Path("b.txt").write_text("x = x\nx = x\nx +\n")
    message(lambda: predict_file(predictor, "b.txt", "b.jsonl", strict=True))
    yield message(lambda: predict_file(predictor, "b.txt", "b.jsonl"))
    Path("b.txt").write_text("x = y\n")
    yield message(lambda: predict_file(predictor, "b.txt", "b.jsonl", resume=True))
    explore("equation_verification", ["x = x"], "page.html")
    yield message(lambda: explore("equation_verification", ["x = x"], "page.html"))


def of_dgl(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    imports: list[object] = []

    def import_module(name: str) -> object:
        found = imports.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    python = SimpleNamespace(modules={}, version_info=SimpleNamespace(major=3, minor=13))
    monkeypatch.setattr(dgl_import, "sys", python)
    monkeypatch.setattr(dgl_import, "importlib", SimpleNamespace(import_module=import_module))
    imports[:] = [ModuleNotFoundError("No module named 'dgl'", name="dgl")]
    yield message(dgl_import.import_dgl)
    imports[:] = [ImportError("Cannot find DGL C++ graphbolt library"), SimpleNamespace(__version__="2.1.0")]
    with pytest.warns(UserWarning, match="without dgl.graphbolt") as caught:
        dgl_import.import_dgl()
    yield str(caught[0].message)


def of_cpp(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield message(lambda: native._raise_error(b"out of memory", None, ()))
    monkeypatch.setattr(native, "_warned", False)
    monkeypatch.setattr(compile_mode, "_broken", False)
    monkeypatch.setattr(compile_mode, "compiler", list)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.warns(RuntimeWarning) as caught:
        compile_mode._has_compiler()
    yield str(caught[0].message)
    with pytest.warns(RuntimeWarning) as caught:
        native._warn_of_another_folder("other users can write /shared", Path("/tmp/treemem-1000"))
    yield str(caught[0].message)


def test_the_page_quotes_what_the_library_says_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = [*of_texts(), *of_labels_graphs_and_layers(), *of_training(monkeypatch), *of_files()]
    said += [*of_dgl(monkeypatch), *of_cpp(monkeypatch)]
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^```text\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)
    assert sorted(quoted) == sorted(said)
