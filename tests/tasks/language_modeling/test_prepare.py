"""Texts that stay in their file: what is prepared, and that training on it gives the numbers of the text itself."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_runs import Stopped, assert_same, numbers

import treemem
from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.data.loader import BatchOptions, StreamLoader
from treemem.errors import RecipeError, VocabularyError
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, evaluate, fit
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling, prepare
from treemem.trees.forest import Forest

NETWORK = NetworkConfig("LanguageModel", {"hidden_size": 4, "cell": "LSTM", "dropout": 0.2})
OPTIONS: dict[str, Any] = {"epochs": 2, "batch_size": 3, "learning_rate": 0.01, "accelerator": "cpu"}


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of texts, of which a tree of a prepared text has 50 words or a line more."""
    monkeypatch.setattr(prepare, "TREE_WORDS", 50)
    folder = tmp_path / "texts"
    folder.mkdir()
    draw = np.random.default_rng(1)
    for name, size in (("train", 80), ("valid", 20), ("test", 20)):
        lines = [" ".join(f"w{n}" for n in draw.zipf(1.5, draw.integers(0, 9)) % 40) for _ in range(size)]
        (folder / f"{name}.txt").write_text("\n".join([*lines, "Sequence <eos> <eos>"]) + "\n")
    with (folder / "train.txt").open("a") as file:
        file.write(" ".join(f"w{n}" for n in range(40)) + "\n")
    return folder


def prepared(texts: Path, words: int | None = 20) -> Path:
    folder = texts.with_name("prepared")
    prepare.prepare_corpus(texts, folder, words, overwrite=True)
    return folder


def task_of(path: Path, words: int | None = None) -> LanguageModeling:
    return LanguageModeling(path=str(path), words=words, steps=7, evaluation_columns=2)


def train(task: LanguageModeling, output: Path, *, resume: bool = False, **changed: int) -> None:
    options = TrainingOptions(**{**OPTIONS, **changed})
    fit(task, NETWORK, task.make_data(LanguageDataOptions()), options, output=output, resume=resume)


@pytest.mark.parametrize("words", [None, 20])
def test_a_prepared_text_is_the_stream_of_the_text(texts: Path, words: int | None) -> None:
    ours, theirs = task_of(texts, words), task_of(prepared(texts, words))
    assert ours.vocabulary == theirs.vocabulary
    data, mapped = (task.make_data(LanguageDataOptions()) for task in (ours, theirs))
    assert data.card.splitlines()[3:] == mapped.card.splitlines()[3:]
    assert len(mapped.forest) > 6
    for split in ("train", "validation", "test", None):
        streams = []
        for examples in (ours.examples(data.forest), theirs.examples(mapped.forest)):
            loader = examples.loader(ours.vocabulary, examples.part(split), BatchOptions(4))
            streams.append([(batch.token.tolist(), batch.target.token.tolist()) for batch in loader.batches()])  # type: ignore[union-attr]
        assert streams[0] == streams[1]
    lines = [record["text"].split() for record in ours.records_of(data.forest)]
    ends = " <eos> ".join(" ".join(words) for words in lines).split()
    found = " <eos> ".join(record["text"] for record in theirs.records_of(mapped.forest)).split()
    assert found == ends


def test_training_and_scores_are_those_of_the_text_and_resume_within_an_epoch(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = task_of(texts, 20), task_of(prepared(texts, 20))
    train(ours, tmp_path / "text")
    save, left = RunFolder.save, [3]

    def saving(self: RunFolder, *rest: Any, best: bool) -> int:
        number = save(self, *rest, best=best)
        left[0] -= 1
        if not left[0]:
            raise Stopped
        return number

    monkeypatch.setattr(RunFolder, "save", saving)
    with pytest.raises(Stopped):
        train(theirs, tmp_path / "mapped", checkpoint_steps=4)
    train(theirs, tmp_path / "mapped", resume=True)
    assert_same(tmp_path / "text", tmp_path / "mapped")
    assert numbers(tmp_path / "text")[0][0]["validation"][0]["examples"] == 21
    model = treemem.load(tmp_path / "mapped")
    for split in ("test", None):
        scores = [evaluate(model, task.make_data(LanguageDataOptions()), split=split).scores for task in (ours, theirs)]
        assert scores[0] == scores[1]


def test_a_text_that_is_refused_leaves_no_folder(texts: Path) -> None:
    (texts / "test.txt").write_text("unheard\n")
    with pytest.raises(VocabularyError, match="'unheard'"):
        prepare.prepare_corpus(texts, texts.with_name("prepared"))
    assert [place.name for place in texts.parent.iterdir()] == [texts.name]


def test_no_step_copies_the_text(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(prepared(texts))
    streams: list[Any] = []
    init = StreamLoader.__init__

    def remembering(self: StreamLoader, stream: Any, *rest: Any, **more: Any) -> None:
        streams.append(stream)
        init(self, stream, *rest, **more)

    monkeypatch.setattr(StreamLoader, "__init__", remembering)
    train(task, tmp_path / "run", epochs=1)
    assert task.corpus is not None
    file = task.corpus.forest.label
    owner: Any = file
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert len(streams) >= 3
    assert all(np.shares_memory(stream, file) for stream in streams)


def test_a_text_of_other_words_is_read_by_the_ids_of_the_model(texts: Path, tmp_path: Path) -> None:
    train(task_of(texts, 20), tmp_path / "run", epochs=1)
    model = treemem.load(tmp_path / "run")
    scores = [
        evaluate(model, task.make_data(LanguageDataOptions()), split="test").scores
        for task in (task_of(texts, 30), task_of(prepared(texts, 30)))
    ]
    assert scores[0] == scores[1]
    for name in ("train", "valid", "test"):
        (texts / f"{name}.txt").write_text("other words\n")
    known = task_of(prepared(texts))
    examples = known.examples(known.make_data(LanguageDataOptions()).forest)
    (texts / "train.txt").write_text("other wordy\n")
    (texts / "valid.txt").write_text("other\n")
    (texts / "test.txt").write_text("other\n")
    with pytest.raises(VocabularyError, match="unknown token 'words'; did you mean wordy"):
        examples.loader(task_of(texts).vocabulary)


def test_the_command_prepares_and_names_the_line_of_an_error(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = texts.with_name("prepared")
    words = [str(texts), "-o", str(folder), "--words", "20"]
    assert prepare.main(words) == 0
    assert "with 20 different words" in capsys.readouterr().out
    assert prepare.main(words) == 2
    assert "or replace it with --overwrite" in capsys.readouterr().err
    (texts / "valid.txt").write_bytes(b"w1\nw\xff\n")
    assert prepare.main([*words, "--overwrite"]) == 2
    assert "valid.txt, line 2, column 2: byte 0xff is not UTF-8" in capsys.readouterr().err
    assert len(Forest.load(folder)) > 6, "the folder is as it was"
    (texts / "valid.txt").write_text("w1\nwww\n")
    assert prepare.main([str(texts), "-o", str(folder), "--overwrite"]) == 2
    assert "valid.txt, line 2, column 1: the word 'www' is not in the training text" in capsys.readouterr().err
    (texts / "valid.txt").write_text("\n")
    assert prepare.main([*words, "--overwrite"]) == 2
    assert "valid.txt has no words; the validation part" in capsys.readouterr().err
    assert prepare.main([str(texts), "-o", str(texts), "--overwrite"]) == 2
    assert "is the input" in capsys.readouterr().err


def test_other_words_than_the_prepared_ones_and_other_forests_are_refused(texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts)
    assert task_of(folder, 20).vocabulary == task_of(folder).vocabulary
    with pytest.raises(RecipeError, match=r"was prepared with 20 words, more than task_options\.words=19"):
        _ = task_of(folder, 19).vocabulary
    Forest.from_sequences([["a"]]).save(tmp_path / "forest")
    with pytest.raises(RecipeError, match="is no prepared text"):
        _ = task_of(tmp_path / "forest").vocabulary


def test_a_prepared_text_is_generated_as_its_lines(texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts, None)
    assert (
        main(["generate", "language_modeling", "-o", str(tmp_path / "lines.jsonl"), f"task_options.path={folder}"]) == 0
    )
    records = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [record["text"] for record in records[:80]] == (texts / "train.txt").read_text().splitlines()[:80]
    assert records[-1] == {"text": "", "split": "test"}
