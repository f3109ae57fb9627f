"""Minimal pairs: how they are read and scored, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from treemem.data.token_batch import TokenBatch
from treemem.errors import ParseError, RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.records import write_records
from treemem.runs import TrainingOptions, fit
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling
from treemem.tasks.language_modeling.generation.english import CONSTRUCTIONS, MinimalPair
from treemem.tasks.language_modeling.sentences import log_probabilities
from treemem.tasks.listops import ListOps
from treemem.tasks.syntactic_evaluation import read_pairs, score_pairs
from treemem.tasks.syntactic_evaluation.__main__ import main
from treemem.tasks.syntactic_evaluation.published import PUBLISHED, row_of
from treemem.trees.vocabulary import Vocabulary

TASK = LanguageModeling(words=120, steps=10)
NETWORK = NetworkConfig("LanguageModel", {"hidden_size": 8, "cell": "LSTM"})


def model_of() -> Model:
    torch.manual_seed(3)
    return Model(TASK, NETWORK).double()


def test_log_probabilities_are_those_of_each_sentence_alone() -> None:
    model = model_of().train()
    sentences = [["the", "boy", "laughs"], ["boys"], ["no", "girl", "ever", "sees", "the", "boys"]]
    number = {word: place for place, word in enumerate(model.vocabulary.leaves)}
    for end in (True, False):
        found = log_probabilities(model, sentences, end=end)
        assert model.training
        for sentence, own in zip(sentences, found, strict=True):
            words = [number[word] for word in ["<eos>", *sentence, "<eos>"]]
            model.eval()
            with torch.no_grad():
                scores = model(TokenBatch.from_sequences([words[:-1]]))[0].log_softmax(-1)
            model.train()
            each = [float(scores[place, word]) for place, word in enumerate(words[1:])]
            assert own == pytest.approx(sum(each if end else each[:-1]), abs=1e-9)
    found = log_probabilities(model, sentences)
    assert model.predict([" ".join(words) for words in sentences]) == pytest.approx(found.tolist(), abs=1e-9)
    counted: list[int] = []
    assert log_probabilities(model, [*sentences, sentences[1]], advance=counted.append)[3] == found[1]
    assert sum(counted) == 4


def test_the_batch_has_no_effect_where_the_end_of_a_sentence_is_not_the_first_word() -> None:
    torch.manual_seed(3)
    model = Model(TASK, NETWORK, Vocabulary(["a", "b", "<eos>"], [("Sequence", 1)])).double()
    alone = log_probabilities(model, [["b"]])
    assert log_probabilities(model, [["b"], ["a", "b", "a"]])[0] == pytest.approx(alone[0], abs=1e-12)


def test_a_pair_is_correct_if_the_good_sentence_is_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {("a",): -1.0, ("b",): -2.0, ("c",): -2.0}
    pairs = [MinimalPair("x", ("a",), ("b",)), MinimalPair("y", ("b",), ("c",)), MinimalPair("x", ("c",), ("a",))]
    name = "treemem.tasks.syntactic_evaluation.scoring.log_probabilities"
    monkeypatch.setattr(name, lambda model, sentences, **options: [values[words] for words in sentences])
    scores = score_pairs(model_of(), pairs)
    assert [score[:4] for score in scores] == [("x", 2, 0.5, 0.0), ("y", 1, 0.0, 0.0), ("all", 3, 1 / 3, 0.0)]
    with pytest.raises(RecipeError, match="no minimal pairs"):
        score_pairs(model_of(), [])


def test_pairs_whose_words_are_all_known_are_scored_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(TASK, NETWORK, Vocabulary(["<eos>", "<unk>", "a", "b"], [], unknown="<unk>"))
    values = {("a",): -1.0, ("b",): -2.0, ("c",): -3.0, ("<unk>",): -4.0}
    pairs = [MinimalPair("x", ("b",), ("a",)), MinimalPair("x", ("a",), ("c",)), MinimalPair("y", ("b",), ("<unk>",))]
    name = "treemem.tasks.syntactic_evaluation.scoring.log_probabilities"
    monkeypatch.setattr(name, lambda model, sentences, **options: [values[words] for words in sentences])
    scores = {score.construction: (score.accuracy, *score[4:]) for score in score_pairs(model, pairs)}
    assert scores == {"x": (0.5, 1, 0.0), "y": (1.0, 0, None), "all": (2 / 3, 1, 0.0)}


def test_other_models_and_unknown_words_are_refused() -> None:
    listops = Model(ListOps(), NetworkConfig("LSTM", {"hidden_size": 4}))
    with pytest.raises(RecipeError, match="a model of listops is no language model"):
        score_pairs(listops, [MinimalPair("x", ("1",), ("2",))])
    with pytest.raises(VocabularyError, match="sentence 2 has the word 'boi'"):
        score_pairs(model_of(), [MinimalPair("x", ("boy",), ("boi",))])


def test_lines_and_records_are_pairs(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("the boy laughs\tthe boy laugh\nA b\tA c\tname\n")
    (tmp_path / "a.jsonl").write_text('{"good": "x y", "bad": "x z", "construction": "c"}\n{"good": "p", "bad": "q"}\n')
    (tmp_path / "README.md").write_text("no pairs")
    write_records(tmp_path / "c.my.csv.gz", [{"good": "s", "bad": "t"}])
    assert read_pairs(tmp_path / "b.tsv") == [
        MinimalPair("b", ("the", "boy", "laughs"), ("the", "boy", "laugh")),
        MinimalPair("name", ("A", "b"), ("A", "c")),
    ]
    found = read_pairs(tmp_path, stop=True)
    assert [pair.construction for pair in found] == ["c", "a", "b", "name", "c.my"]
    assert found[3].good == ("a", "b", ".")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a b", "the bad sentence is missing"),
        ("\ta b", "the good sentence is missing"),
        ("a\ta", "both sentences are the same"),
        ("a\tb\tc\td", "4 parts between tabs"),
        ("a\tbb", "unknown word 'bb' in the bad sentence"),
        ("a\tabc bc", "column 5: unknown word 'bc'"),
    ],
)
def test_what_is_no_pair_is_told_with_its_line(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(f"a\tb\n{line}\n")
    with pytest.raises((ParseError, VocabularyError), match=problem) as error:
        read_pairs(path, Vocabulary(["a", "b", "abc"], []))
    assert "pairs.txt, line 2" in str(error.value)


def test_a_vocabulary_with_an_unknown_word_refuses_none_and_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("a\tz\n")
    assert len(read_pairs(path, Vocabulary(["a", "<unk>"], [], unknown="<unk>"))) == 1
    path.write_text("")
    with pytest.raises(RecipeError, match="no minimal pairs in"):
        read_pairs(path)


def test_published_files_are_the_rows_of_the_published_table(tmp_path: Path) -> None:
    (tmp_path / "simple_npi_anim.jsonl").write_text('{"good": "no a b", "intrusive": "the a b", "bad": "most a b"}\n')
    (tmp_path / "obj_rel_anim.jsonl").write_text(
        '{"good": "a", "bad": "b", "key": "sing_MS_MV_plur_ES_EV"}\n'
        '{"good": "c", "bad": "d", "key": "plur_ES_EV_sing_MS_MV"}\n'
    )
    pairs = read_pairs(tmp_path)
    assert [(pair.construction, pair.good[0], pair.bad[0]) for pair in pairs] == [
        ("agreement: across an object relative", "a", "b"),
        ("agreement: in an object relative", "c", "d"),
        ("polarity: simple: grammatical, intrusive", "no", "the"),
        ("polarity: simple: intrusive, ungrammatical", "the", "most"),
        ("polarity: simple: grammatical, ungrammatical", "no", "most"),
    ]
    assert {pair.construction for pair in pairs} <= set(PUBLISHED)
    assert row_of("other", "") == "other"


def test_the_command_scores_a_trained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = TrainingOptions(epochs=1, batch_size=8)
    fit(TASK, NETWORK, TASK.make_data(LanguageDataOptions(60, 10, 10)), options, output=tmp_path / "run")
    output = tmp_path / "scores.jsonl"
    assert main([str(tmp_path / "run"), "--count", "5", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record["construction"] for record in records] == [*CONSTRUCTIONS, "all"]
    assert records[-1]["pairs"] == 5 * len(CONSTRUCTIONS)
    assert all(record["construction"] in printed for record in records)
    (tmp_path / "simple_agrmt.tsv").write_text("The boy laughs\tthe boy laugh\n")
    assert main([str(tmp_path / "run"), "--pairs", str(tmp_path / "simple_agrmt.tsv")]) == 2
    assert "unknown word 'The'" in capsys.readouterr().err
