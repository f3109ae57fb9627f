"""The generated sentences of Marvin & Linzen 2018 are the published ones, and a model is scored on them."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

import treemem
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling
from treemem.tasks.syntactic_evaluation import __main__ as command
from treemem.tasks.syntactic_evaluation import read_pairs, template_pairs
from treemem.tasks.syntactic_evaluation.generation.__main__ import main as write_templates
from treemem.tasks.syntactic_evaluation.published import PUBLISHED

PUBLISHED_FILES = Path(treemem.__file__).parents[2] / "shared" / "data" / "syneval"


def test_the_templates_make_the_rows_of_the_published_table_with_their_numbers_of_pairs() -> None:
    pairs = template_pairs()
    assert len(set(pairs)) == len(pairs)
    counts = Counter(pair.construction.split(": grammatical")[0].split(": intrusive")[0] for pair in pairs)
    assert counts == {
        "agreement: simple": 140,
        "agreement: sentential complement": 1_680,
        "agreement: short VP coordination": 840,
        "agreement: long VP coordination": 400,
        "agreement: across a prepositional phrase": 22_400,
        "agreement: across a subject relative": 11_200,
        "agreement: across an object relative": 22_400,
        "agreement: in an object relative": 22_400,
        "agreement: across an object relative without that": 22_400,
        "agreement: in an object relative without that": 22_400,
        "reflexive: simple": 280,
        "reflexive: sentential complement": 3_360,
        "reflexive: across a relative": 22_400,
        "polarity: simple": 3 * 264,
        "polarity: across a relative": 3 * 10_560,
    }
    assert {pair.construction for pair in pairs} == PUBLISHED.keys()
    different = Counter(
        (pair.construction[:8], sum(a != b for a, b in zip(pair.good, pair.bad, strict=True))) for pair in pairs
    )
    assert different.keys() == {("agreemen", 1), ("reflexiv", 1), ("polarity", 1), ("polarity", 2)}


@pytest.mark.parametrize(
    ("file", "good", "bad"),
    [
        ("long_vp_coord", "is twenty three years old and knows", "is twenty three years old and know"),
        ("subj_rel", "the pilot that loves the taxi drivers is", "the pilot that loves the taxi drivers are"),
        ("obj_rel_no_comp", "the pilots the chef loves", "the pilots the chef love"),
        ("reflexives", "the pilots that the chef likes hurt themselves", "the pilots that the chef likes hurt herself"),
        ("npi_anim", "few pilots that the chefs love will", "many pilots that the chefs love will"),
        ("npi_anim", "few pilots that the chefs love will", "the pilots that few chefs love will"),
    ],
)
def test_an_example_of_a_template(file: str, good: str, bad: str) -> None:
    pairs = [(" ".join(pair.good), " ".join(pair.bad)) for pair in template_pairs(file)]
    assert any(good in own and bad in other for own, other in pairs)


@pytest.mark.skipif(not PUBLISHED_FILES.is_dir(), reason="the published sentences are not beside the checkout")
def test_the_templates_make_exactly_the_pairs_of_each_published_file() -> None:
    files = sorted(PUBLISHED_FILES.iterdir())
    assert len(files) == 18
    for file in files:
        name = file.name.partition(".")[0]
        assert set(template_pairs(name, stop=True)) == set(read_pairs(file, stop=True)), name


def test_the_written_file_is_read_as_the_same_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = functools.partial(template_pairs, "simple_npi_inanim")
    monkeypatch.setattr("treemem.tasks.syntactic_evaluation.generation.__main__.template_pairs", pairs)
    for name in ("pairs.tsv", "pairs.jsonl.gz"):
        assert write_templates([str(tmp_path / name)]) == 0
        assert read_pairs(tmp_path / name) == pairs()
    assert capsys.readouterr().err == "432 pairs\n432 pairs\n"
    assert write_templates([str(tmp_path / "pairs.tsv")]) == 2
    assert "exists" in capsys.readouterr().err


def test_the_command_scores_the_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = functools.partial(template_pairs, "simple_npi_anim")
    monkeypatch.setattr(command, "template_pairs", pairs)
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("no authors have ever been popular .\nmost <unk> .\n" * 20)
    task = LanguageModeling(path=str(tmp_path), steps=5)
    network = NetworkConfig("LanguageModel", {"hidden_size": 8, "cell": "LSTM"})
    data, options = task.make_data(LanguageDataOptions()), TrainingOptions(epochs=3, batch_size=2, learning_rate=0.03)
    fit(task, network, data, options, output=tmp_path / "run")
    assert command.main([str(tmp_path / "run"), "--templates", "--published"]) == 0
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:2] for row in table[:3]] == [
        ["polarity: simple: grammatical, intrusive", "120"],
        ["polarity: simple: intrusive, ungrammatical", "120"],
        ["polarity: simple: grammatical, ungrammatical", "120"],
    ]
    unknown = ["0", ""]
    assert [row[3:] for row in table[:3]] == [[*unknown, "18", "100"], [*unknown, "50", "1"], ["1", "100.0", "7", "63"]]
    assert table[0][2] == "50.0"  # "few" and "some" are unknown words, so the model cannot tell such sentences apart
