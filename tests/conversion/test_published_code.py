from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint.saved_models import Touch
from published_state_dicts import Weights, equation_weights, save_weights

import treemem
from treemem import checkpoint
from treemem.conversion import convert
from treemem.errors import CheckpointError, RecipeError

GOLDEN = Path(__file__).parent.parent / "golden" / "stack_trees"
WORDS = ["Symbol_var_0", "Symbol_var_1", "Integer_2", "NegativeOne", "Pi"]


def tree_lstm_weights() -> Weights:
    return equation_weights(dict(np.load(GOLDEN / "tree_lstm_batch.npz")), "tree_lstm")


@pytest.mark.parametrize(("zipped", "envelope"), [(True, None), (False, "model_state_dict"), (True, "state_dict")])
def test_a_state_dict_is_read_in_both_formats_of_torch_and_beside_an_optimizer(
    zipped: bool, envelope: str | None, tmp_path: Path
) -> None:
    weights: dict[str, object] = OrderedDict(tree_lstm_weights())
    content = weights if envelope is None else {"epoch": 3, envelope: weights, "optimizer_state_dict": {}}
    torch.save(content, tmp_path / "file", _use_new_zipfile_serialization=zipped)
    made = convert(tmp_path / "file", tmp_path / "model", words=WORDS)
    loaded = treemem.load(tmp_path / "model")
    assert loaded.network == made.network
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in made.state_dict().items())


def test_the_type_of_the_weights_is_kept(tmp_path: Path) -> None:
    weights = {name: weight.float() for name, weight in tree_lstm_weights().items()}
    model = convert(save_weights(tmp_path, weights), tmp_path / "model", words=WORDS)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    weights["bias"] = weights["bias"].double()
    with pytest.raises(CheckpointError, match=r"mixes torch.float32 and torch.float64"):
        convert(save_weights(tmp_path, weights), tmp_path / "other", words=WORDS)


def test_a_pickled_object_is_refused_and_never_run(tmp_path: Path) -> None:
    torch.save({"model": Touch(tmp_path / "ran")}, tmp_path / "file")
    with pytest.raises(CheckpointError, match="only tensors and plain data") as caught:
        convert(tmp_path / "file", tmp_path / "model")
    assert "weights_only" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no such thing", "is not a file of torch.save"),
        (b"", "is not a file of torch.save"),
        ([1, 2], "does not hold a state dict"),
        ({}, "does not hold a state dict"),
        ({"weight": 3}, "'weight' is int, not a weight"),
        ({"steps": torch.arange(3)}, "'steps' is torch.int64, not a weight"),
        ({"conv.weight": torch.zeros(3)}, "such as conv.weight, are not those of a covered model"),
    ],
)
def test_files_that_are_no_published_state_dict_are_told_apart(content: object, problem: str, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / "file").write_bytes(content)
    else:
        torch.save(content, tmp_path / "file")
    with pytest.raises(CheckpointError, match=problem):
        convert(tmp_path / "file", tmp_path / "model")


def test_what_is_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="treemem")
    weights = {**tree_lstm_weights(), "Number_enc.linear1.bias": torch.zeros(4, dtype=torch.float64)}
    convert(save_weights(tmp_path, weights), tmp_path / "model", words=WORDS)
    assert "the encoder and decoder of numbers are left out" in caplog.text


def test_a_checkpoint_is_overwritten_only_when_asked_to_and_another_folder_never(tmp_path: Path) -> None:
    source = save_weights(tmp_path, tree_lstm_weights())
    convert(source, tmp_path / "model", words=WORDS)
    with pytest.raises(CheckpointError, match="is there already; choose another folder"):
        convert(source, tmp_path / "model", words=WORDS)
    convert(source, tmp_path / "model", words=WORDS, overwrite=True)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"torn")
    convert(source, tmp_path / "model", words=WORDS, overwrite=True)
    checkpoint.verified_files(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    convert(source, tmp_path / "empty", words=WORDS)
    checkpoint.verified_files(tmp_path / "empty")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "one.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is there already; move it away"):
        convert(source, tmp_path / "papers", words=WORDS, overwrite=True)
    assert [path.name for path in (tmp_path / "papers").iterdir()] == ["one.txt"]


def test_a_checkpoint_that_a_conversion_replaces_is_kept_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="treemem")
    model = tmp_path / "model"
    before = []
    for factor in (1.0, 2.0, 3.0):
        weights = {name: factor * weight for name, weight in tree_lstm_weights().items()}
        convert(save_weights(tmp_path, weights), model, words=WORDS, overwrite=True)
        before.append(checkpoint.load(model).state_dict())
        (model / "notes.txt").write_text("mine")
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {"model", "model.before", "model.before-2"}
    assert f"is kept as {model}.before-2" in caplog.text
    for weights, name in zip(before, ("model.before", "model.before-2", "model"), strict=True):
        found = checkpoint.load(tmp_path / name).state_dict()
        assert all(torch.equal(weight, found[key]) for key, weight in weights.items())
    assert (model / "notes.txt").read_text() == "mine"


def test_task_options_that_a_conversion_does_not_take_are_named(tmp_path: Path) -> None:
    source = save_weights(tmp_path, tree_lstm_weights())
    with pytest.raises(RecipeError, match="read_out is not an option of equation_verification"):
        convert(source, tmp_path / "model", words=WORDS, task_options={"read_out": "cosine"})
