from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from published_state_dicts import whole_equation_network

import treemem
from treemem.cli import main

Failing = Callable[..., str]
OPTIONS = {"stack_size": 5, "activation": "tanh", "output_activation": "tanh", "normalize": True}


@pytest.fixture
def weights(folder: Path) -> Path:
    torch.save(whole_equation_network(4), folder / "weights.checkpoint")
    return folder / "weights.checkpoint"


def test_options_of_a_file_and_of_the_line_make_the_network_and_the_line_counts_first(
    weights: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "options.json").write_text(json.dumps({**OPTIONS, "stack_size": 7}))
    words = ["convert", str(weights), "-o", "model", "--options", "options.json", "stack_size=3", "--numeric"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("model: StackTreeLSTM of equation_verification, ")
    model = treemem.load("model")
    assert {name: model.network.options[name] for name in ("stack_size", "activation")} == {
        "stack_size": 3, "activation": "tanh",
    }  # fmt: skip
    assert model.task.options["numeric"] is True


def test_a_file_of_words_names_the_rows_of_the_table(weights: Path, folder: Path) -> None:
    (folder / "words.txt").write_text("\n".join(f"leaf {row}" for row in range(34)) + "\n")
    words = ["convert", str(weights), "-o", "model", "--words", "words.txt"]
    assert main([*words, *(f"{name}={json.dumps(value)}" for name, value in OPTIONS.items())]) == 0
    assert treemem.load("model").vocabulary.leaves[33] == "leaf 33"


def test_what_is_wrong_is_said_in_a_line(weights: Path, folder: Path, failing: Failing) -> None:
    (folder / "bad.json").write_text("[1]")
    for words, said in (
        ([], "do not determine stack_size"),
        (["--options", "none.json"], "--options none.json cannot be read"),
        (["--options", "bad.json"], "must hold options and their values"),
        (["a=2024-13-45"], "'2024-13-45' is not a YAML value"),
        (["stack=5"], "stack of StackTreeLSTM cannot be given"),
    ):
        assert said in failing("convert", str(weights), "-o", "model", *words)
    assert not (folder / "model").exists()
