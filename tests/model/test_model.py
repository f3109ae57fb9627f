from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import KindSum, MoreX, toy_data

import treemem
from treemem.data.examples import label_numbers, split_numbers
from treemem.data.loader import BatchOptions
from treemem.errors import CellError, CheckpointError, GraphError, ParseError, RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NETWORKS, NetworkConfig
from treemem.nn import RowCache
from treemem.registry import Registry
from treemem.runs.recipe import load_recipe
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.task import TASKS
from treemem.tasks.table import task_from_table
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.parser import parse_expression
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree


def toy_model() -> Model:
    torch.manual_seed(0)
    return Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": 4}))


def test_a_folder_registers_itself_and_is_imported_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "things/__init__.py": "",
        "things/wing/__init__.py": "",
        "things/wing/first/__init__.py": "THINGS = {'First': 'layer:First'}",
        "things/wing/first/layer.py": "class First: pass",
        "things/wing/second/__init__.py": "THINGS = {'Second': 'missing:Second'}",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[type] = Registry("thing", "things", "THINGS")
    assert registry.names() == ["First", "Second"]
    assert registry.find("First").__module__ == "things.wing.first.layer"
    with pytest.raises(ModuleNotFoundError):
        registry.find("Second")
    with pytest.raises(RecipeError, match="there is a thing 'First' already"):
        registry.register("First", dict)
    for target in (5, None, "no place", ["a:b"]):
        with pytest.raises(RecipeError, match="'Third' cannot stand for"):
            registry.register("Third", target)  # type: ignore[arg-type]
    registry.register("Third", dict)
    assert registry.find("Third") is dict
    registry.register("Fourth", type("Fourth", (), {}))  # as in a notebook
    assert registry.registered().keys() == {"Third", "Fourth"}
    assert registry.importable() == {"Third": dict}
    mine = type("Mine", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Mine", mine, raising=False)
    registry.register("Mine", mine)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    assert registry.importable() == {"Third": dict, "Mine": mine}
    monkeypatch.delattr(sys.modules["__main__"], "__file__")  # as in a notebook
    assert registry.importable() == {"Third": dict}


def test_an_unknown_name_lists_the_near_ones_or_all() -> None:
    with pytest.raises(RecipeError, match="no task 'equation_verificaton'; did you mean equation_verification"):
        TASKS.find("equation_verificaton")
    with pytest.raises(RecipeError, match=r"no network 'zzz'\. If it is your own, import .*; there are .*TreeLSTM"):
        NETWORKS.find("zzz")


def test_installed_packages_add_names_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("theirs", "toy_task:MoreX", "treemem.tasks")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "treemem.tasks" else [])
    assert "theirs" in TASKS.names()
    assert TASKS.find("theirs") is MoreX


def test_a_package_that_cannot_be_imported_is_named_and_stands_in_no_others_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    point = importlib.metadata.EntryPoint("theirs", "no_such_module:Theirs", "treemem.tasks")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "treemem.tasks" else [])
    problem = "the task 'theirs' cannot be imported from no_such_module:Theirs: ModuleNotFoundError: No module named"
    with pytest.raises(RecipeError, match=problem):
        TASKS.find("theirs")
    with pytest.raises(CheckpointError, match="no checkpoint nowhere; by name there are equation_verification"):
        treemem.load("nowhere")
    assert problem in caplog.text
    with pytest.raises(RecipeError, match="did you mean equation_verification/small"):
        load_recipe("equation_verification/smal")


def test_a_network_option_that_does_not_exist_is_named() -> None:
    vocabulary = MoreX().vocabulary
    with pytest.raises(RecipeError, match="KindSum has no option 'hidden_sise'; did you mean hidden_size"):
        NetworkConfig("KindSum", {"hidden_sise": 3}).build(vocabulary)
    with pytest.raises(RecipeError, match="KindSum cannot be made with"):
        NetworkConfig("KindSum", {}).build(vocabulary)
    assert isinstance(NetworkConfig("KindSum", {"hidden_size": 3}).build(vocabulary), KindSum)


def test_a_network_of_ones_own_needs_a_hidden_size() -> None:
    def make(vocabulary: object) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    with pytest.raises(RecipeError, match=r"Linear has no attribute hidden_size.*set self.hidden_size"):
        Model(MoreX(), NetworkConfig("Own", {}), networks={"Own": make})


def test_parts_are_the_examples_of_a_split() -> None:
    examples = MoreX().examples(toy_data(20))
    parts = [examples.part(split).tolist() for split in ("train", "validation", "test")]
    assert sorted(number for part in parts for number in part) == examples.part(None).tolist() == list(range(20))
    assert parts[2] == [0, 5, 10, 15]
    with pytest.raises(RecipeError, match=r"no split 'tset'; there are .*; did you mean test"):
        examples.part("tset")
    with pytest.raises(RecipeError, match="not divided"):
        MoreX().examples(toy_data(20, divided=False)).part("train")


def test_targets_of_unlabelled_examples_are_refused() -> None:
    examples = MoreX().examples(Forest.from_trees([Tree("x"), Tree("y")], tree_data={"label": [1, -1]}))
    assert examples.targets_of(np.array([0]))["label"].tolist() == [1]
    with pytest.raises(RecipeError, match=r"example 2 of \d+ has no label"):
        examples.targets_of(np.array([0, 1]))


@pytest.mark.parametrize(
    "label", [np.array([2, 0, -1]), np.array([2, 0, 1], np.uint8), np.array([2, -1, 0], np.int8), np.array([True] * 3)]
)
def test_labels_are_numbers_of_classes_or_unknown(label: np.ndarray) -> None:
    found = label_numbers(label, 3, 3, "one of three")
    assert found.dtype == np.int64
    assert found.tolist() == label.tolist()
    found[:] = 0
    assert label[0] == label.tolist()[0] != 0, "the data are not written to"
    assert label_numbers(None, 3, 7, "anything").tolist() == [-1, -1, -1]
    assert label_numbers(label[:0], 0, 7, "anything").tolist() == []


@pytest.mark.parametrize(
    "label", [[0, 3], [-2, 0], [0.0, 1.0], ["0", "1"], [0, 1, 2], [[0, 1]], np.array([0, 3], np.uint8)]
)
def test_labels_that_mean_nothing_are_refused(label: Any) -> None:
    with pytest.raises(RecipeError, match=r'labels \(tree_data\["label"\]\) must be one of three, for each tree, not '):
        label_numbers(np.array(label), 2, 3, "one of three, for each tree")


@pytest.mark.parametrize("dtype", [None, object])
def test_splits_are_numbered_as_they_are_listed(dtype: type | None) -> None:
    names = ["test", "train", "validation", "train", "test"]
    found = split_numbers(np.array(names, dtype))
    assert found is not None
    assert found.dtype == np.int8
    assert [SPLITS[number] for number in found] == names
    assert split_numbers(None) is None
    assert split_numbers(np.array([], "<U10")).tolist() == []  # type: ignore[union-attr]


def test_a_split_that_there_is_not_is_named() -> None:
    with pytest.raises(RecipeError, match=r"holds 'tran'; it must be one of train, .*did you mean train"):
        split_numbers(np.array(["test", "tran"]))
    with pytest.raises(RecipeError, match="some examples say no split, and others do"):
        split_numbers(np.array(["test", ""]))


class InfixMoreX(MoreX):
    """The toy task, whose sequence networks read infix."""

    @property
    def token_form(self) -> TokenForm:
        return "infix"


def test_a_sequence_network_reads_tokens_as_the_task_says_unless_its_options_do() -> None:
    for task, form in ((MoreX(), "function"), (InfixMoreX(), "infix")):
        for network in ("LSTM", "RNN", "OrderedMemory"):
            assert Model(task, NetworkConfig(network, {"hidden_size": 4})).encoder.form == form
            own = NetworkConfig(network, {"hidden_size": 4, "form": "preorder"})
            assert Model(task, own).encoder.form == "preorder"
    assert NetworkConfig("LSTM", {"hidden_size": 4}).build(MoreX().vocabulary, form="leaves").form == "leaves"


def test_outputs_do_not_depend_on_the_batches_and_keep_their_order() -> None:
    model, examples = toy_model(), MoreX().examples(toy_data(30))
    whole = model.outputs(examples)
    assert whole.shape == (30,)
    torch.testing.assert_close(model.outputs(examples, batch_size=7), whole)
    chosen = np.array([5, 3, 20])
    torch.testing.assert_close(model.outputs(examples, chosen, batch_size=2), whole[chosen])


def test_outputs_leave_the_model_in_the_mode_that_it_was_in() -> None:
    model, examples = toy_model(), MoreX().examples(toy_data(3))
    for mode in (True, False):
        model.train(mode)
        model.outputs(examples)
        assert model.training is mode
    model.train()
    model.encoder.eval()  # as of a part that is frozen
    model.outputs(examples)
    assert (model.training, model.head.training, model.encoder.training) == (True, True, False)


def test_predict_reads_texts_and_forests_alike() -> None:
    model, texts = toy_model(), ["x", "(f x y)", "(g (f y y))"]
    data = Forest.from_trees([MoreX().parse(text) for text in texts])
    np.testing.assert_array_equal(model.predict(texts), model.predict(data))
    assert model.predict(texts).shape == (3,)
    assert ((model.predict(texts) > 0) & (model.predict(texts) < 1)).all()


def test_a_task_reads_records_by_its_parser_unless_it_says_more() -> None:
    reader, text = MoreX().reader, "(f x y)"
    assert reader.read(text) == reader.read({"text": text, "label": 1}) == reader.read(parse_brackets(text))
    assert MoreX().class_names is None


@pytest.mark.parametrize(
    ("target", "shape"),
    [("c", (0, 3)), ("p", (0, 2)), ("size", (0,)), (["size", "more"], (0, 2)), (["p", "q"], (0, 2)), ("nodes", None)],
    ids=str,
)
def test_no_example_gives_no_prediction_of_the_usual_shape(target: Any, shape: tuple[int, ...] | None) -> None:
    rows = [
        {
            "tree": "(f x)",
            "c": "abc"[place],
            "p": place % 2,
            "q": 1,
            "size": place + 0.5,
            "more": 1.5,
            "nodes": ["a", "b"],
        }
        for place in range(3)
    ]
    task = task_from_table(rows, tree="tree", target=target)
    model = Model(task, NetworkConfig("TreeRNN", {"hidden_size": 2}))
    some, none = model.predict(["(f x)"]), model.predict([])
    if shape is None:
        assert none == []
        assert isinstance(some, list)
    else:
        assert none.shape == shape == (0, *some.shape[1:])
        assert none.dtype == some.dtype
    assert len(model.predict(Forest.from_trees([]))) == 0


def test_no_example_of_yes_or_no_gives_one_number_each() -> None:
    assert toy_model().predict([]).shape == (0,)


def test_predict_names_the_text_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_model()
    for texts, error, named in (
        (["x", "y"], ParseError, "line 2, column 1: a lone y"),
        (["(f x z)"], VocabularyError, "unknown leaf 'z'"),
        *((wrong, GraphError, "a list of texts or trees; put a single one in brackets") for wrong in ("x", 3, None)),
        (Tree("x"), GraphError, "put a single one in brackets"),
        (["x", object()], GraphError, "example 2: object is no tree; give a Tree, a text"),
    ):
        with pytest.raises(error, match=named):
            model.predict(texts)
    monkeypatch.setattr(type(model.task), "parse", lambda self, text: parse_expression(text))
    with pytest.raises(ParseError, match=r"^line 1, line 2 of the text, column 1: unexpected name 'y'"):
        model.predict(["x\ny"])
    with pytest.raises(VocabularyError, match=r"^line 2, line 3 of the text, column 2: 'l' is variable number 11"):
        model.predict(["x", "a+b+c\n+d+f+g+h+i+j+k\n+l"])


def test_the_model_is_its_head_on_its_encoder() -> None:
    model = toy_model()
    batch = TreeBatch.from_trees([Tree("x"), Tree("y")], model.vocabulary)
    assert torch.equal(model(batch), model.head(model.encoder(batch)))


def test_outputs_with_rows_kept_across_batches_are_the_same() -> None:
    examples = MoreX().examples(toy_data(60))
    torch.manual_seed(0)
    model = Model(MoreX(), NetworkConfig("StackTreeLSTM", {"hidden_size": 3, "stack_size": 2})).double()
    cache = RowCache(model.encoder, examples.index(model.vocabulary))
    expected = model.outputs(examples, batch_size=7)
    for chosen in (None, np.array([5, 3, 20])):
        loader = model.loader(examples, chosen, BatchOptions(7))
        found = model.outputs_of(examples, loader, cache=cache)
        torch.testing.assert_close(found, expected if chosen is None else expected[chosen], rtol=0, atol=1e-12)
    assert cache.hits > 0
    other = RowCache(model.encoder, SubtreeIndex(examples.forest, model.vocabulary))
    with pytest.raises(RecipeError, match="the cache is one of another network"):
        model.outputs_of(examples, loader, cache=other)


@pytest.mark.parametrize("network", ["TreeLSTM", "LSTM"])
def test_examples_of_similar_size_are_scored_together(network: str) -> None:
    data = toy_data(30)
    model, examples = Model(MoreX(), NetworkConfig(network, {"hidden_size": 4})), MoreX().examples(data)
    sizes = np.array([tree.height for tree in data]) if network == "TreeLSTM" else np.diff(data.begin)
    chosen = np.array([29, 3, 17, 4, 11, 8, 20])
    batches = [batch.example_ids for batch in model.loader(examples, chosen, BatchOptions(3)).batches()]
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert sizes[np.concatenate(batches)].tolist() == sorted(sizes[chosen])
    assert len({*sizes[chosen]}) > 2
    model.eval()
    alone = torch.cat([model.outputs(examples, np.array([number])) for number in chosen])
    torch.testing.assert_close(model.outputs(examples, chosen, batch_size=3), alone)


def test_outputs_of_a_part_of_the_plan_come_in_its_order() -> None:
    model, examples = toy_model(), MoreX().examples(toy_data(30))
    loader = model.loader(examples, None, BatchOptions(7))
    whole, seen = model.outputs(examples), []
    plan = loader.plan()[2:0:-1]
    found = model.outputs_of(examples, loader, plan=plan, on_output=lambda batch, output: seen.append((batch, output)))
    torch.testing.assert_close(found, whole[np.concatenate(plan)])
    assert [batch.example_ids.tolist() for batch, _ in seen] == [places.tolist() for places in plan]
    torch.testing.assert_close(torch.cat([output.outputs for _, output in seen]), found)
    assert model.outputs_of(examples, loader, plan=[]).shape == (0,)
    with torch.no_grad():
        model.head.read.bias.fill_(float("nan"))
    assert model.outputs_of(examples, loader, allow_nan=True).isnan().all()
    with pytest.raises(CellError, match=r"output for example \d+ is not a number"):
        model.outputs_of(examples, loader)
