"""Damaged files of each kind, through each reader: an error of treemem, or all that the file still holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem import Vocabulary
from treemem.errors import TreememError
from treemem.records import read_array, read_json, read_records, read_source, write_records
from treemem.runs.recipe import load_task_data
from treemem.tasks.equation_verification import read_equations
from treemem.tasks.equation_verification.completion.candidates import read_candidates
from treemem.tasks.language_modeling.readers import sentence_lines
from treemem.tasks.sentiment.readers import map_contextual_vectors, read_word_vectors
from treemem.tasks.syntactic_evaluation.readers import read_pairs
from treemem.tasks.table import task_from_table
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.penn import read_penn_trees
from treemem.trees.formats.sentiment import read_sentiment_trees

DAMAGES = 15
"""Damages of each file for each reader."""

TEXTS = ["x + y = y + x", "sin(x) = 2*y", "ä = b"]
RECORDS: dict[str, list[dict[str, Any]]] = {
    "equation_verification": [{"equation": "x + y = y + x", "label": 1}, {"equation": "x = 2*x", "label": 0}],
    "listops": [{"tree": "[MAX 2 9 ]", "label": 9}, {"tree": "[MIN 2 [MAX 4 7 ] ]", "label": 2}],
    "logical_inference": [{"label": "=", "left": "a", "right": "a"}, {"label": "#", "left": "a", "right": "b"}],
    "entailment": [{"sentence1": "a cat", "sentence2": "a dog", "label": "neutral"}] * 2,
    "reading": [{"document": "@entity0 sat", "query": "@placeholder sat", "answer": "@entity0"}] * 2,
    "transduction": [{"source": "( + 1 2 )", "target": "3"}] * 2,
    "text_to_text": [{"source": "jump twice", "target": "JUMP JUMP"}] * 2,
    "formal_languages": [{"source": "( )", "target": "1 0"}] * 2,
    "learning_to_execute": [{"source": "print(12)", "target": "12."}] * 2,
    "language_modeling": [{"text": "the cat sat"}, {"text": "a dog"}],
}


def damaged(content: bytes, count: int) -> Iterator[bytes]:
    """Yield copies with flipped, added, missing or foreign bytes, and beginnings."""
    draw = random.Random(len(content))
    for _ in range(count):
        made = bytearray(content)
        for _ in range(draw.choice((1, 1, 2, 8))):
            place, kind = draw.randrange(len(made) or 1), draw.randrange(5)
            if kind == 0:
                made[place : place + 1] = bytes([made[place] ^ 1 << draw.randrange(8)]) if made else b""
            elif kind == 1:
                made[place : place + draw.choice((1, 4, 40))] = b""
            elif kind == 2:
                made[place:place] = draw.choice((draw.randbytes(4), b"\xff", b'"', b"\n", b"[" * 2000, b"9" * 5000))
            elif kind == 3:
                made[place : place + 4] = draw.randbytes(4)
            else:
                del made[place:]
        yield bytes(made)


def survive(path: Path, read: Callable[[], object], count: int = DAMAGES) -> None:
    """Damage a file, and read it: nothing but an error of treemem may be raised."""
    content = path.read_bytes()
    for made in damaged(content, count):
        path.write_bytes(made)
        try:
            read()
        except TreememError as error:
            assert len(str(error)) < 3000  # noqa: PT017
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__}: {error}, of {made!r}") from error
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("task", "suffix"), [*zip(RECORDS, cycle(["jsonl", "parquet"])), *zip(RECORDS, cycle(["txt", "csv", "jsonl.gz"]))]
)
def test_records_of_tasks(tmp_path: Path, task: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_records(path, RECORDS[task])
    made, _ = load_task_data(task, [])
    survive(path, lambda: made.read_examples(path))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "txt", "parquet", "parquet.gz"])
def test_records_of_other_readers(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_records(path, [{"tree": "(f x y)", "label": 1}, {"tree": "(g x)", "label": 0}, {"tree": "x", "label": 0}])
    survive(path, lambda: task_from_table(path, tree="tree", target="label"))
    write_records(path, [{"good": "a cat sits", "bad": "a cat sit", "construction": "one"}] * 2)
    survive(path, lambda: read_pairs(path))
    write_records(path, [{"preorder": "Pi:pi", "class": 0}, {"preorder": "Add Pi:pi Pi:pi", "class": 1}])
    survive(path, lambda: read_candidates(path))
    write_records(path, [{"equation": text, "label": 1} for text in TEXTS])
    survive(path, lambda: read_equations(path))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "txt", "parquet", "parquet.gz", "csv.gz"])
def test_containers_with_checksums_give_all_records_or_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_records(path, [{"text": text, "number": number} for number, text in enumerate(TEXTS * 9)])
    read = partial(read_records, path, text_fields=("text", "number"), strict=False)
    whole = [record.fields for record in read()]

    def check() -> None:
        found = [record.fields for record in read()]
        if suffix.endswith("gz"):
            assert found == whole

    survive(path, check, 4 * DAMAGES)


def test_forests(tmp_path: Path) -> None:
    trees = map(parse_brackets, ["(f x (g y))", "x", "(f y=2 x)"])
    forest = Forest.from_trees(trees).with_data(tree_data={"label": [1, 2, 3]}, node_data={"a b": range(8)})
    forest.to_parquet(tmp_path / "forest.parquet")
    survive(tmp_path / "forest.parquet", lambda: Forest.from_parquet(tmp_path / "forest.parquet"), 4 * DAMAGES)
    forest.save(tmp_path / "folder")
    for path in sorted((tmp_path / "folder").iterdir()):
        for mmap in (True, False):
            survive(path, partial(Forest.load, tmp_path / "folder", mmap=mmap))
    assert Forest.load(tmp_path / "folder") == forest


def test_arrays_and_vectors(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    array = np.arange(12.0).reshape(4, 3)
    np.save(path, array)
    survive(path, lambda: read_array(path), 8 * DAMAGES)
    survive(path, lambda: map_contextual_vectors(path, 4), 4 * DAMAGES)
    assert (read_array(path) == array).all()
    np.savez(tmp_path / "b.npz", array)
    survive(tmp_path / "b.npz", lambda: read_array(tmp_path / "b.npz"))
    (tmp_path / "vectors.txt").write_text("2 3\nthe 0.1 0.2 0.3\ncat 1e3 -2 3\n")
    survive(tmp_path / "vectors.txt", lambda: read_word_vectors(tmp_path / "vectors.txt", {"the", "cat"}), 4 * DAMAGES)


def test_json_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Vocabulary(["x", "y"], [("f", 2)]).save(path)
    survive(path, lambda: Vocabulary.load(path), 4 * DAMAGES)
    survive(path, lambda: read_json(read_source(path), str(path)), 4 * DAMAGES)
    equation = '{"equation": {"func": "Equality,Pi,#,#,Pi,#,#", "vars": ",pi,,,pi,,"}, "label": "1"}'
    path.write_text(f"[[{equation}, {equation}]]")
    survive(path, lambda: read_equations(path), 4 * DAMAGES)
    path.write_text("( (S (NP (DT The) (NNS cats)) (VP (VBD slept))) )\n" * 2)
    survive(path, lambda: read_penn_trees(path))
    path.write_text("(3 (2 It) (4 (2 works) (2 .)))\n" * 2)
    survive(path, lambda: read_sentiment_trees(path))
    survive(path, lambda: list(sentence_lines(path)))
