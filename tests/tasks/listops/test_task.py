from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from treemem.errors import RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor
from treemem.runs import evaluate, fit, parse_recipe
from treemem.tasks.listops import ListOps, ListOpsDataOptions
from treemem.tasks.listops.task import GroupBy, length_bin, num_tokens
from treemem.trees import Forest
from treemem.trees.formats.listops import ListOpsForm

TASK, NARY = ListOps(), ListOps(form="nary")
TEXTS = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "( ( ( ( [SM 6 ) 5 ) 9 ) ] )", "7"]
TREE_NETWORKS = ("Tree-RNN", "Tree-LSTM", "Tree-LSTM+stack", "TreeCell")


def test_the_vocabulary_is_that_of_the_form_whatever_the_data() -> None:
    binary, nary = TASK.vocabulary, ListOps(form="nary", max_arguments=3).vocabulary
    assert (binary.num_leaves, binary.functions) == (17, (("X", 2),))
    assert nary.leaves == tuple("0123456789")
    assert [len(nary.kinds_of_arity[arity]) for arity in (1, 2, 3)] == [6, 6, 6]


def test_sequence_networks_read_tokens_in_the_binary_form_and_operators_in_the_nary_one() -> None:
    forest = Forest.from_trees(TASK.parse(text) for text in TEXTS)
    words = forest.tokens(TASK.token_form).strings()
    assert [" ".join(each) for each in words] == [TEXTS[0], "[SM 6 5 9 ]", "7"]
    assert Model(NARY, NetworkConfig("LSTM", {"hidden_size": 4})).encoder.form == NARY.token_form
    words = Forest.from_trees([NARY.parse("[SM 6 [MIN 4 7 ] ]")]).tokens(NARY.token_form).strings()
    assert " ".join(words[0]) == "[SM ( 6 , [MIN ( 4 , 7 ) )"


def test_a_network_that_reads_pairs_as_one_sequence_is_refused_before_training(tmp_path: Path) -> None:
    problem = "listops has no head for networks that read the trees of an example as one sequence"
    options = {"hidden_size": 4, "num_heads": 2, "num_layers": 1, "joint": True}
    for task in (TASK, NARY):
        with pytest.raises(RecipeError, match=problem):
            Model(task, NetworkConfig("Transformer", options))
    with pytest.raises(RecipeError, match=rf"networks\.Mine\.options: {problem}"):
        parse_recipe({"task": "listops", "networks": {"Mine": {"network": "Transformer", "options": options}}})
    data = Forest.from_trees([TASK.parse(text) for text in TEXTS], tree_data={"label": [9, 0, 7]})
    with pytest.raises(RecipeError, match=problem):
        fit(TASK, NetworkConfig("Transformer", options), data, output=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name != ".lock"]


def test_examples_are_told_apart_by_the_bin_of_their_length() -> None:
    for task in (TASK, NARY):
        forest = Forest.from_trees(task.parse(text) for text in TEXTS)
        assert num_tokens(forest).tolist() == [9, 5, 1]
        assert task.examples(forest).group.tolist() == [10, 10, 10]
    lengths = np.array([1, 10, 11, 20, 30, 31, 50, 51, 100, 101, 200, 201, 1000, 1001, 2000, 2001])
    ends = [10, 10, 20, 20, 30, 50, 50, 100, 100, 200, 200, 300, 1000, 2000, 2000, 3000]
    assert length_bin(lengths).tolist() == ends
    named = ["1-10", "11-20", "21-30", "31-50", "51-100", "101-200", "201-300", "901-1000", "1001-2000", "2001-3000"]
    assert list(map(TASK.group_name, [10, 20, 30, 50, 100, 200, 300, 1000, 2000, 3000])) == named
    assert [ListOps(group_by="arguments").group_name(group) for group in (5, 10)] == ["1-5", "6-10"]
    assert ListOps(group_by="depth").group_name(3) == "3"


@pytest.mark.parametrize(("group_by", "group"), [("arguments", [5, 5, 5, 10]), ("depth", [2, 1, 0, 1])])
@pytest.mark.parametrize("form", ["binary", "nary"])
def test_examples_can_be_told_apart_by_their_lists_in_place_of_their_length(
    group_by: GroupBy, group: list[int], form: ListOpsForm
) -> None:
    task = ListOps(form=form, max_arguments=6, group_by=group_by)
    forest = Forest.from_trees(
        [task.parse(text) for text in (*TEXTS, "[SM 1 2 3 4 5 6 ]")], tree_data={"label": [9, 0, 7, 1]}
    )
    examples = task.examples(forest)
    assert examples.group.tolist() == group
    assert examples.difficulty is not None
    assert examples.difficulty.tolist() == [9, 5, 1, 8], "of a curriculum in stages: the tokens"
    assert len(task.examples(forest[:0])) == 0
    model = Model(task, NetworkConfig("TreeRNN", {"hidden_size": 2}))
    scores = evaluate(model, forest, split=None).scores
    assert [score.group for score in scores] == [*sorted(set(group)), "all"]
    assert (task.group, ListOps(**task.options)) == (group_by, task)
    assert dataclasses.replace(task, group_by="length").group == ListOps.group == "length"


def test_records_have_the_number_that_groups_count_and_not_the_bin() -> None:
    for group_by, number in (("length", 9), ("arguments", 4), ("depth", 2)):
        task = ListOps(group_by=group_by)
        (record,) = task.records_of(Forest.from_trees([task.parse(TEXTS[0])], tree_data={"label": [9]}))
        assert record == {"label": 9, "tree": TEXTS[0], group_by: number}


def test_more_arguments_than_the_operators_take_are_refused_before_training() -> None:
    options = ListOpsDataOptions(training_size=50, validation_size=5, test_size=5, pool=0, test_sets=["10 arguments"])
    with pytest.raises(RecipeError, match=r"set task_options.max_arguments to 10"):
        NARY.make_data(options)
    assert ListOps(form="nary", max_arguments=10).make_data(options).forest.arity.max() == 10
    with pytest.raises(VocabularyError, match="known with 1, 2, 3, 4 or 5 children and has 6"):
        Model(NARY, NARY.networks["Tree-RNN"].replace(hidden_size=2)).predict(["[MAX 1 2 3 4 5 6 ]"])


def test_a_list_of_too_many_arguments_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "lists.tsv"
    path.write_text("7\t7\n\n5\t[MAX 1 [MED 1 2 3 4 5 ] 5 ]\n6\t[MIN 7 [MAX 1 2 3 4 5 6 ] ]\n")
    with pytest.raises(
        VocabularyError, match=r"lists\.tsv, line 4: a list \[MAX of 6 arguments, and .* at most 5"
    ) as caught:
        NARY.read_examples(path)
    assert (caught.value.source, caught.value.line) == (str(path), 4)
    assert len(TASK.read_examples(path)) == len(ListOps(form="nary", max_arguments=6).read_examples(path)) == 3


def test_networks_know_the_rare_operators_if_they_are_asked_to(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("4\t( ( ( ( [PM 4 ) 2 ) 3 ) ] )\n1\t[FLSUM 4 7 3 ]\n")
    for form in ("binary", "nary"):
        plain, rare = ListOps(form=form), ListOps(form=form, rare_operators=True)
        assert len(rare.vocabulary.labels) == len(plain.vocabulary.labels) + 2
        assert "rare_operators" not in plain.options
        assert ListOps(**rare.options) == rare
        network = NetworkConfig("TreeRNN", {"hidden_size": 4})
        examples = rare.read_examples(tmp_path / "a.tsv")
        assert Model(rare, network).predict(examples).shape == (2, 10)
        model = Model(plain, network)
        with pytest.raises(VocabularyError, match=r"the networks do not know \[PM; .*rare_operators=true"):
            model.predict(examples)
        good, bad = TreePredictor(model).predict(["[MAX 4 2 ]", "[PM 4 2 ]"])
        assert good["error"] is None
        assert "rare_operators=true" in bad["error"]
