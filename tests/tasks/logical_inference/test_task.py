from __future__ import annotations

import functools
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.checkpoint import load
from treemem.data.examples import Examples
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.tasks.logical_inference import (
    RELATIONS,
    LogicalInference,
    LogicDataOptions,
    LogicPairs,
    generate_logic,
    read_logic_folder,
    relations,
    truth_tables,
)
from treemem.tasks.logical_inference.data import divided, examples_with, held_out_pattern
from treemem.trees.forest import Forest
from treemem.trees.formats.logic import parse_logic
from treemem.trees.formats.record_reader import SPLITS


@pytest.fixture(scope="module")
def published_files() -> Callable[..., tuple[LogicPairs, NDArray[np.bool_]]]:
    return functools.cache(read_logic_folder)


@pytest.fixture
def _read_once(
    monkeypatch: pytest.MonkeyPatch, published_files: Callable[..., tuple[LogicPairs, NDArray[np.bool_]]]
) -> None:
    """Read the published files once for all tests that divide them."""
    monkeypatch.setattr("treemem.tasks.logical_inference.data.read_logic_folder", published_files)


def test_the_published_files_are_read_whole_and_every_label_holds(
    shared_data: Path, published_files: Callable[..., tuple[LogicPairs, NDArray[np.bool_]]]
) -> None:
    pairs, is_test = published_files(str(shared_data / "logic"))
    assert (len(pairs), int(is_test.sum())) == (249_069, 37_367)
    train = [30, 2319, 12451, 23252, 30373, 34152, 32952, 26671, 18962, 12634, 8181, 4894, 4831]
    test = [6, 410, 2198, 4104, 5361, 6027, 5816, 4707, 3347, 2230, 1444, 864, 853]
    assert np.bincount(pairs.operations[~is_test]).tolist() == train
    assert np.bincount(pairs.operations[is_test]).tolist() == test
    begin = 0
    for name in ("train", "test"):
        with gzip.open(shared_data / "logic" / f"{name}.tsv.gz", "rt") as lines:
            texts = [line.rstrip("\n").split("\t")[1:] for line in lines][1:]
        part = slice(begin, begin + len(texts))
        assert [RELATIONS[label] for label in pairs.label[part]] == [text[0] for text in texts]
        some = range(0, len(texts), 97)
        trees = pairs.forest[[2 * (begin + pair) + side for pair in some for side in (0, 1)]]
        written = [" ".join(words) for words in trees.tokens("bracketed leaves").strings()]
        assert written == [side for pair in some for side in texts[pair][1:]]
        begin += len(texts)


def test_generated_pairs_are_distinct_and_labelled_rightly() -> None:
    pairs, _ = generate_logic(3000, seed=5)
    texts = [" ".join(words) for words in pairs.forest.tokens("bracketed leaves").strings()]
    assert len(set(zip(texts[::2], texts[1::2], strict=True))) == 3000
    assert (pairs.label == relations(*truth_tables(pairs.forest).reshape(-1, 2).T)).all()
    variables = [
        {word for word in f"{left} {right}".split() if len(word) == 1 and word.isalpha()}
        for left, right in zip(texts[::2], texts[1::2], strict=True)
    ]
    assert max(map(len, variables)) == 4
    assert not any("not ( not" in text for text in texts)


def test_generated_pairs_have_the_shares_of_the_published_ones(shared_data: Path) -> None:
    from treemem.tasks.logical_inference import read_logic

    published = read_logic(shared_data / "logic" / "test.tsv.gz")
    generated, _ = generate_logic(len(published), max_operations=19)
    for name in ("operations", "label"):
        counts = [np.bincount(getattr(pairs, name), minlength=13) / len(pairs) for pairs in (published, generated)]
        assert np.abs(counts[0] - counts[1]).max() < 0.04, name


def test_drawing_stops_where_new_pairs_have_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treemem.tasks.logical_inference.generation.generator._FRUITLESS", 15)
    with pytest.raises(RecipeError, match=r"the last 15 pairs drawn .* size is 7000; ask for \d+ or fewer") as caught:
        generate_logic(7000, max_operations=1)
    enough = int(str(caught.value).split("ask for ")[1].split()[0])
    assert len(generate_logic(enough, max_operations=1)[0]) == enough


@pytest.mark.parametrize(
    ("hold_out", "train", "validation", "test"),
    [
        (None, 121_977, 13_552, 37_367),
        ("A", 116_073, 12_896, 1_369),
        ("B", 79_154, 8_794, 9_257),
        ("C", 46_707, 5_189, 12_757),
    ],
)
@pytest.mark.usefixtures("_read_once")
def test_the_published_splits_have_the_published_sizes(
    shared_data: Path, hold_out: str | None, train: int, validation: int, test: int
) -> None:
    task = LogicalInference()
    data = task.make_data(LogicDataOptions(path=str(shared_data / "logic"), hold_out=hold_out))
    examples = task.examples(data.forest)
    assert [len(examples.part(split)) for split in ("train", "validation", "test")] == [train, validation, test]
    assert examples.group[examples.part("train")].max() == 6
    if hold_out is not None:
        assert examples.group[examples.part("test")].min() == 7


def test_the_last_of_every_so_many_short_pairs_validates_and_what_is_held_out_is_tested_beyond_them() -> None:
    operations = np.array([1, 6, 7, 2, 3, 8, 4, 9, 7])
    is_test = np.array([False, False, False, False, False, True, True, True, False])
    limits = {"max_training_operations": 6, "validation_every": 2}
    t, v, e = "train", "validation", "test"
    assert divided(operations, is_test, None, **limits).tolist() == [t, v, "", t, v, e, e, e, ""]
    held_out = np.array([False, True, False, False, True, True, True, False, True])
    assert divided(operations, is_test, held_out, **limits).tolist() == [t, "", "", v, "", e, "", "", ""]
    given = np.array([True, True, True, False, False, False, False, False, False])
    assert divided(operations, is_test, None, given, **limits).tolist() == [v, v, "", t, t, e, e, e, ""]
    assert divided(operations, is_test, held_out, given, **limits).tolist() == [v, "", "", t, "", e, "", "", ""]


def test_the_validation_files_of_a_folder_validate_and_nothing_else_does(tmp_path: Path) -> None:
    lines = {
        "train0": ["=\ta\ta", "=\tb\tb", "=\tc\tc"],
        "train1": ["=\t( not a )\t( not a )"],
        "validation.tsv": ["=\td\td", "=\t( not d )\t( not d )"],
        "test": ["=\te\te"],
    }
    for name, own in lines.items():
        (tmp_path / name).write_text("\n".join(own))
    options: dict[str, Any] = {"path": str(tmp_path), "validation_every": 2, "max_training_operations": 0}
    for hide, test in ((False, ["e"]), (True, ["( not a )"])):
        data = LogicalInference().make_data(LogicDataOptions(**options, hide_test=hide))
        examples = LogicalInference().examples(data.forest)
        left = {split: sorted(side for side, _ in texts_of(pairs_of(examples, split))) for split in SPLITS}
        assert left == {"train": ["a", "b", "c"], "validation": ["d"], "test": test}
        assert "of these, those of the validation files are for validation" in data.card


def pairs_of(examples: Examples, split: str) -> Forest:
    return examples.forest[(2 * examples.part(split)[:, None] + np.arange(2)).ravel()]


def texts_of(pairs: Forest) -> set[tuple[str, ...]]:
    formulas = [" ".join(words) for words in pairs.tokens("bracketed leaves").strings()]
    return set(zip(formulas[::2], formulas[1::2], strict=True))


@pytest.mark.usefixtures("_read_once")
def test_a_recipe_is_chosen_with_longer_pairs_of_the_training_files_and_no_test_pair(shared_data: Path) -> None:
    task, path = LogicalInference(), str(shared_data / "logic")
    shown, hidden = (
        task.examples(task.make_data(LogicDataOptions(path=path, hide_test=hide)).forest) for hide in (False, True)
    )
    assert pairs_of(hidden, "train") == pairs_of(shown, "train")
    assert pairs_of(hidden, "validation") == pairs_of(shown, "validation")
    of_test = hidden.group[hidden.part("test")]
    assert len(of_test) == 76_173
    assert of_test.min() == 7
    tested = Forest.concatenate([pairs_of(each, "test").with_data() for each in (shown, hidden)])
    subtrees = SubtreeIndex(tested, task.vocabulary)
    left, right = subtrees.number[tested.begin[1:] - 1].reshape(-1, 2).T
    of_shown, of_hidden = np.split(left.astype(np.int64) * subtrees.num_distinct + right, [len(shown.part("test"))])
    assert not np.isin(of_hidden, of_shown).any()


def test_what_is_held_out_is_in_every_test_pair_and_in_no_other() -> None:
    task = LogicalInference()
    data = task.make_data(LogicDataOptions(size=4000, hold_out="( or ( not _ ) )"))
    found = examples_with(data.forest, held_out_pattern("( or ( not _ ) )"), 2)
    assert (found == (data.forest.tree_data["split"][::2] == "test")).all()
    operations = data.forest.tree_data["operations"][::2]
    assert operations[found].min() == 7
    assert operations[~found].max() == 6


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [("( _ _ )", 3), ("( a|b _ )", 1), ("( _ ( _ c ) )", 1), ("( or ( not _ ) )", 1), ("( _ ( or|and _ ) )", 2)],
)
def test_a_pattern_may_hold_out_any_bracket_that_formulas_have(pattern: str, matching: int) -> None:
    texts = ["a", "( not a )", "( a ( and c ) )", "( ( not c ) ( or ( not f ) ) )"]
    forest = Forest.from_trees(parse_logic(text) for text in texts)
    assert held_out_pattern(pattern).occurs(forest).sum() == matching


def test_fewer_pairs_for_training_are_some_of_them_and_leave_the_others() -> None:
    task = LogicalInference()
    whole, part = (
        task.examples(task.make_data(LogicDataOptions(size=3000, training_size=size)).forest) for size in (None, 200)
    )
    assert len(part.part("train")) == 200
    for split in ("validation", "test"):
        assert len(part.part(split)) == len(whole.part(split))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hold_out": "( and"}, "neither A, B, C nor a pattern"),
        ({"hold_out": "D"}, "^hold_out: 'D' is none of A, B, C, and no pattern in brackets such as"),
        ({"hold_out": "a"}, r"'a' is none of .* did you mean A\?$"),
        ({"hold_out": "( and|xor ( not _ ) )"}, "the word 'xor'; did you mean or"),
        ({"hold_out": "( and| _ )"}, r"the word ''; there are _ a b c d e f not and or"),
        ({"validation_every": 1}, "validation_every must be at least 2"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"hide_test": True}, "hide_test goes with path"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        LogicDataOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 4}, "leave no pair for"),
        (
            {"hold_out": "( a ( and ( ( not a ) ( and ( ( not b ) ( and c ) ) ) ) ) )"},
            r"hold_out='\( a .* 0 of 300 pairs",
        ),
        ({"hold_out": "( a b )"}, r"no pair for test; .*: hold_out='\( a b \)' occurs in 0 of"),
        ({"training_size": 300}, "training_size is 300, .* 162 pairs .*; data.training_size=null takes them"),
    ],
)
def test_options_that_leave_too_few_pairs_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        LogicalInference().make_data(LogicDataOptions(**{"size": 300, **options}))


def test_a_pair_from_text_and_a_forest_of_pairs_are_the_same_examples() -> None:
    task = LogicalInference()
    model = Model(task, NetworkConfig("TreeRNN", {"hidden_size": 4}))
    texts = ["a\t( not a )", "( a ( and b ) )\tb"]
    probabilities = model.predict(texts)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    sides = Forest.from_trees([side for text in texts for side in task.parse(text).children])
    np.testing.assert_array_equal(model.predict(sides), probabilities)
    with pytest.raises(GraphError, match="make no pairs"):
        task.examples(sides[:3])


def test_each_form_has_its_vocabulary_and_tells_operators_apart_in_sequences() -> None:
    variables = ("a", "b", "c", "d", "e", "f")
    for form, leaves, functions, expected in (
        ("binary", (*variables, "not", "and", "or"), (("X", 2),), "( a ( and b ) )"),
        ("operators", variables, (("not", 1), ("and", 2), ("or", 2)), "and ( a , b )"),
    ):
        task = LogicalInference(form=form)  # type: ignore[arg-type]
        assert (task.vocabulary.leaves, task.vocabulary.functions) == (leaves, functions)
        assert Model(task, NetworkConfig("LSTM", {"hidden_size": 4})).encoder.form == task.token_form
        words = Forest.from_trees(task.parse("( a ( and b ) )\ta").children).tokens(task.token_form).strings()
        assert " ".join(words[0]) == expected


def test_the_head_is_that_of_the_paper_with_its_two_dropouts() -> None:
    torch.manual_seed(0)
    head = LogicalInference().head(4)
    left, right = torch.randn(5, 4), torch.randn(5, 4)
    compared = torch.cat([left, right, (left - right).abs(), left * right], dim=1)
    expected = head.classify(functional.elu(head.compare(compared)))
    torch.testing.assert_close(head(torch.stack([left, right], dim=1)), expected)
    task = LogicalInference(dropout=0.25)
    assert (task.head(4).dropout, task.head(4).feature_dropout, task.joint_head(4).dropout) == (0.25, 0.25, 0.25)
    assert task.joint_head(4)(torch.zeros(3, 1, 4)).shape == (3, 7)
    with pytest.raises(RecipeError, match=r"^dropout must be a probability"):
        LogicalInference(dropout=1.5)


JOINT = {"hidden_size": 8, "num_heads": 2, "feedforward_size": 16, "joint": True}


@pytest.mark.parametrize(
    "config",
    [
        NetworkConfig("Transformer", {**JOINT, "num_layers": 1}),
        NetworkConfig("UniversalTransformer", {**JOINT, "num_steps": 2}),
    ],
    ids=lambda config: config.network,
)
def test_a_network_that_reads_both_formulas_as_one_sequence_learns_and_is_loaded_again(
    config: NetworkConfig, tmp_path: Path
) -> None:
    task = LogicalInference()
    data = task.make_data(LogicDataOptions(size=600, max_operations=4, max_training_operations=3))
    options = TrainingOptions(epochs=3, batch_size=32, learning_rate=0.01, seed=1)
    result = fit(task, config, data.forest, options, output=tmp_path, progress=False)
    losses = [record["loss"] for record in result.records]
    assert losses[-1] < losses[0]
    texts = ["a\t( not a )", "( a ( and b ) )\tb"]
    found = result.model.predict(texts)
    np.testing.assert_allclose(found.sum(1), 1)
    assert np.abs(found - result.model.predict(["( not a )\ta", "b\t( a ( and b ) )"])).max() > 1e-3, "order counts"
    again = load(tmp_path)
    assert again.encoder.joint
    np.testing.assert_array_equal(again.predict(texts), found)


def test_training_pairs_that_are_tested_on_too_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.tsv").write_text("=\ta\ta\n#\ta\tb\n#\tb\ta\n#\tb\tc\n")
    (tmp_path / "validation.tsv").write_text("#\tb\tc\n#\ta\tb\n")
    (tmp_path / "test.tsv").write_text("=\ta\ta\n#\ta\tb\n")
    for form in ("binary", "operators"):
        caplog.clear()
        found = LogicalInference(form=form).make_data(LogicDataOptions(path=str(tmp_path)))  # type: ignore[arg-type]
        assert "3 of the 4 pairs to train on" in caplog.text
        assert ", 3 of whose training pairs are among those to validate and test with, too" in found.card
    caplog.clear()
    (tmp_path / "train.tsv").write_text("#\tb\ta\n")
    assert "among those" not in LogicalInference().make_data(LogicDataOptions(path=str(tmp_path))).card
    assert not caplog.text
