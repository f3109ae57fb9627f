from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pickle
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
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
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.trees.vocabulary import Vocabulary

FILES = ["config.yaml", "vocabulary.json", "model.safetensors", "metrics.jsonl", "training_state.pt"]


def new_model(seed: int = 0, hidden_size: int = 4) -> Model:
    torch.manual_seed(seed)
    return Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": hidden_size}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path, new_model(), {"step": 3}, [{"epoch": 1, "loss": 0.5}])
    return path


def files_of(model: Model, state: dict[str, Any], metrics: Iterable[dict[str, Any]] = ()) -> dict[str, bytes]:
    return {**checkpoint.files_of(model, metrics), **checkpoint.training_files_of(state)}


def write(path: Path, model: Model, state: dict[str, Any], metrics: Iterable[dict[str, Any]] = ()) -> None:
    """Write a checkpoint with a training state."""
    write_checkpoint(path, files_of(model, state, metrics))


def training_state(folder: Path) -> tuple[Any, ...]:
    return checkpoint.training_state_of(checkpoint.verified_files(folder), folder)


def has_weights_of(path: Path, seed: int) -> bool:
    return torch.equal(treemem.load(path).encoder.leaves.weight, new_model(seed).encoder.leaves.weight)


def with_config(path: Path, change: Callable[[dict], object]) -> None:
    """Rewrite the configuration and the manifest that vouches for it."""
    config = yaml.safe_load((path / "config.yaml").read_text())
    change(config)
    replace_file(path, "config.yaml", yaml.safe_dump(config).encode())


def replace_file(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_loaded_model_predicts_what_the_saved_one_did(saved: Path) -> None:
    model, data = new_model(), toy_data(50)
    loaded = treemem.load(saved)
    assert not loaded.training
    assert loaded.task == model.task
    assert loaded.vocabulary == model.vocabulary
    np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
    np.testing.assert_array_equal(loaded.predict(["(f x y)"]), model.predict(["(f x y)"]))


@pytest.mark.parametrize(("former", "present"), [("fused", "auto"), ("recursive", "autograd")])
def test_a_checkpoint_that_names_a_former_engine_is_loaded(former: str, present: str, tmp_path: Path) -> None:
    model = Model(MoreX(), NetworkConfig("TreeLSTM", {"hidden_size": 4, "engine": former}))
    write(tmp_path / "model", model, {})
    loaded = treemem.load(tmp_path / "model")
    assert loaded.encoder.engine == loaded.encoder.options["engine"] == present
    np.testing.assert_array_equal(loaded.predict(["(f x y)"]), model.predict(["(f x y)"]))


def test_a_model_remembers_which_labels_training_did_not_have(tmp_path: Path) -> None:
    model = new_model()
    model.unseen = ("a", "b")
    checkpoint.save(tmp_path / "saved", model)
    assert treemem.load(tmp_path / "saved").unseen == ("a", "b")


def test_the_precision_of_the_weights_is_kept(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "model", new_model().double())
    assert {parameter.dtype for parameter in treemem.load(tmp_path / "model").parameters()} == {torch.float64}


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize(
    ("of_encoder", "of_head", "loaded"),
    [
        *((half, half, torch.float32) for half in HALVES),
        (torch.float16, torch.bfloat16, torch.float32),
        *((half, torch.float64, torch.float64) for half in HALVES),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_half_precision_and_mixed_weights_are_loaded_exactly_and_predict(
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


def test_a_copy_of_a_packaged_model_predicts_as_it_does_by_its_name(tmp_path: Path) -> None:
    for name in checkpoint.pretrained_names():
        folder = checkpoint.pretrained_folder(name)
        assert folder is not None
        copy = shutil.copytree(folder, tmp_path / "copies" / name)
        equations = ["x + y = y + x", "sin(x) = 2"]
        np.testing.assert_array_equal(treemem.load(copy).predict(equations), treemem.load(name).predict(equations))


def test_training_state_and_records_come_back(saved: Path) -> None:
    state, weights, records = training_state(saved)
    assert state == {"step": 3}
    assert records == [{"epoch": 1, "loss": 0.5}]
    assert all(torch.equal(weights[name], tensor) for name, tensor in new_model().state_dict().items())


def test_a_checkpoint_without_training_state_says_so(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "model", new_model())
    with pytest.raises(CheckpointError, match="holds a model only"):
        training_state(tmp_path / "model")


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_link_to_a_device_is_not_read(saved: Path, name: str) -> None:  # /dev/zero would fill the memory
    (saved / name).unlink()
    (saved / name).symlink_to("/dev/null")
    with pytest.raises(CheckpointError, match=rf"{name} .*it is no regular file|it has no manifest"):
        (training_state if name == "training_state.pt" else treemem.load)(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_altered_or_missing_is_named(saved: Path, name: str) -> None:
    load = training_state if name == "training_state.pt" else treemem.load
    content = (saved / name).read_bytes()
    for damaged in (content[:-1], content + b" ", b""):
        (saved / name).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{name} is cut off or altered"):
            load(saved)
    for position in (0, len(content) // 2, len(content) - 1):
        flipped = bytearray(content)
        flipped[position] ^= 1
        (saved / name).write_bytes(flipped)
        with pytest.raises(CheckpointError, match=rf"{name} is altered"):
            load(saved)
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read: No such file"):
        load(saved)


def test_loading_reads_each_file_of_the_model_once_and_the_training_state_never(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or read_bytes(path))
    (saved / "training_state.pt").write_bytes(b"torn")
    treemem.load(saved)
    assert sorted(opened) == sorted({*FILES, "manifest.json"} - {"training_state.pt"})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"config.yaml": 3}', b"\xff", b"[" * 100_000])
def test_a_damaged_manifest_is_named(saved: Path, content: bytes) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing or damaged"):
        treemem.load(saved)


def test_a_task_of_an_interactive_session_needs_no_file(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "model", new_model())
    program = """
import sys
import toy_task
from treemem.checkpoint import load, load_pretrained, pretrained_names
from treemem.task import TASKS
from treemem.runs.recipe import recipe_names
class Interactive(toy_task.MoreX):
    name = "interactive"
TASKS.register("interactive", Interactive)
TASKS.register("more_x", toy_task.MoreX)
assert not hasattr(sys.modules["__main__"], "__file__")
assert "interactive" not in pretrained_names() and "listops/small" in recipe_names()
assert load(sys.argv[1]).task.name == "more_x"
load_pretrained("interactive")
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "no trained model 'interactive' comes with treemem; train one, and load its folder"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_told(saved: Path) -> None:
    with pytest.raises(CheckpointError, match='device is "cuda" and this machine has no CUDA device'):
        treemem.load(saved, device="cuda")
    with pytest.raises(CheckpointError, match='device is "gpu" and '):
        treemem.load(saved, device="gpu")


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*nowhere"):
        treemem.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"it has no manifest\.json"):
        treemem.load(tmp_path)
    (saved / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"does not list config\.yaml"):
        treemem.load(saved)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda config: config["network"].update(name="KindSun"), "no network 'KindSun'; did you mean KindSum"),
        (lambda config: config["network"].update(name="os:system"), "no network 'os:system'"),
        (lambda config: config["network"]["options"].update(hiden=3), "has no option 'hiden'"),
        (lambda config: config["network"]["options"].update(hidden_size=5), "does not fit the network"),
        (lambda config: config["network"]["options"].update(hidden_size=-1), "does not describe a model"),
        (lambda config: config["task"].update(name="moore_x"), "no task 'moore_x'; did you mean more_x"),
        (lambda config: config["task"]["options"].update(kind=3), "does not describe a model"),
        (lambda config: config.pop("network"), "does not describe a model: no 'network'"),
        (lambda config: config.update(format=99), "of format 99"),
    ],
)
def test_a_foreign_configuration_is_refused(saved: Path, change: Callable[[dict], object], problem: str) -> None:
    with_config(saved, change)
    with pytest.raises(CheckpointError, match=problem):
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
        vocabulary = Vocabulary(["x", "y"], [("f", 10**6)])
        replace_file(saved, "vocabulary.json", json.dumps(vocabulary.to_dict()).encode())
    with pytest.raises(CheckpointError, match=r"much larger than the saved|at most 10000|does not fit the network"):
        treemem.load(saved)


DEEP = b"[" * 50_000
MALFORMED = [b"", b"\xff", b"3", b"[1]", b"{", b"!!int ''", DEEP]


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_form_is_refused_though_the_manifest_vouches_for_it(saved: Path, name: str) -> None:
    for content in MALFORMED:
        replace_file(saved, name, content)
        if (name, content) == ("metrics.jsonl", b""):
            assert training_state(saved)[2] == []
            continue
        is_of_model = name in ("config.yaml", "vocabulary.json", "model.safetensors")
        with pytest.raises(CheckpointError, match="model" if is_of_model else name) as caught:
            (treemem.load if is_of_model else training_state)(saved)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("precision", [torch.int64, torch.float8_e4m3fn])
def test_weights_that_are_no_floating_point_numbers_are_refused(saved: Path, precision: torch.dtype) -> None:
    weights = {name: tensor.to(precision) for name, tensor in new_model().state_dict().items()}
    replace_file(saved, "model.safetensors", safetensors.torch.save(weights))
    with pytest.raises(CheckpointError, match=rf"encoder\.leaves\.weight is of {precision}, not torch\.float32"):
        treemem.load(saved)


def test_a_training_state_that_is_no_plain_data_is_refused_without_advice_to_load_it_unsafely(saved: Path) -> None:
    for state in ([1], {"step": print}, {"step": NetworkConfig}):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        for content in (buffer.getvalue(), buffer.getvalue()[:-50], pickle.dumps(state)):
            replace_file(saved, "training_state.pt", content)
            with pytest.raises(CheckpointError, match=r"training_state\.pt is no training state: it ") as caught:
                training_state(saved)
            assert "weights_only" not in "".join(traceback.format_exception(caught.value))


def test_python_objects_in_the_configuration_are_not_made(saved: Path, tmp_path: Path) -> None:
    content = f"!!python/object/apply:pathlib.Path.touch [{tmp_path / 'made'}]".encode()
    replace_file(saved, "config.yaml", content)
    with pytest.raises(CheckpointError, match="does not describe a model"):
        treemem.load(saved)
    assert not (tmp_path / "made").exists()


def test_a_pickle_in_place_of_weights_or_state_is_refused(saved: Path, tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
            return Path.touch, (tmp_path / "made",)

    torch.save({"step": Touch()}, tmp_path / "evil.pt")
    evil = (tmp_path / "evil.pt").read_bytes()
    replace_file(saved, "training_state.pt", evil)
    with pytest.raises(CheckpointError, match=r"training_state\.pt is no training state"):
        training_state(saved)
    replace_file(saved, "model.safetensors", evil)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is no safetensors file"):
        treemem.load(saved)
    assert not (tmp_path / "made").exists()


def test_own_classes_can_be_given_to_load(tmp_path: Path) -> None:
    class Mine(KindSum):
        pass

    model = Model(MoreX(), NetworkConfig("Mine", {"hidden_size": 4}), networks={"Mine": Mine})
    checkpoint.save(tmp_path / "model", model)
    with pytest.raises(CheckpointError, match="no network 'Mine'"):
        treemem.load(tmp_path / "model")
    loaded = treemem.load(tmp_path / "model", networks={"Mine": Mine})
    assert isinstance(loaded.encoder, Mine)


def test_tied_weights_are_saved_and_tied_when_loaded(tmp_path: Path) -> None:
    class Tied(KindSum):
        def __init__(self, hidden_size: int, vocabulary: Vocabulary) -> None:
            super().__init__(hidden_size, vocabulary)
            self.again = nn.Linear(hidden_size, vocabulary.num_leaves, bias=False)
            self.again.weight = self.leaves.weight

    model = Model(MoreX(), NetworkConfig("Tied", {"hidden_size": 4}), networks={"Tied": Tied})
    checkpoint.save(tmp_path / "model", model)
    loaded = treemem.load(tmp_path / "model", networks={"Tied": Tied}).encoder
    assert loaded.again.weight is loaded.leaves.weight
    assert torch.equal(loaded.leaves.weight, model.encoder.leaves.weight)


def test_an_option_that_is_not_plain_data_is_named() -> None:
    model = Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": np.int64(4)}))
    with pytest.raises(RecipeError, match=r"the option hidden_size of KindSum is .*numpy\.int64"):
        checkpoint.check_options(model)


def test_a_packaged_model_loads_by_name_and_a_folder_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packaged = treemem.load("equation_verification")
    assert packaged.task.name == "equation_verification"
    assert next(packaged.parameters()).dtype == torch.float32
    checkpoint.save("equation_verification", new_model())
    assert treemem.load("equation_verification").task.name == "more_x"


def test_a_checkpoint_that_is_not_there_is_told_with_the_names_of_packaged_ones() -> None:
    with pytest.raises(CheckpointError, match="no checkpoint equation_verificaton; did you mean equation_verification"):
        treemem.load("equation_verificaton")
    with pytest.raises(CheckpointError, match="there is no checkpoint runs/x; by name there are equation_verification"):
        treemem.load("runs/x")
    with pytest.raises(CheckpointError, match="there is no checkpoint listops; by name"):
        treemem.load("listops")


def test_a_temperature_is_written_beside_a_checkpoint_and_leaves_all_else(saved: Path) -> None:
    before = {path: path.read_bytes() for path in saved.iterdir()}
    for temperature in (2.0, 3.0):
        checkpoint.set_temperature(saved, temperature)
        assert treemem.load(saved).temperature == temperature
    assert {path: path.read_bytes() for path in saved.iterdir() if path.name != "temperature.json"} == before
    (saved / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="cut off"):
        checkpoint.set_temperature(saved, 2.0)


@pytest.mark.parametrize("content", [*MALFORMED, b"-1", b"NaN", b"null", b'"2"'])
def test_a_damaged_temperature_is_named(saved: Path, content: bytes) -> None:
    (saved / "temperature.json").write_bytes(content)
    if content == b"3":
        assert treemem.load(saved).temperature == 3.0
        return
    with pytest.raises(CheckpointError, match=r"temperature\.json is damaged|a temperature must be a positive number"):
        treemem.load(saved)


def test_a_checkpoint_is_saved_over_only_where_asked_to(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="model is there already; choose another folder, or replace it"):
        checkpoint.save(saved, new_model(1))
    assert has_weights_of(saved, 0)
    checkpoint.save(saved, new_model(1), overwrite=True)
    assert has_weights_of(saved, 1)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_nothing_that_is_no_checkpoint_is_saved_over(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    RunFolder(tmp_path / "run").save(files_of(new_model(), {}), best=True)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name": "my page", "icons": []}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("notes", "run", "file", "web"):
        for overwrite in (False, True):
            with pytest.raises(CheckpointError, match=rf"{name} is there already; move it away"):
                checkpoint.save(tmp_path / name, new_model(), overwrite=overwrite)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_other_files_stay_beside_a_checkpoint_that_is_saved_over(saved: Path) -> None:
    (saved / "README.md").write_text("my card")
    checkpoint.set_temperature(saved, 2.0)
    checkpoint.save(saved, new_model(1), overwrite=True)
    assert has_weights_of(saved, 1)
    assert (saved / "README.md").read_text() == "my card"
    assert treemem.load(saved).temperature == 1.0, "that was the temperature of the other model"


@pytest.mark.parametrize("renames", [1, 2])
def test_an_interrupted_replacement_is_finished_or_undone(
    saved: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Of the three renames - the card's is the last - the process dies after one or two."""
    (saved / "README.md").write_text("my card")
    rename, done = Path.rename, []

    def interrupted(path: Path, target: Path) -> Path:
        if not path.name.endswith(".tmp"):
            if len(done) == renames:
                raise KeyboardInterrupt
            done.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(saved, new_model(1), overwrite=True)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="model is there already; choose another folder"):
        checkpoint.save(saved, new_model(2))
    assert has_weights_of(saved, renames - 1)
    assert (saved / "README.md").read_text() == "my card"
    checkpoint.save(saved, new_model(3), overwrite=True)
    assert has_weights_of(saved, 3)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_full_disk_leaves_the_checkpoint_and_the_run_as_they_were(
    saved: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = RunFolder(tmp_path / "run")
    run.save(files_of(new_model(), {}), best=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    request.getfixturevalue("full_disk")
    with pytest.raises(CheckpointError, match=r"cannot write .*model.*: No space left on device; free some space"):
        checkpoint.save(saved, new_model(1), overwrite=True)
    with pytest.raises(CheckpointError, match=r"cannot write .*000002: No space left on device; free some space"):
        run.save(files_of(new_model(1), {}), best=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_networks_that_did_not_read_the_labels_of_inner_nodes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_from_table(
        [{"tree": f"({name} x)", "target": name} for name in ("sin", "cos") * 4], tree="tree", target="target"
    )
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
