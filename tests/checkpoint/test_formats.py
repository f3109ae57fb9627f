"""Checkpoints that were written once still load and give the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

import treemem
from treemem import checkpoint
from treemem.cli import main
from treemem.errors import CheckpointError

FOLDER = Path(__file__).parents[1] / "checkpoints"
EQUATIONS = ["x + y = y + x", "sin(x)^2 + cos(x)^2 = 1", "x*2 = x"]
LISTS = ["[MAX 2 9 [MIN 4 7 ] 0 ]"]
# What the version that wrote a checkpoint said to these examples.
ANSWERS = {
    "lstm": [0.528976386, 0.528572557, 0.529509495],
    "stack_tree_lstm": [0.632312172, 0.627336473, 0.626597072],
    "ordered_memory": [[
        0.048920549, 0.052534646, 0.263358225, 0.013387893, 0.058459533, 0.353405772, 0.046442169, 0.027831012,
        0.070961778, 0.064698423,
    ]],
    "transformer": [[
        0.095806154, 0.101527227, 0.063837258, 0.003407130, 0.004809583, 0.011190449, 0.566289337, 0.108263818,
        0.030590649, 0.014278394,
    ]],
}  # fmt: skip


def changed(tmp_path: Path, name: str, **config: object) -> Path:
    """A copy of a checkpoint with other entries in its configuration, for which the manifest vouches."""
    files = checkpoint.verified_files(FOLDER / name)
    files["config.yaml"] = yaml.safe_dump({**yaml.safe_load(files["config.yaml"]), **config}).encode()
    path = tmp_path / name
    path.mkdir()
    for file, content in checkpoint.with_manifest(files).items():
        (path / file).write_bytes(content)
    return path


@pytest.mark.parametrize("name", ANSWERS)
def test_a_checkpoint_of_its_time_gives_the_answers_of_its_time(name: str) -> None:
    model = treemem.load(FOLDER / name)
    examples = EQUATIONS if model.task.name == "equation_verification" else LISTS
    np.testing.assert_allclose(model.predict(examples), ANSWERS[name], rtol=0, atol=1e-6)
    assert model.temperature == 1.75


def test_every_checkpoint_that_is_kept_is_tested() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(ANSWERS)


def test_the_files_of_today_are_those_of_the_sample() -> None:
    files = checkpoint.verified_files(FOLDER / "lstm")
    records = checkpoint.records_of(files, FOLDER / "lstm")
    written = checkpoint.with_manifest(checkpoint.files_of(treemem.load(FOLDER / "lstm"), records))
    assert written == {path.name: path.read_bytes() for path in (FOLDER / "lstm").iterdir()}


@pytest.mark.parametrize("format", [checkpoint.FORMAT + 1, 0, "two", None, [1]])
def test_a_checkpoint_of_another_format_is_refused_and_of_a_newer_one_with_the_advice_to_upgrade(
    tmp_path: Path, format: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path, "lstm", format=format)
    with pytest.raises(CheckpointError, match=r"is of format ") as caught:
        treemem.load(path)
    assert ("upgrade" in str(caught.value)) == (format == 2)
    assert main(["evaluate", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
