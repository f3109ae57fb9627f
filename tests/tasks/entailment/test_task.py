"""Pairs of sentences in SNLI's format."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.explore import explore
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import predict_file
from treemem.tasks.entailment import Entailment, EntailmentDataOptions
from treemem.tasks.entailment.readers import CLASSES
from treemem.trees.forest import Forest

ATTENTION = NetworkConfig("WordByWordAttention", {"hidden_size": 8})
PAIRS: list[Mapping[str, Any]] = [
    {
        "gold_label": "entailment",
        "sentence1_binary_parse": "( ( A man ) ( plays ( a guitar ) ) )",
        "sentence2_binary_parse": "( Someone plays )",
        "sentence1": "A man plays a guitar",
        "sentence2": "Someone plays",
    },
    {"gold_label": "contradiction", "sentence1": "A man plays.", "sentence2": "Nobody plays."},
    {"label": "neutral", "premise": "A dog runs", "hypothesis": "A dog plays"},
    {"gold_label": "-", "sentence1": "A man plays.", "sentence2": "A dog runs."},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("snli_1.0_train", "snli_1.0_dev", "snli_1.0_test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return tmp_path


def test_pairs_are_trees_with_their_classes_and_splits(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = Entailment(str(folder))
    with caplog.at_level(logging.INFO, "treemem"):
        forest = task.make_data(EntailmentDataOptions()).forest
    assert "snli_1.0_train.jsonl: 1 of 4 pairs are left out" in caplog.text
    assert [str(tree) for tree in forest[:4]] == [
        "(X (X A man) (X plays (X a guitar)))",
        "(X Someone plays)",
        "(X A (X man (X plays .)))",
        "(X Nobody (X plays .))",
    ]
    examples = task.examples(forest)
    assert [CLASSES[label] for label in examples.targets["label"][:3]] == ["entailment", "contradiction", "neutral"]
    assert [len(examples.part(split)) for split in ("train", "validation", "test")] == [3, 3, 3]
    assert examples.difficulty is not None
    assert examples.difficulty[:3].tolist() == [7, 7, 6]
    assert {*task.vocabulary.leaves} == {"<unk>", "A", "man", "plays", ".", "dog"}


def test_attention_reads_records_as_texts_and_is_shown(folder: Path, tmp_path: Path) -> None:
    model = Model(Entailment(str(folder)), ATTENTION).eval()
    record = {"sentence1": "A man plays", "sentence2": "A dog"}
    explore(model, ["A man plays\tA dog"], tmp_path / "page.html")
    assert '"attention"' in (tmp_path / "page.html").read_text()
    assert (model.predict([record]) == model.predict(["A man plays\tA dog"])).all()


def test_a_sentence_may_begin_with_a_bracket(folder: Path) -> None:
    task = Entailment(str(folder))
    for text, leaves in (
        ("(Outside) a man (sings)", "Outside a man sings"),
        ("(Outside) a man sings", "Outside a man sings"),
        ("( ( a man ) sings )", "a man sings"),
    ):
        pair = task.parse(f"{text}\t( a dog )")
        assert " ".join(leaf.label for leaf in pair.children[0].leaves()) == leaves


def test_wrong_pairs_are_told(folder: Path, tmp_path: Path) -> None:
    task = Entailment(str(folder))
    (tmp_path / "wrong.jsonl").write_text('{"gold_label": "entails", "sentence1": "a", "sentence2": "b"}\n')
    sides = '"premise": "a", "hypothesis": "b"'
    (tmp_path / "two.jsonl").write_text('{"gold_label": "neutral", "label": 0, ' + sides + "}\n")
    (tmp_path / "split").mkdir()
    for name in ("train", "dev", "test"):
        (tmp_path / "split" / f"{name}.jsonl").write_text('{"label": 0, "split": "train", ' + sides + "}\n")
    (folder / "more_dev.jsonl").touch()
    for act, error, named in (
        (lambda: task.parse("A man plays\t "), ParseError, "the sentence is empty"),
        (lambda: task.parse("( ( a man ) sings\tA dog"), ParseError, "not closed"),
        (lambda: task.examples(Forest.from_trees(["(X A man)"])), GraphError, "1 sentences make no pairs"),
        (lambda: task.read_examples(tmp_path / "wrong.jsonl"), ParseError, r"wrong\.jsonl, line 1: .*'entails'"),
        (lambda: task.read_examples(tmp_path / "two.jsonl"), ParseError, "gold_label 'neutral' and label 0"),
        (lambda: Entailment(str(tmp_path / "split")).vocabulary, RecipeError, r"train\.jsonl has a field 'split'"),
        (lambda: Entailment().make_data(EntailmentDataOptions()), RecipeError, "needs a folder of pairs"),
        (lambda: Entailment(str(folder)).vocabulary, RecipeError, r"2 files \*dev\.jsonl"),
    ):
        with pytest.raises(error, match=named):
            act()


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        (
            "hf.jsonl",
            "".join(f'{{"premise": "A man .", "hypothesis": "He .", "label": {label}}}\n' for label in (0, 1, 2.0, -1)),
            [0, 1, 2],
        ),
        ("hf.csv", "premise,hypothesis,label\na man,he,1.0\na man,he,\na man,he,-1\n\na man,he, 2 \n", [1, -1, 2]),
        (
            "snli.txt",
            "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tcaptionID\tlabel1\tlabel2\n"
            "neutral\t( A man )\t( A dog )\tc1\tneutral\n-\t( A man )\t( A dog )\tc1\tneutral\tneutral\n\n",
            [1],
        ),
        (
            "mnli.tsv",
            "index\tsentence1\tsentence2\tgold_label\n0\tA man\tA dog\thidden\n1\tA man\tHe\tENTAILMENT\n",
            [-1, 0],
        ),
        ("plain.txt", "A man\tA dog\tneutral\nA man\tA dog\n", [1, -1]),
    ],
)
def test_files_are_read_as_they_are_distributed(tmp_path: Path, name: str, text: str, labels: list[int]) -> None:
    (tmp_path / name).write_text(text)
    assert Entailment().read_examples(tmp_path / name).tree_data["label"][::2].tolist() == labels
    model = Model(Entailment(), ATTENTION)
    predict_file(model, tmp_path / name, tmp_path / "answers.jsonl")
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert sum(answer["error"] is None for answer in answers) == len(labels) + text.count("-1") + text.count("\n-\t")


def test_a_folder_may_have_text_files(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"snli_1.0_{split}.txt").write_text("gold_label\tsentence1\tsentence2\nneutral\tA man\tA dog\n")
    assert len(Entailment(str(tmp_path)).make_data(EntailmentDataOptions()).forest) == 6


def test_a_folder_may_be_that_of_multinli(tmp_path: Path) -> None:
    for place, name in enumerate(("train", "dev_matched", "dev_mismatched", "test_matched")):
        label = ("neutral", "entailment", "contradiction", "hidden")[place]
        (tmp_path / f"{name}.tsv").write_text(f"index\tsentence1\tsentence2\tgold_label\n0\tA man\tA dog\t{label}\n")
    forest = Entailment(str(tmp_path)).make_data(EntailmentDataOptions()).forest
    assert forest.tree_data["split"][::2].tolist() == ["train", "validation", "test"]
    assert forest.tree_data["label"][::2].tolist() == [1, 0, 2]
