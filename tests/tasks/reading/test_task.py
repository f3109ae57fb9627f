"""Questions about documents of facts: one answer each, disjoint splits, files, training."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.explore import explore
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.records import write_records
from treemem.tasks.reading import Reading, ReadingDataOptions
from treemem.tasks.reading.data import split_of_question
from treemem.tasks.reading.documents import PLACEHOLDER, RELATIONS, draw_question, guesses, is_entity
from treemem.trees.forest import Forest

SMALL = ReadingDataOptions(60, 20, 30, (1, 4), (1, 12), entities=4, seed=3)
DOCUMENT = "@entity1 hired @entity2 . @entity3 hired @entity1 . @entity1 called @entity3 ."
RECORDS = [
    {"document": DOCUMENT, "query": "@entity1 gave @placeholder a job .", "answer": "@entity2", "split": "train"},
    {"context": DOCUMENT, "question": "@entity1 was hired by @placeholder .", "answer": "@entity3", "split": "test"},
    {"document": DOCUMENT, "query": "@placeholder was called by @entity1", "answer": "@entity3", "split": "validation"},
]
QUESTION = """http://example.org/story

@entity1 ( @entity0 ) hired @entity2 .

@placeholder was hired by @entity1

@entity2

@entity0:CNN
@entity1:Ada
@entity2:Grace
"""


def facts_of(sentence: list[str]) -> set[tuple[int, str, str]]:
    """The facts that a sentence may say, as relation, subject and object."""
    found = set()
    for relation, forms in enumerate(RELATIONS):
        for form in forms:
            words = form.split()
            if len(words) == len(sentence):
                ends = dict(zip(words, sentence, strict=True))
                if all(word in "SO" or word == own for word, own in zip(words, sentence, strict=True)):
                    found.add((relation, ends["S"], ends["O"]))
    return found


def sentences(tokens: list[str]) -> list[list[str]]:
    return [text.split() for text in " ".join(tokens).split(" .") if text]


@pytest.mark.parametrize("facts", [1, 2, 3, 8, 20])
def test_a_query_is_a_paraphrase_of_one_fact_and_has_one_answer(facts: int) -> None:
    generator = random.Random(facts)
    names = [f"@entity{number}" for number in range(9, 4, -1)]
    for _ in range(60):
        document, query, answer = draw_question(facts, 5, 10, generator).renamed(names)
        said = [facts_of(sentence) for sentence in sentences(document)]
        assert [len(each) for each in said] == [1] * facts
        assert len(set.union(*said)) == facts
        answers = []
        for entity in names:
            asked = [entity if token == PLACEHOLDER else token for token in query]
            (fact,) = facts_of(sentences(asked)[0])
            answers += [entity] if {fact} in said else []
            assert sentences(asked)[0] not in sentences(document)
        assert answers == [answer]


def test_most_queries_need_the_relation_and_the_other_entity() -> None:
    generator = random.Random(1)
    questions = [
        draw_question(6, 6, 10, generator).renamed([f"@entity{number}" for number in range(6)]) for _ in range(300)
    ]
    for name in ("maximum frequency", "exclusive frequency", "nearest"):
        correct = np.mean([guesses(document, query)[name] == answer for document, query, answer in questions])
        assert 0 < correct < 0.5, name


def test_the_baselines_by_hand() -> None:
    document = ["@entity1", "met", "@entity2", ".", "@entity3", "saw", "@entity2", "and", "@entity1", "."]
    assert guesses(document, ["@placeholder", "met", "@entity2", "."]) == {
        "maximum frequency": "@entity1",
        "exclusive frequency": "@entity1",
        "nearest": "@entity1",
    }
    assert (
        guesses(document, ["@placeholder", "met", "@entity1", "and", "@entity2", "."])["exclusive frequency"]
        == "@entity3"
    )
    assert guesses(document, ["@placeholder", "slept", "."])["nearest"] is None


def test_questions_are_in_one_split_alone_whatever_their_entities_are_called() -> None:
    task = Reading()
    data = task.make_data(SMALL)
    records = list(task.records_of(data.forest))
    assert [sum(r["split"] == name for r in records) for name in ("train", "validation", "test")] == [60, 20, 30]
    seen: dict[str, str] = {}
    for record in records:
        names = [token for token in record["document"].split() if is_entity(token)]
        assert record["answer"] in names
        text = f"{record['document']} {record['query']}"
        for number, name in enumerate(dict.fromkeys(names)):
            text = " ".join(f"#{number}" if token == name else token for token in text.split())
        assert seen.setdefault(text, record["split"]) == record["split"]
    facts = [record["document"].count(".") for record in records]
    assert facts[:60] == [1, 2, 3, 4] * 15
    assert set(facts[80:]) == set(range(1, 13))
    assert len({record["answer"] for record in records}) == task.num_entities
    assert "| validation | 20 |" in data.card
    assert task.examples(data.forest).digest() == task.examples(task.make_data(SMALL).forest).digest()
    question = draw_question(3, 4, 10, random.Random(1))
    assert split_of_question(question) in ("train", "validation", "test")


def test_questions_without_an_answer_are_read_back(tmp_path: Path) -> None:
    task = Reading()
    records = [{**record, "answer": None} for record in task.records_of(task.make_data(SMALL).forest)]
    for name in ("questions.jsonl", "questions.csv"):
        write_records(tmp_path / name, records)
        assert [record["answer"] for record in task.records_of(task.read_examples(tmp_path / name))] == [None] * len(
            records
        )


def test_files_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    task = Reading(str(tmp_path / "own.jsonl"), num_entities=5, least_count=1)
    data = task.make_data(ReadingDataOptions())
    assert [record["answer"] for record in task.records_of(data.forest)] == ["@entity2", "@entity3", "@entity3"]
    assert {"job", "called", "@entity4", PLACEHOLDER} <= {*task.vocabulary.leaves}
    assert "was" not in task.vocabulary.leaves
    assert "| train | 1 | 0.0 | 0.0 | 100.0 |" in data.card
    assert [task.group_name(int(group)) for group in task.examples(data.forest).group] == ["9-16"] * 3
    unanswered = {name: value for name, value in RECORDS[0].items() if name != "answer"}
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*RECORDS, unanswered]))
    again = Reading(str(tmp_path / "own.jsonl"), num_entities=5, least_count=1).make_data(ReadingDataOptions())
    assert len(again.forest) == len(data.forest) + 2
    assert again.card == data.card


def test_the_published_form(tmp_path: Path) -> None:
    for folder in ("training", "validation", "test"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.question").write_text(QUESTION)
    task = Reading(str(tmp_path), least_count=1)
    records = list(task.records_of(task.make_data(ReadingDataOptions()).forest))
    assert records[0] == {
        "document": "@entity1 ( @entity0 ) hired @entity2 .",
        "query": "@placeholder was hired by @entity1",
        "answer": "@entity2",
        "split": "train",
    }
    assert [record["split"] for record in records] == ["train", "validation", "test"]
    (tmp_path / "test" / "two.question").write_text("url\n\n@entity1 .\n")
    with pytest.raises(ParseError, match=r"two\.question.*the file has 2 sections"):
        Reading(str(tmp_path)).make_data(ReadingDataOptions())
    (tmp_path / "test" / "two.question").write_bytes(b"url\n\n\xff\n")
    with pytest.raises(ParseError, match=r"two\.question"):
        Reading(str(tmp_path)).make_data(ReadingDataOptions())
    (tmp_path / "validation" / "one.question").unlink()
    with pytest.raises(RecipeError, match=r"validation has no files \*\.question"):
        Reading(str(tmp_path)).make_data(ReadingDataOptions())


@pytest.mark.parametrize("network", ["AttentiveReader", "ImpatientReader"])
def test_a_reader_reads_records_as_texts_and_shows_what_it_attends_to(network: str, tmp_path: Path) -> None:
    model = Model(Reading(num_entities=5), NetworkConfig(network, {"hidden_size": 8})).eval()
    question = f"{DOCUMENT}\t@entity1 gave @placeholder a job ."
    explore(model, [question], tmp_path / "page.html")
    assert '"attention"' in (tmp_path / "page.html").read_text()
    assert (model.predict([RECORDS[0]]) == model.predict([question])).all()


def test_wrong_questions_and_options_are_told(tmp_path: Path) -> None:
    task = Reading(num_entities=3)
    facts: tuple[Any, ...] = ((2, 60), 2, (1.5, 2))
    for act, error, named in (
        (lambda: task.parse(" \t@placeholder slept"), ParseError, "the document is empty"),
        (lambda: task.parse("@entity1 slept\t@entity1 slept"), ParseError, "the query has no @placeholder"),
        (lambda: task.examples(Forest.from_trees(["(X @entity1 slept)"])), GraphError, "1 texts make no pairs"),
        (lambda: task.make_data(ReadingDataOptions()), RecipeError, r"data\.entities=6 .* the 3 entity markers"),
        *((lambda e=each: ReadingDataOptions(entities=3, test_facts=e), RecipeError, "test_facts") for each in facts),
    ):
        with pytest.raises(error, match=named):
            act()
    for answer in ("@entity7", ["@entity1"], {"a": 1}, 0, False):
        (tmp_path / "own.jsonl").write_text(json.dumps({**RECORDS[0], "answer": answer}))
        with pytest.raises(
            ParseError, match=rf"own\.jsonl, line 1: the answer is .?{re.escape(str(answer))}.*one of the 3"
        ):
            task.read_examples(tmp_path / "own.jsonl")
