from __future__ import annotations

import io
import json
import logging
import pickle
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from torch import nn
from toy_task import KindSum, MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.trees.vocabulary import Vocabulary

FILES = ["config.yaml", "vocabulary.json", "model.safetensors", "metrics.jsonl", "training_state.pt"]


def new_model(seed: int = 0, hidden_size: int = 4) -> Model:
    torch.manual_seed(seed)
    return Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": hidden_size}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    checkpoint.save(path, new_model(), training_state={"step": 3}, metrics=[{"epoch": 1, "loss": 0.5}])
    return path


def with_config(path: Path, change: Callable[[dict], object]) -> None:
    """Rewrite the configuration and the manifest that vouches for it."""
    config = yaml.safe_load((path / "config.yaml").read_text())
    change(config)
    replace_file(path, "config.yaml", yaml.safe_dump(config).encode())


def replace_file(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[name] = {"bytes": len(content), "sha256": checkpoint._digest(content)}
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_loaded_model_predicts_what_the_saved_one_did(saved: Path) -> None:
    model, data = new_model(), toy_data(50)
    loaded = treemem.load(saved)
    assert not loaded.training
    assert loaded.task == model.task
    assert loaded.vocabulary == model.vocabulary
    np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
    np.testing.assert_array_equal(loaded.predict(["(f x y)"]), model.predict(["(f x y)"]))


def test_the_precision_of_the_weights_is_kept(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "model", new_model().double())
    assert {parameter.dtype for parameter in treemem.load(tmp_path / "model").parameters()} == {torch.float64}


def test_loading_leaves_the_random_generator_alone(saved: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    treemem.load(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_state_and_records_come_back(saved: Path) -> None:
    state, weights, records = checkpoint.load_training_state(saved)
    assert state == {"step": 3}
    assert records == [{"epoch": 1, "loss": 0.5}]
    assert all(torch.equal(weights[name], tensor) for name, tensor in new_model().state_dict().items())


def test_a_checkpoint_without_training_state_says_so(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "model", new_model())
    with pytest.raises(CheckpointError, match="holds a model only"):
        checkpoint.load_training_state(tmp_path / "model")


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_altered_or_missing_is_named(saved: Path, name: str) -> None:
    load = checkpoint.load_training_state if name == "training_state.pt" else treemem.load
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
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
        treemem.load(saved)


def test_a_folder_with_one_run_in_it_is_loaded_and_of_several_all_are_named(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "runs" / "a" / "seed-1" / "best", new_model(1))
    assert torch.equal(treemem.load(tmp_path / "runs").encoder.leaves.weight, new_model(1).encoder.leaves.weight)
    checkpoint.save(tmp_path / "runs" / "b" / "best", new_model(2))
    with pytest.raises(CheckpointError, match=r"holds these runs, of which you may choose one: .*a/seed-1, .*runs/b$"):
        treemem.load(tmp_path / "runs")


def test_the_current_folder_may_be_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 2):
        checkpoint.save(tmp_path / "run" / "best", new_model(seed))
    for place, name in (("run/best", "."), ("run/best.before", ".."), ("run", ".")):
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / place)
            assert checkpoint.read(name)[0].resolve() == tmp_path / "run" / "best"
    (tmp_path / "run" / "best" / "model.safetensors").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "run" / "best")
    assert checkpoint.read(".")[0] == tmp_path / "run" / "best.before"


def test_a_folder_of_runs_does_not_hide_the_model_that_comes_along_under_its_name_and_a_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        checkpoint.save(tmp_path / "equation_verification" / name / "best", new_model())
    assert treemem.load("equation_verification").task.name == "equation_verification"
    assert checkpoint.read("equation_verification")[0] == checkpoint.pretrained_folder("equation_verification")
    checkpoint.save(tmp_path / "equation_verification" / "best", new_model())
    assert treemem.load("equation_verification").task.name == "more_x"


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
        "no trained model comes with the task 'interactive'; train one, and load its folder"
    )


def test_a_torn_best_checkpoint_without_one_before_it_names_the_last(tmp_path: Path) -> None:
    for name in ("best", "last"):
        checkpoint.save(tmp_path / name, new_model())
    (tmp_path / "best" / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"best/model\.safetensors is cut off .*; the run's last .*/last, is whole"
    ):
        treemem.load(tmp_path)


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
        (lambda config: config["network"]["options"].update(hidden_size=10**15), "does not"),
        (lambda config: config["network"]["options"].update(hidden_size="x"), "does not describe a model"),
        (lambda config: config["network"]["options"].update(hidden_size=-1), "does not describe a model"),
        (lambda config: config["task"].update(name="moore_x"), "no task 'moore_x'; did you mean more_x"),
        (lambda config: config["task"]["options"].update(kind=3), "does not describe a model"),
        (lambda config: config.pop("network"), "does not describe a model: no 'network'"),
        (lambda config: config.update(network=[1]), "does not describe a model"),
        (lambda config: config.update(format=99), "of format 99"),
    ],
)
def test_a_foreign_configuration_is_refused(saved: Path, change: Callable[[dict], object], problem: str) -> None:
    with_config(saved, change)
    with pytest.raises(CheckpointError, match=problem):
        treemem.load(saved)


DEEP = b"[" * 50_000
MALFORMED = [b"", b"\xff", b"3", b"[1]", b"{", b"9" * 5000, b"!!int ''", b'{"a": ' * 50_000, DEEP, DEEP + b"]" * 50_000]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_form_is_refused_though_the_manifest_vouches_for_it(
    saved: Path, name: str, content: bytes
) -> None:
    empty_log = (name, content) == ("metrics.jsonl", b"")
    replace_file(saved, name, content)
    if name in ("config.yaml", "vocabulary.json", "model.safetensors"):
        with pytest.raises(CheckpointError, match="model"):
            treemem.load(saved)
    elif empty_log:
        assert checkpoint.load_records(saved) == []
    else:
        with pytest.raises(CheckpointError, match=name) as caught:
            checkpoint.load_training_state(saved)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("precision", [torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
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
                checkpoint.load_training_state(saved)
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
        checkpoint.load_training_state(saved)
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


def test_the_checkpoint_before_is_kept_and_used_when_the_newer_is_torn(saved: Path) -> None:
    checkpoint.save(saved, new_model(seed=1), training_state={"step": 4})
    assert checkpoint.newest_whole(saved)[:2] == (saved, "")
    (saved / "model.safetensors").write_bytes(b"torn")
    before, problem, files = checkpoint.newest_whole(saved)
    assert before == saved.with_name("model.before")
    assert "model.safetensors is cut off" in problem
    assert files == {path.name: path.read_bytes() for path in before.iterdir() if path.name != "manifest.json"}
    assert checkpoint.load_training_state(before)[0] == {"step": 3}
    (before / "vocabulary.json").unlink()
    assert checkpoint.newest_whole(saved).folder is None


def test_a_save_that_stopped_between_its_renames_leaves_the_one_before(saved: Path) -> None:
    saved.rename(saved.with_name("model.before"))
    assert checkpoint.newest_whole(saved)[:2] == (saved.with_name("model.before"), "")
    assert treemem.load(saved).network.options == {"hidden_size": 4}


def test_a_save_that_stopped_while_writing_is_ignored_and_cleared_by_the_next(saved: Path) -> None:
    shutil.copytree(saved, saved.with_name(".model.tmp"))
    assert checkpoint.newest_whole(saved)[:2] == (saved, "")
    checkpoint.save(saved, new_model(seed=1))
    assert sorted(path.name for path in saved.parent.iterdir()) == ["model", "model.before"]


def test_what_a_link_leads_to_is_written_and_kept_beside_it(saved: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(saved)
    for temperature in (2.0, 3.0, 4.0):
        checkpoint.set_temperature(link, temperature)
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model", "model.before"]
    assert (treemem.load(saved).temperature, treemem.load(f"{saved}.before").temperature) == (4.0, 3.0)
    (saved / "model.safetensors").write_bytes(b"torn")
    assert treemem.load(link).temperature == 3.0
    checkpoint.remove(link)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_of_a_link_in_the_place_of_the_checkpoint_before_the_link_alone_goes(saved: Path, tmp_path: Path) -> None:
    saved.rename(tmp_path / "kept")
    checkpoint.save(saved, new_model(1))
    (tmp_path / "model.before").symlink_to(tmp_path / "kept")
    checkpoint.save(saved, new_model(2))
    assert torch.equal(treemem.load(tmp_path / "kept").encoder.leaves.weight, new_model(0).encoder.leaves.weight)


def test_a_temperature_leaves_all_else_in_a_checkpoint(saved: Path, tmp_path: Path) -> None:
    (saved / "notes").mkdir()
    for name in ("CARD.md", "notes/config.yaml"):
        (saved / name).write_text("mine")
    (saved / "data").symlink_to(tmp_path)
    for temperature in (2.0, 3.0):
        checkpoint.set_temperature(saved, temperature)
    for name in ("CARD.md", "notes/config.yaml"):
        assert (saved / name).read_text() == "mine"
    assert (saved / "data").readlink() == tmp_path


def test_a_temperature_for_the_checkpoint_before_a_torn_one_is_written_in_its_place(saved: Path) -> None:
    before = saved.with_name("model.before")
    checkpoint.save(saved, new_model(1))
    checkpoint.set_temperature(before, 2.0)  # of a whole one it stays the one before
    assert (treemem.load(saved).temperature, treemem.load(before).temperature) == (1.0, 2.0)
    checkpoint.remove(f"{before}.before")
    (saved / "model.safetensors").write_bytes(b"torn")
    checkpoint.set_temperature(before, 3.0)
    assert (treemem.load(saved).temperature, treemem.load(before).temperature) == (3.0, 2.0)
    assert sorted(path.name for path in saved.parent.iterdir()) == ["model", "model.before"]


def test_records_may_hold_what_some_take_for_line_ends(saved: Path) -> None:
    metrics = [{"note": "a\u2028b\u0085c\x1d"}, {"note": "\r\n"}]
    checkpoint.save(saved, new_model(), metrics=metrics)
    assert checkpoint.load_records(saved) == metrics


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


def test_a_network_of_ones_own_may_read_numbers_while_it_is_made(tmp_path: Path) -> None:
    class Graded(KindSum):
        def __init__(self, hidden_size: int, vocabulary: Vocabulary) -> None:
            super().__init__(hidden_size, vocabulary)
            self.rates = [rate.item() for rate in torch.linspace(0, 1, hidden_size)]

    config = NetworkConfig("Graded", {"hidden_size": 3})
    checkpoint.save(tmp_path / "model", Model(MoreX(), config, networks={"Graded": Graded}))
    state = torch.get_rng_state()
    loaded = treemem.load(tmp_path / "model", networks={"Graded": Graded}).encoder
    assert loaded.rates == [0.0, 0.5, 1.0]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("place", ["model", "model.before"])
@pytest.mark.parametrize(
    "holds", [{"notes.txt": "mine"}, {"manifest.json": '{"name": "of a browser extension"}'}, {"manifest.json": ""}]
)
def test_nothing_that_is_no_checkpoint_is_saved_over(tmp_path: Path, place: str, holds: dict[str, str]) -> None:
    (tmp_path / place).mkdir()
    for name, content in holds.items():
        (tmp_path / place / name).write_text(content)
    with pytest.raises(CheckpointError, match=rf"{place} is there and is no checkpoint .*; choose another folder"):
        checkpoint.save(tmp_path / "model", new_model())
    assert {path.name: path.read_text() for path in (tmp_path / place).iterdir()} == holds
    assert [path.name for path in tmp_path.iterdir()] == [place]


def test_a_model_is_not_saved_over_the_run_that_it_was_loaded_from(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("best", "last"):
        checkpoint.save(run / name, new_model())
    with pytest.raises(CheckpointError, match="run is there and is no checkpoint of treemem"):
        checkpoint.save(run, treemem.load(run))
    assert sorted(path.name for path in run.iterdir()) == ["best", "last"]


def test_an_empty_folder_may_be_saved_to(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    checkpoint.save(tmp_path / "model", new_model())
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_torn_checkpoint_does_not_take_the_place_of_the_whole_one_before_it(saved: Path) -> None:
    checkpoint.save(saved, new_model(1))
    (saved / "model.safetensors").write_bytes(b"torn")
    checkpoint.save(saved, new_model(2))
    for folder, seed in ((saved, 2), (saved.with_name("model.before"), 0)):
        assert torch.equal(treemem.load(folder).encoder.leaves.weight, new_model(seed).encoder.leaves.weight)


def test_of_a_checkpoint_whose_deletion_was_stopped_the_manifest_is_left_and_may_be_saved_over(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.remove(saved)
    assert [path.name for path in saved.iterdir()] == ["manifest.json"]
    checkpoint.save(saved, new_model(1))
    assert torch.equal(treemem.load(saved).encoder.leaves.weight, new_model(1).encoder.leaves.weight)


def test_a_run_folder_means_its_best_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "run" / "last", new_model(1))
    checkpoint.save(tmp_path / "run" / "best", new_model(2))
    loaded = treemem.load(tmp_path / "run")
    assert torch.equal(loaded.encoder.leaves.weight, new_model(2).encoder.leaves.weight)


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors"])
def test_loading_a_torn_checkpoint_gives_the_one_before_it_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    for seed in (1, 2):
        for folder in ("best", "last"):
            checkpoint.save(tmp_path / folder, new_model(seed))
    for folder in ("best", "last"):
        (tmp_path / folder / name).write_bytes(b"torn")
    expected = new_model(1).encoder.leaves.weight
    for path, folder in ((tmp_path, "best"), (tmp_path / "best", "best"), (tmp_path / "last", "last")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert torch.equal(treemem.load(path).encoder.leaves.weight, expected)
        assert f"{name} is" in caplog.text
        assert f"loading {tmp_path / folder}.before" in caplog.text


def test_a_run_whose_best_checkpoint_lost_its_manifest_means_the_one_before(tmp_path: Path) -> None:
    for seed in (1, 2):
        checkpoint.save(tmp_path / "best", new_model(seed))
    (tmp_path / "best" / "manifest.json").unlink()
    assert torch.equal(treemem.load(tmp_path).encoder.leaves.weight, new_model(1).encoder.leaves.weight)


def test_an_option_that_is_not_plain_data_is_named() -> None:
    model = Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": np.int64(4)}))
    with pytest.raises(RecipeError, match=r"the option hidden_size of KindSum is .*numpy\.int64"):
        checkpoint.check_options(model)


def test_rooms_are_there_after_importing_the_library_alone() -> None:
    program = "import treemem; treemem.checkpoint.load; treemem.task.TASKS; assert 'task' in dir(treemem)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_full_disk_leaves_the_checkpoint_as_it_was(saved: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("full_disk")
    with pytest.raises(CheckpointError, match=r"cannot write .*model: No space left on device; free some space"):
        checkpoint.save(saved, new_model(1))
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
    assert torch.equal(treemem.load(saved).encoder.leaves.weight, new_model().encoder.leaves.weight)


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        checkpoint.save(tmp_path / "file" / "model", new_model())


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
