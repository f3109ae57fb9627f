from __future__ import annotations

import dataclasses
import io
import pickle
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from checkpoint.saved_models import Touch, contents, files_of, has_weights_of, new_model, replace_file
from torch import nn
from toy_task import KindSum, MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.checkpoint.files import write_checkpoint
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.trees import parameter_sets
from treemem.runs import TrainingOptions, fit
from treemem.runs.recipe import recipe_names
from treemem.task import TASKS
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.trees.vocabulary import Vocabulary

MODEL_FILES = ["config.yaml", "vocabulary.json", "model.safetensors"]
FILES = [*MODEL_FILES, "metrics.jsonl", "training_state.pt"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "model", files_of(new_model(), {"step": 3}, [{"epoch": 1, "loss": 0.5}]))
    return tmp_path / "model"


def training_state(folder: Path) -> tuple[Any, ...]:
    return checkpoint.training_state_of(checkpoint.verified_files(folder), folder)


def reader_of(name: str) -> Callable[[Path], Any]:
    return training_state if name == "training_state.pt" else treemem.load


def with_config(path: Path, change: Callable[[dict], object]) -> None:
    config = yaml.safe_load((path / "config.yaml").read_text())
    change(config)
    replace_file(path, "config.yaml", yaml.safe_dump(config).encode())


def test_a_loaded_model_predicts_what_the_saved_one_did(saved: Path) -> None:
    model, data = new_model(), toy_data(50)
    loaded = treemem.load(saved)
    assert not loaded.training
    assert (loaded.task, loaded.vocabulary) == (model.task, model.vocabulary)
    for examples in (data, ["(f x y)"]):
        np.testing.assert_array_equal(loaded.predict(examples), model.predict(examples))


def test_training_state_and_records_come_back(saved: Path, tmp_path: Path) -> None:
    state, weights, records = training_state(saved)
    assert (state, records) == ({"step": 3}, [{"epoch": 1, "loss": 0.5}])
    assert all(torch.equal(weights[name], tensor) for name, tensor in new_model().state_dict().items())
    checkpoint.save(tmp_path / "other", new_model())
    with pytest.raises(CheckpointError, match="holds a model only"):
        training_state(tmp_path / "other")


@pytest.mark.parametrize(("former", "present"), [("fused", "auto"), ("recursive", "autograd")])
def test_a_checkpoint_that_names_a_former_engine_is_loaded(former: str, present: str, tmp_path: Path) -> None:
    model = Model(MoreX(), NetworkConfig("TreeLSTM", {"hidden_size": 4, "engine": former}))
    checkpoint.save(tmp_path / "model", model)
    loaded = treemem.load(tmp_path / "model")
    assert loaded.encoder.engine == loaded.encoder.options["engine"] == present
    np.testing.assert_array_equal(loaded.predict(["(f x y)"]), model.predict(["(f x y)"]))


def test_a_model_remembers_which_labels_training_did_not_have(tmp_path: Path) -> None:
    model = new_model()
    model.unseen = ("a", "b")
    checkpoint.save(tmp_path / "saved", model)
    assert treemem.load(tmp_path / "saved").unseen == ("a", "b")


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize(
    ("of_encoder", "of_head", "loaded"),
    [
        *((half, half, torch.float32) for half in HALVES),
        (torch.float16, torch.bfloat16, torch.float32),
        *((half, torch.float64, torch.float64) for half in HALVES),
        (torch.float64, torch.float32, torch.float64),
        (torch.float64, torch.float64, torch.float64),
    ],
)
def test_weights_of_every_precision_are_loaded_exactly_and_predict(
    saved: Path, of_encoder: torch.dtype, of_head: torch.dtype, loaded: torch.dtype
) -> None:
    model, data = new_model(), toy_data(20)
    weights = {
        name: weight.to(of_head if name.startswith("head") else of_encoder)
        for name, weight in model.double().state_dict().items()
    }
    replace_file(saved, "model.safetensors", safetensors.torch.save(weights))
    found = treemem.load(saved)
    assert {parameter.dtype for parameter in found.parameters()} == {loaded}
    assert all(torch.equal(weight, weights[name].to(loaded)) for name, weight in found.state_dict().items())
    model.to(loaded).load_state_dict(weights)
    np.testing.assert_array_equal(found.predict(data), model.predict(data))


@pytest.mark.parametrize("precision", [torch.int64, torch.float8_e4m3fn])
def test_weights_that_are_no_floating_point_numbers_are_refused(saved: Path, precision: torch.dtype) -> None:
    weights = {name: tensor.to(precision) for name, tensor in new_model().state_dict().items()}
    replace_file(saved, "model.safetensors", safetensors.torch.save(weights))
    with pytest.raises(CheckpointError, match=rf"encoder\.leaves\.weight is of {precision}"):
        treemem.load(saved)


def test_a_packaged_model_is_found_by_name_after_a_folder_of_that_name_and_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in checkpoint.pretrained_names():
        copy = shutil.copytree(str(checkpoint.pretrained_folder(name)), tmp_path / "copies" / name)
        packaged, equations = treemem.load(name), ["x + y = y + x", "sin(x) = 2"]
        assert next(packaged.parameters()).dtype == torch.float32
        np.testing.assert_array_equal(treemem.load(copy).predict(equations), packaged.predict(equations))
        checkpoint.save(name, new_model())
        assert treemem.load(name).task.name == "more_x"


def test_a_task_of_an_interactive_session_needs_no_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interactive = type("Interactive", (MoreX,), {"__module__": "__main__", "name": "interactive"})
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(TASKS, "_registered", {**TASKS._registered, "interactive": interactive})
    assert "interactive" not in checkpoint.pretrained_names()
    assert "listops/small" in recipe_names()
    assert treemem.load(saved).task.name == "more_x"
    with pytest.raises(CheckpointError, match="no trained model 'interactive'"):
        checkpoint.load_pretrained("interactive")


def test_loading_reads_each_file_of_the_model_once_and_the_training_state_never(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or read_bytes(path))
    (saved / "training_state.pt").write_bytes(b"torn")
    treemem.load(saved)
    assert sorted(opened) == sorted({*FILES, "manifest.json"} - {"training_state.pt"})


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_link_to_a_device_is_not_read(saved: Path, name: str) -> None:  # /dev/zero would fill the memory
    (saved / name).unlink()
    (saved / name).symlink_to("/dev/null")
    with pytest.raises(CheckpointError, match=rf"{name} .*it is no regular file|it has no manifest"):
        reader_of(name)(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_altered_or_missing_is_named(saved: Path, name: str) -> None:
    content = (saved / name).read_bytes()
    flipped = [bytearray(content) for _ in range(3)]
    for damaged, position in zip(flipped, (0, len(content) // 2, len(content) - 1), strict=True):
        damaged[position] ^= 1
    for damaged in (content[:-1], content + b" ", b"", *flipped):
        (saved / name).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{name} is (cut off or )?altered"):
            reader_of(name)(saved)
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read: No such file"):
        reader_of(name)(saved)


MALFORMED = [b"", b"\xff", b"3", b"[1]", b"{", b"!!int ''", b"[" * 50_000, b'{"config.yaml": 3}', b"-1", b"NaN"]
MALFORMED += [b"null", b'"2"']
FITS = [("metrics.jsonl", b""), ("temperature.json", b"3"), ("metrics.jsonl", b'{"config.yaml": 3}')]


@pytest.mark.parametrize("name", [*FILES, "manifest.json", "temperature.json"])
def test_a_file_of_another_form_is_refused_though_the_manifest_vouches_for_it(saved: Path, name: str) -> None:
    for content in MALFORMED:
        replace_file(saved, name, content)
        read = training_state if name == "metrics.jsonl" else reader_of(name)
        if (name, content) in FITS:
            read(saved)
            continue
        named = {
            "manifest.json": r"manifest\.json is missing or damaged|does not list",
            "temperature.json": "temperature",
        }
        with pytest.raises(CheckpointError, match="model" if name in MODEL_FILES else named.get(name, name)) as caught:
            read(saved)
        assert len(str(caught.value)) < 1000


def test_nothing_in_a_checkpoint_is_executed(saved: Path, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"step": Touch(tmp_path / "made")}, buffer)
    for name, content, problem in (
        ("config.yaml", f"!!python/object/apply:pathlib.Path.touch [{tmp_path / 'made'}]".encode(), "describe a model"),
        ("training_state.pt", buffer.getvalue(), r"training_state\.pt is no training state"),
        ("model.safetensors", buffer.getvalue(), r"model\.safetensors is no safetensors file"),
    ):
        before = (saved / name).read_bytes()
        replace_file(saved, name, content)
        with pytest.raises(CheckpointError, match=problem):
            reader_of(name)(saved)
        replace_file(saved, name, before)
    assert not (tmp_path / "made").exists()


def test_a_training_state_that_is_no_plain_data_is_refused_without_advice_to_load_it_unsafely(saved: Path) -> None:
    for state in ([1], {"step": print}, {"step": NetworkConfig}):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        for content in (buffer.getvalue(), buffer.getvalue()[:-50], pickle.dumps(state)):
            replace_file(saved, "training_state.pt", content)
            with pytest.raises(CheckpointError, match=r"training_state\.pt is no training state: it ") as caught:
                training_state(saved)
            assert "weights_only" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda config: config["network"].update(name="KindSun"), "'KindSun'; did you mean KindSum"),
        (lambda config: config["network"].update(name="os:system"), "no network 'os:system'"),
        (lambda config: config["network"]["options"].update(hiden=3), "'hiden'"),
        (lambda config: config["network"]["options"].update(hidden_size=5), "does not fit the network"),
        (lambda config: config["network"]["options"].update(hidden_size=-1), "does not describe a model"),
        (lambda config: config["task"].update(name="moore_x"), "'moore_x'; did you mean more_x"),
        (lambda config: config["task"]["options"].update(kind=3), "does not describe a model"),
        (lambda config: config.pop("network"), "no 'network'"),
    ],
)
def test_a_foreign_configuration_is_refused(saved: Path, change: Callable[[dict], object], named: str) -> None:
    with_config(saved, change)
    with pytest.raises(CheckpointError, match=named):
        treemem.load(saved)


MANY = 100_000_000


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("LSTM", {"num_layers": MANY}),
        ("ONLSTM", {"num_layers": MANY, "chunk_size": 4}),
        ("MemoryRNN", {"memory": "stack", "memory_size": MANY}),
        ("PRPN", {"residual_blocks": MANY}),
        ("Transformer", {"num_layers": MANY, "num_heads": 2}),
        ("TreeLSTM", {"hidden_size": MANY}),
        ("TreeLSTM", {"max_arity": 10**6}),
    ],
)
def test_a_small_configuration_of_a_huge_network_is_refused_at_once(
    saved: Path, network: str, options: dict[str, Any]
) -> None:
    """Made as it is described, each would take minutes or all memory."""
    described = {"name": network, "options": {"hidden_size": 4, **options}}
    with_config(saved, lambda config: config.update(network=described))
    if "max_arity" in options:
        Vocabulary(["x", "y"], [("f", 10**6)]).save(saved / "vocabulary.json")
        replace_file(saved, "vocabulary.json", (saved / "vocabulary.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"much larger than the saved|at most 10000|does not fit the network"):
        treemem.load(saved)


def test_own_classes_are_given_to_load_and_tied_weights_stay_tied(tmp_path: Path) -> None:
    class Tied(KindSum):
        def __init__(self, hidden_size: int, vocabulary: Vocabulary) -> None:
            super().__init__(hidden_size, vocabulary)
            self.again = nn.Linear(hidden_size, vocabulary.num_leaves, bias=False)
            self.again.weight = self.leaves.weight

    model = Model(MoreX(), NetworkConfig("Tied", {"hidden_size": 4}), networks={"Tied": Tied})
    checkpoint.save(tmp_path / "model", model)
    with pytest.raises(CheckpointError, match="no network 'Tied'"):
        treemem.load(tmp_path / "model")
    loaded = treemem.load(tmp_path / "model", networks={"Tied": Tied}).encoder
    assert isinstance(loaded, Tied)
    assert loaded.again.weight is loaded.leaves.weight
    assert torch.equal(loaded.leaves.weight, model.encoder.leaves.weight)


def test_an_option_that_is_not_plain_data_is_named() -> None:
    model = Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": np.int64(4)}))
    with pytest.raises(RecipeError, match=r"hidden_size of KindSum is .*numpy\.int64"):
        checkpoint.check_options(model)


def test_what_cannot_be_loaded_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (saved / "manifest.json").write_text("{}")
    for place, options, named in (
        ("equation_verification", {"device": "cuda"}, 'device is "cuda" and this machine has no CUDA device'),
        ("equation_verification", {"device": "gpu"}, 'device is "gpu" and '),
        (saved.parent / "nowhere", {}, r"there is no checkpoint .*nowhere"),
        (saved.parent, {}, r"it has no manifest\.json"),
        (saved, {}, r"does not list config\.yaml"),
        ("equation_verificaton", {}, "equation_verificaton; did you mean equation_verification"),
        ("runs/x", {}, "runs/x; by name there are equation_verification"),
        ("listops", {}, "there is no checkpoint listops; by name"),
    ):
        with pytest.raises(CheckpointError, match=named):
            treemem.load(place, **options)


def test_a_temperature_is_written_beside_a_checkpoint_and_leaves_all_else(saved: Path) -> None:
    before = contents(saved)
    for temperature in (2.0, 3.0):
        checkpoint.set_temperature(saved, temperature)
        assert treemem.load(saved).temperature == temperature
    assert {path: content for path, content in contents(saved).items() if path.name != "temperature.json"} == before
    (saved / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="cut off"):
        checkpoint.set_temperature(saved, 2.0)


def test_a_checkpoint_is_replaced_only_if_asked_and_nothing_else_ever_is(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="model is there already; choose another folder, or replace it"):
        checkpoint.save(saved, new_model(1))
    assert has_weights_of(saved, 0)
    checkpoint.save(saved, new_model(1), overwrite=True)
    assert has_weights_of(saved, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    for name, file in (("notes", "notes.txt"), ("web", "manifest.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text('{"name": "my page", "icons": []}')
    RunFolder(tmp_path / "run").save(files_of(new_model(), {}), best=True)
    (tmp_path / "file").write_text("mine")
    before = contents(tmp_path)
    for name in ("notes", "run", "file", "web"):
        for overwrite in (False, True):
            with pytest.raises(CheckpointError, match=rf"{name} is there already; move it away"):
                checkpoint.save(tmp_path / name, new_model(), overwrite=overwrite)
    assert contents(tmp_path) == before


def test_other_files_stay_beside_a_checkpoint_that_is_saved_over(saved: Path) -> None:
    (saved / "README.md").write_text("my card")
    checkpoint.set_temperature(saved, 2.0)
    checkpoint.save(saved, new_model(1), overwrite=True)
    assert has_weights_of(saved, 1)
    assert (saved / "README.md").read_text() == "my card"
    assert treemem.load(saved).temperature == 1.0, "that was the temperature of the other model"


def test_a_full_disk_leaves_the_checkpoint_and_the_run_as_they_were(
    saved: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = RunFolder(tmp_path / "run")
    run.save(files_of(new_model(), {}), best=True)
    before = contents(tmp_path)
    request.getfixturevalue("full_disk")
    with pytest.raises(CheckpointError, match=r"cannot write .*model.*: No space left on device; free some space"):
        checkpoint.save(saved, new_model(1), overwrite=True)
    with pytest.raises(CheckpointError, match=r"cannot write .*000002: No space left on device; free some space"):
        run.save(files_of(new_model(1), {}), best=True)
    assert contents(tmp_path) == before


def test_networks_that_did_not_read_the_labels_of_inner_nodes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"tree": f"({name} x)", "target": name} for name in ("sin", "cos") * 4]
    task = task_from_table(rows, tree="tree", target="target")
    network, options = NetworkConfig("ChildSumTreeLSTM", {"hidden_size": 3}), TrainingOptions(epochs=1, threads=1)
    data = task.make_data(TableDataOptions(validation=0.25, test=0.25))
    with monkeypatch.context() as earlier:
        earlier.setattr(parameter_sets, "_share_labels", lambda *_: False)
        fit(task, network, data, options, output=tmp_path / "run")
    problem = "cannot tell inner nodes with different labels apart if they share parameters; train it again"
    with pytest.raises(CheckpointError, match=problem):
        treemem.load(tmp_path / "run")
    with pytest.raises(CheckpointError, match=problem):
        fit(task, network, data, dataclasses.replace(options, epochs=2), output=tmp_path / "run", resume=True)
