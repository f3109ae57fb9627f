from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
import yaml
from checkpoint.fake_hub import FakeHub, running_hub
from checkpoint.saved_models import Touch, has_weights_of, new_model
from toy_task import toy_data

import treemem
from treemem import checkpoint
from treemem.cli import main
from treemem.errors import CheckpointError, RecipeError
from treemem.metrics.score import Score

FILES = {"config.yaml", "vocabulary.json", "model.safetensors", "metrics.jsonl", "manifest.json"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that is empty, with an empty cache, for one who is logged in."""
    constants = huggingface_hub.constants
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run = checkpoint.RunFolder(tmp_path / "run")
    files = checkpoint.files_of(new_model(), [{"epoch": 1, "validation_accuracy": 0.625}])
    run.save({**files, **checkpoint.training_files_of({"step": 3})}, best=True)
    return run.path / "checkpoints" / "000001"


def test_a_model_that_was_pushed_loads_from_its_address_and_predicts_the_same(hub: FakeHub) -> None:
    model, data = new_model(), toy_data(20)
    model.temperature = 2.0
    assert treemem.hub.push(model, "me/more-x") == f"{hub.url}/me/more-x"
    loaded = treemem.load("hf://me/more-x")
    assert not loaded.training
    np.testing.assert_array_equal(loaded.predict(data), model.predict(data))


def test_a_process_that_has_imported_nothing_of_huggingface_hub_pushes_and_downloads(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    program = """if True:
        from treemem.errors import CheckpointError
        from treemem.hub_client import HubAddress, download, upload

        address = HubAddress.parse("hf://me/new")
        upload(address, {"a.txt": b"content"}, where_missing={}, message="new")
        print((download(address, ["a.txt"]) / "a.txt").read_text())
        try:
            download(HubAddress.parse("hf://me/nothing"), ["a.txt"])
        except CheckpointError as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("content\nthere is no repository me/nothing on the hub"), ran.stderr
    assert ran.returncode == 0


def test_of_a_run_goes_the_best_checkpoint_without_its_training_state_in_one_commit(saved: Path, hub: FakeHub) -> None:
    treemem.hub.push(saved.parents[1], "me/more-x", private=True)
    found = hub.files["me/more-x"]["main"]
    assert set(found) - {".gitattributes"} == {*FILES, "README.md"}
    assert set(json.loads(found["manifest.json"])) == FILES - {"manifest.json"}
    assert found["model.safetensors"] == (saved / "model.safetensors").read_bytes()
    assert hub.private == {"me/more-x"}
    assert sum("/commit/" in request for request in hub.requests) == 1


def test_nothing_but_the_files_of_a_model_is_fetched_and_no_file_twice(saved: Path, hub: FakeHub) -> None:
    content = {path.name: path.read_bytes() for path in saved.iterdir()}  # as one uploads a folder by hand
    hub.put("me/more-x", {**content, "notes.txt": b"x", "model.bin": b"y"})
    assert "training_state.pt" in content
    folder = treemem.hub.download("me/more-x")
    assert {path.name for path in folder.iterdir()} == FILES
    before = len(hub.requests)
    assert torch.equal(treemem.load("hf://me/more-x").encoder.leaves.weight, new_model().encoder.leaves.weight)
    assert not [request for request in hub.requests[before:] if request.startswith("GET") and "/resolve/" in request]


def test_a_revision_is_loaded_if_the_address_names_one(hub: FakeHub) -> None:
    for revision, seed in (("main", 0), ("v2", 1)):
        hub.put("me/more-x", checkpoint.with_manifest(checkpoint.files_of(new_model(seed))), revision)
    for address, seed in (("hf://me/more-x", 0), ("hf://me/more-x@v2", 1)):
        assert has_weights_of(address, seed)  # type: ignore[arg-type]
    assert treemem.hub.download("me/more-x", revision="v2").name == hub.commit_of("me/more-x", "v2")
    with pytest.raises(CheckpointError, match=r"the repository me/more-x has no revision 'v3'"):
        treemem.load("hf://me/more-x@v3")


def test_the_card_says_what_the_model_is_and_the_owners_own_card_stays(saved: Path, hub: FakeHub) -> None:
    checkpoint.set_temperature(saved, 1.5)
    treemem.hub.push(saved, "me/more-x", scores=[Score("all", 10, {"accuracy": 0.75, "majority": 0.5})])
    _, head, text = hub.files["me/more-x"]["main"]["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(head) == {"library_name": "treemem", "tags": ["treemem", "more_x", "KindSum"]}
    weights = sum(parameter.numel() for parameter in new_model().parameters())
    for said in (
        f"- Network: KindSum, hidden_size 4; {weights} parameters.",
        "- Temperature of its probabilities: 1.5.",
        "- Validation accuracy: 62.50%, of epoch 1.",
        "| all | 10 | 75.00 | 50.00 |",
        'model = treemem.load("hf://me/more-x")',
    ):
        assert said in text
    hub.put("me/more-x", {"README.md": b"my own words"})
    treemem.hub.push(saved, "me/more-x")
    assert hub.files["me/more-x"]["main"]["README.md"] == b"my own words"
    (saved / "CARD.md").write_text("words of the folder")
    treemem.hub.push(saved, "me/more-x")
    assert hub.files["me/more-x"]["main"]["README.md"] == b"words of the folder"


def test_the_manifest_tells_what_was_altered_on_the_way(hub: FakeHub) -> None:
    treemem.hub.push(new_model(), "me/more-x")
    content = hub.files["me/more-x"]["main"]["model.safetensors"]
    hub.put("me/more-x", {"model.safetensors": content[:-1] + b"x"})
    with pytest.raises(CheckpointError, match=r"models--me--more-x.*model\.safetensors is altered"):
        treemem.load("hf://me/more-x")


def test_a_pickle_on_the_hub_is_neither_fetched_nor_read(hub: FakeHub, tmp_path: Path) -> None:
    torch.save({"step": Touch(tmp_path / "made")}, tmp_path / "evil.pt")
    files = checkpoint.files_of(new_model())
    evil = (tmp_path / "evil.pt").read_bytes()
    hub.put("me/evil", checkpoint.with_manifest({**files, "training_state.pt": evil}))
    treemem.load("hf://me/evil")
    hub.put("me/worse", checkpoint.with_manifest({**files, "model.safetensors": evil}))
    with pytest.raises(CheckpointError, match=r"is no safetensors file"):
        treemem.load("hf://me/worse")
    assert not (tmp_path / "made").exists()
    assert not [request for request in hub.requests if "training_state" in request]


def test_what_is_wrong_on_the_hub_is_told_with_what_to_do(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("me/poems", {"README.md": b"roses"})
    with pytest.raises(CheckpointError, match=r"hf://me/poems is no checkpoint of treemem: .* no manifest\.json"):
        treemem.load("hf://me/poems")
    with pytest.raises(CheckpointError, match=r"no repository me/nothing on the hub.*hf auth login"):
        treemem.load("hf://me/nothing")
    monkeypatch.setenv("HF_TOKEN", "of another")
    with pytest.raises(CheckpointError, match=r"you may not do this with me/more-x; log in"):
        treemem.hub.push(new_model(), "me/more-x")
    hub.files["me/more-x"] = {}
    hub.put("me/more-x", {"README.md": b""})
    hub.private.add("me/more-x")
    with pytest.raises(CheckpointError, match=r"no repository me/more-x on the hub, or you may not see it"):
        treemem.load("hf://me/more-x")
    hub.failing = 418
    with pytest.raises(CheckpointError, match=r"the hub refused hf://me/poems \(HTTP 418\)"):
        treemem.hub.push(new_model(), "me/poems")


def test_an_address_that_is_none_is_refused_and_so_is_a_push_to_a_revision(hub: FakeHub) -> None:
    for text in ("hf://", "hf://name", "hf://a/b/c", "hf:///name", "hf://me/", "hf://me/x@"):
        with pytest.raises(CheckpointError, match=r"is not the address of a model; expected hf://owner/name"):
            treemem.load(text)
    with pytest.raises(RecipeError, match=r"me/x@v2 names a revision, .*: push to me/x, .*create_tag.*tag=\"v2\""):
        treemem.hub.push(new_model(), "me/x@v2")
    assert not hub.requests


def test_without_a_way_to_the_hub_what_the_cache_has_is_loaded_and_else_it_is_told(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    treemem.hub.push(new_model(), "me/more-x")
    treemem.load("hf://me/more-x")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert treemem.load("hf://me/more-x").task.name == "more_x"
    with pytest.raises(CheckpointError, match=r"hf://me/other needs the hub, which cannot be reached"):
        treemem.load("hf://me/other")
    with pytest.raises(CheckpointError, match=r"hf://me/other needs the hub, which cannot be reached"):
        treemem.hub.push(new_model(), "me/other")


def test_without_huggingface_hub_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"pip install 'treemem\[hub\]'"):
        treemem.load("hf://me/more-x")


def test_commands_take_the_address_of_a_model(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    treemem.hub.push(new_model(), "me/more-x")
    (tmp_path / "plain.txt").write_text("(f x y)\n")
    assert main(["predict", "hf://me/more-x", "plain.txt", "-o", "answers.jsonl", "--processes", "1"]) == 0
    assert json.loads((tmp_path / "answers.jsonl").read_text())["error"] is None
    assert main(["evaluate", "hf://me/more-x", "data.count=20"]) == 0
    assert "KindSum" in capsys.readouterr().out
    assert main(["evaluate", "hf://me/nothing"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: there is no repository me/nothing")
