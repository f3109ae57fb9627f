from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from attribution.deciding_subtrees import formulas, share_first, trained_model
from predict.models import small_model

import treemem
from treemem.attribution import Explanation, explain, explain_model, gradients, occlusion
from treemem.errors import CellError, GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.tasks.table import task_from_table
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

ROWS: list[dict[str, Any]] = [
    {"tree": "(f (g x) y)", "kind": "A", "size": 4.5, "mass": 0.5, "red": 1, "soft": 0},
    {"tree": "(f z (f x y))", "kind": "B", "size": 5.5, "mass": 1.5, "red": 0, "soft": 0},
    {"tree": "(k (g z) (h y))", "kind": "C", "size": 5.25, "mass": 2.5, "red": 1, "soft": 1},
]
TREES = [row["tree"] for row in ROWS]


def table_model(target: str | list[str] = "kind", network: str = "TreeLSTM", **options: object) -> Model:
    torch.manual_seed(0)
    task = task_from_table(ROWS, tree="tree", target=target, **options)  # type: ignore[arg-type]
    return Model(task, NetworkConfig(network, {"hidden_size": 6})).eval()


@pytest.fixture(scope="module")
def trained() -> Model:
    return trained_model()


@pytest.mark.parametrize("method", ["occlusion", "integrated_gradients"])
def test_the_subtree_that_decides_ranks_first(trained: Model, method: str) -> None:
    assert share_first(trained, method, formulas(100, 1, deciding=True)) >= 0.95


def test_scores_of_integrated_gradients_sum_up_to_the_difference_of_the_outputs(trained: Model) -> None:
    trees = [formula.tree for formula in formulas(20, 2)]
    for explanation in explain(trained, trees, "integrated_gradients"):
        assert explanation.baseline is not None
        assert explanation.gap is not None
        difference = explanation.value - explanation.baseline
        assert np.nansum(explanation.score) == pytest.approx(difference, abs=0.01 * max(1, abs(explanation.value), 20))
        assert explanation.gap == pytest.approx(difference - np.nansum(explanation.score))


def log_odds(model: Model, trees: list[Any], answer: int) -> list[float]:
    chances = model.predict(trees)
    chances = np.stack([1 - chances, chances], 1) if chances.ndim == 1 else chances
    return [math.log(row[answer] / (1 - row[answer])) for row in chances.tolist()]


def without(tree: Tree, node: int, leaf: str) -> Tree:
    """A tree with a leaf in the place of the subtree of a node, which post-order numbers."""
    count = -1

    def copy(part: Tree) -> Tree:
        nonlocal count
        children = [copy(child) for child in part.children]
        count += 1
        return Tree(leaf) if count == node else Tree(part.label, children, part.value)

    return copy(tree)


@pytest.mark.parametrize("network", ["TreeLSTM", "LSTM", "OrderedMemory", "EfficientBeamTreeGRC"])
def test_occlusion_is_the_mean_effect_of_each_known_leaf_in_the_place_of_a_subtree(network: str) -> None:
    model = table_model(network=network)
    for tree, explanation in zip(Forest.from_trees(TREES), explain(model, TREES), strict=True):
        answer = ["A", "B", "C"].index(explanation.answer)
        (value,) = log_odds(model, [tree], answer)
        assert explanation.value == pytest.approx(value, abs=1e-5)
        for node in range(len([*tree.postorder()])):
            replaced = [without(tree, node, leaf) for leaf in "xyz"]
            effect = value - np.mean(log_odds(model, replaced, answer))
            assert explanation.subtree[node] == pytest.approx(effect, abs=1e-5)


def test_occlusion_takes_the_unknown_label_only_if_it_was_trained() -> None:
    model = table_model(unknown="<unk>")
    assert occlusion.replacements(model) == ["<unk>"]
    model.unseen = ("<unk>", "y")
    assert occlusion.replacements(model) == ["x", "z"]


def test_occlusion_of_a_large_vocabulary_takes_leaves_spread_evenly_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occlusion, "_MOST_LABELS", 2)
    assert occlusion.replacements(table_model()) == ["x", "z"]


def test_occlusion_in_many_small_parts_gives_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    model = table_model()
    whole = [explanation.score for explanation in explain(model, TREES)]
    monkeypatch.setattr(occlusion, "_NODES_AT_ONCE", 10)
    for one, other in zip(whole, explain(model, TREES), strict=True):
        np.testing.assert_allclose(one, other.score, atol=1e-5)


def test_both_sides_of_an_equation_are_explained_and_numbered_like_the_whole_tree() -> None:
    model = small_model()
    (explanation,) = explain(model, ["x + y = y"])
    whole = treemem.tasks.equation_verification.task.EquationVerification().parse("x + y = y")
    assert [str(explanation.tree_at(node)) for node in range(4)] == [str(part) for part in whole.postorder()][:4]
    leaves = occlusion.replacements(model)
    (value,) = log_odds(model, [whole], explanation.answer)
    left, right = whole.children
    for node, side in ((0, 0), (2, 0), (3, 1)):
        trees = [
            Tree(whole.label, [without(left, node, leaf), right] if side == 0 else [left, Tree(leaf)])
            for leaf in leaves
        ]
        effect = value - np.mean(log_odds(model, trees, explanation.answer))
        assert explanation.subtree[node] == pytest.approx(effect, abs=1e-5)


@pytest.mark.parametrize(
    ("network", "kinds"), [("TreeLSTM", "arity"), ("LSTM", "label"), ("OrderedMemory", "label"), ("TreeRNN", "arity")]
)
def test_gradient_times_input_is_the_change_of_the_value_as_a_label_fades(network: str, kinds: str) -> None:
    model = table_model("size", network, kinds=kinds).double()
    text = "(f (g x) y)"  # each label once, so the vector of a node is a row of the table
    (explanation,) = explain(model, [text], "gradient_times_input")
    holder: Any = model.encoder
    holder = holder if hasattr(holder, "embedding") else holder.leaves
    labels = model.vocabulary.labels
    for node, label in enumerate(["x", "g", "y", "f"]):  # the text's nodes in post-order
        row = holder.embedding.weight.data[labels.index(label)]
        kept, values = row.clone(), []
        for factor in (1 - 1e-5, 1 + 1e-5):
            row.copy_(kept * factor)
            values.append(float(model.predict([text])[0]))
        row.copy_(kept)
        assert explanation.score[node] == pytest.approx((values[1] - values[0]) / 2e-5, abs=1e-6)


def test_integrated_gradients_start_from_vectors_of_0_of_labels_between_the_same_brackets() -> None:
    model = table_model("size", "LSTM").double()
    (explanation,) = explain(model, TREES[:1], "integrated_gradients")
    encoder: Any = model.encoder
    encoder.embedding.weight.data[: len(model.vocabulary.labels)] = 0
    assert explanation.baseline == pytest.approx(float(model.predict(TREES[:1])[0]), abs=1e-9)
    assert encoder.embedding.weight.any(), "brackets have vectors"


def test_gradients_say_nothing_about_nodes_whose_label_chooses_their_weights() -> None:
    (explanation,) = explain(table_model("size"), ["(f (g x) y)"], "gradient_times_input")
    assert np.isnan(explanation.score).tolist() == [False, True, False, True]
    assert explanation.subtree[3] == pytest.approx(explanation.score[0] + explanation.score[2])
    assert [entry["score"] is None for entry in explanation.as_dict()["nodes"]] == [False, True, False, True]


def test_explanations_leave_the_model_as_it_was() -> None:
    model = table_model().train()
    explain(model, TREES, "integrated_gradients")
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_answer_to_explain_can_be_chosen() -> None:
    model = table_model()
    for answer in "ABC":
        (explanation,) = explain(model, TREES[:1], answer=answer)
        assert explanation.answer == answer
        assert explanation.value == pytest.approx(log_odds(model, TREES[:1], "ABC".index(answer))[0], abs=1e-5)


@pytest.mark.parametrize("method", ["occlusion", "gradient_times_input", "integrated_gradients"])
def test_each_of_several_numbers_and_labels_is_explained(method: Any) -> None:
    for target, answers in ((["size", "mass"], ["size", "mass"]), (["red", "soft"], ["red", "soft"])):
        model = table_model(target)
        for answer in answers:
            explanations = explain(model, TREES, method, answer=answer)
            assert {explanation.answer for explanation in explanations} == {answer}
    model = table_model(["size", "mass"])
    by_answer = [explain(model, TREES[:1], method, answer=answer)[0].value for answer in ("size", "mass")]
    np.testing.assert_allclose(by_answer, model.predict(TREES[:1])[0], atol=1e-5)


def test_the_smallest_subtree_that_explains_most_ranks_first() -> None:
    forest = Forest.from_trees(["(f (g (h a b c)) d)"])  # a b c h g d f
    score = np.array([1.0, 1.0, 1.0, 0.5, 0.1, -0.2, 0.0])
    explanation = Explanation(forest, "occlusion", 1, 3.4, score)
    np.testing.assert_allclose(explanation.subtree, [1, 1, 1, 3.5, 3.6, -0.2, 3.4])
    assert explanation.ranking()[0] == 3
    assert explanation.ranking()[-1] == 6
    assert [entry["rank"] for entry in explanation.as_dict()["nodes"]][3] == 1


def test_the_rows_of_a_frame_are_explained_by_their_column_of_trees() -> None:
    model = table_model()
    frame = pandas.DataFrame(ROWS[:3], index=["a", "b", "c"])
    for of_row, of_tree in zip(explain(model, frame), explain(model, TREES[:3]), strict=True):
        np.testing.assert_array_equal(of_row.score, of_tree.score)
    with pytest.raises(RecipeError, match=r"the DataFrame has the columns .*, and none of tree"):
        explain(model, frame[["kind"]])


def test_no_examples_have_no_explanations() -> None:
    assert explain(table_model(), []) == []


def test_integrals_that_miss_the_sum_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "_TOLERANCE", 0.0)
    monkeypatch.setattr(gradients, "_MOST_STEPS", 32)
    with pytest.raises(CellError, match=r"example 1: the network changes too steeply .*; use occlusion"):
        explain(table_model(), TREES, "integrated_gradients")


def test_what_cannot_be_explained_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = table_model()
    with pytest.raises(RecipeError, match="method='saliency' is none of occlusion, gradient_times_input"):
        explain(model, TREES, "saliency")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="table_classes has no answer 'D'"):
        explain(model, TREES, answer="D")
    with pytest.raises(RecipeError, match="has several answers, 'size', 'mass'; say which one to explain"):
        explain(table_model(["size", "mass"]), TREES)
    with pytest.raises(RecipeError, match="answers of transduction cannot be explained"):
        explain(small_model("transduction", "SequenceToSequence"), [])
    with pytest.raises(RecipeError, match="numeric equations cannot be explained"):
        explain(small_model(numeric=True), [])
    ordered = small_model("listops", "OrderedMemory")
    ordered.encoder.padding = "left"
    with pytest.raises(RecipeError, match="depends on the other examples of the batch"):
        explain(ordered, [])
    monkeypatch.setattr(explain_model, "MOST_NODES", 4)
    with pytest.raises(
        GraphError, match="example 2: it has 5 nodes, and occlusion takes at most 4; choose another method"
    ):
        explain(model, TREES)
