"""Estimators of scikit-learn over trees."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_random_state, compute_sample_weight

import treemem.sklearn
from treemem import Forest, TreePredictor
from treemem.checkpoint import save
from treemem.errors import CheckpointError
from treemem.sklearn import TreeClassifier, TreeRegressor
from treemem.tasks.table.data import TableRecords
from treemem.trees import parse_brackets

LISTS = [["fg"[n % 2], "xyz"[n % 3], ["f", "xy"[n % 5 % 2], "yz"[n % 7 % 2]]] for n in range(24)]
TEXTS = [str(Forest.from_trees([tree])[0]) for tree in LISTS]
ROOTS = [tree[0] for tree in LISTS]
SIZES = [text.count("x") + 0.5 for text in TEXTS]
BRIEF: dict[str, Any] = {
    "network": "Tree-RNN",
    "hidden_size": 8,
    "epochs": 4,
    "batch_size": 8,
    "learning_rate": 0.1,
    "random_state": 0,
}


def classifier(**changes: Any) -> TreeClassifier:
    return TreeClassifier(**{**BRIEF, **changes})


def regressor(**changes: Any) -> TreeRegressor:
    return TreeRegressor(**{**BRIEF, **changes})


@pytest.fixture(scope="module")
def fitted() -> TreeClassifier:
    return classifier().fit(TEXTS, ROOTS)


def losses(estimator: Any) -> list[float]:
    return [record["loss"] for record in estimator.history_]


def objects(items: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def test_a_classifier_learns_the_root_of_a_tree(fitted: TreeClassifier) -> None:
    assert fitted.score(TEXTS, ROOTS) == 1
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (24, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert fitted.classes_[probabilities.argmax(1)].tolist() == fitted.predict(TEXTS).tolist()
    assert fitted.n_features_in_ == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: LISTS,
        lambda: tuple(map(parse_brackets, TEXTS)),
        lambda: [{"label": root, "children": [left, inner]} if isinstance(inner, str) else [root, left, inner]
                 for root, left, inner in LISTS],
        lambda: np.array(TEXTS),
        lambda: objects(LISTS),
        lambda: objects(LISTS)[:, None],
        lambda: pandas.Series(TEXTS, index=range(100, 124)),
        lambda: pandas.Series(LISTS),
        lambda: Forest.from_trees(TEXTS),
    ],
    ids=["lists", "trees", "nested", "texts", "objects", "column", "series", "series of lists", "forest"],
)  # fmt: skip
def test_trees_of_any_form_are_the_same_trees(make: Any, fitted: TreeClassifier) -> None:
    np.testing.assert_array_equal(fitted.predict_proba(make()), fitted.predict_proba(TEXTS))
    assert losses(classifier(epochs=1).fit(make(), ROOTS)) == losses(fitted)[:1]


def test_texts_are_read_in_the_form_that_the_estimator_names() -> None:
    logic = ["( a ( and b ) )", "( b ( and a ) )", "( a ( or b ) )", "( b ( or a ) )"]
    assert classifier(text="logic").fit(logic, [1, 1, 0, 0]).predict(logic[:1]).shape == (1,)
    numbers = ["(f 1 2.5)", "(f 2 1)", "(g 3 1)"]
    fitted = regressor(number="Number").fit(numbers, [1.0, 2.0, 3.0])
    assert fitted.predict(["(g 17 0.5)", ["f", 3, 4]]).shape == (2,)


def test_a_frame_names_its_column() -> None:
    frame = pandas.DataFrame({"formula": TEXTS})
    fitted = classifier(epochs=1).fit(frame, ROOTS)
    assert fitted.feature_names_in_.tolist() == ["formula"]
    assert fitted.predict(frame[:2]).shape == (2,)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame.rename(columns={"formula": "tree"}))


@pytest.mark.parametrize(
    "classes",
    [
        ["yes", "no"],
        ["True", "true", " true"],
        ["NA", "?"],
        [3, -1, 7],
        [True, False],
        [1.0, 2.0],
        [np.int8(1), np.int8(0)],
    ],
    ids=str,
)
def test_classes_keep_their_type_and_spelling(classes: list[Any]) -> None:
    y = [classes[n % len(classes)] for n in range(24)]
    fitted = classifier(epochs=1).fit(TEXTS, y)
    assert fitted.classes_.dtype == np.array(y).dtype
    assert fitted.classes_.tolist() == sorted(np.array(classes).tolist())
    predicted = fitted.predict(TEXTS)
    assert predicted.dtype == fitted.classes_.dtype
    assert set(predicted.tolist()) <= set(classes)
    again = pickle.loads(pickle.dumps(fitted))
    assert [type(name) for name in again.classes_.tolist()] == [type(name) for name in fitted.classes_.tolist()]


def test_a_class_that_is_learnt_is_the_one_that_was_given() -> None:
    y = ["True" if root == "f" else "true" for root in ROOTS]
    assert classifier().fit(TEXTS, y).score(TEXTS, y) == 1


def test_a_regressor_learns_numbers_of_one_and_of_several_targets() -> None:
    one = regressor(epochs=20, learning_rate=0.03).fit(TEXTS, SIZES)
    assert one.predict(TEXTS).shape == (24,)
    assert one.score(TEXTS, SIZES) > 0.8
    two = regressor(epochs=1).fit(TEXTS, np.stack([SIZES, np.arange(24)], 1))
    assert two.predict(TEXTS[:5]).shape == (5, 2)


def test_the_random_state_decides_all_numbers(fitted: TreeClassifier) -> None:
    assert losses(clone(fitted).fit(TEXTS, ROOTS)) == losses(fitted)
    assert losses(classifier(random_state=1, epochs=1).fit(TEXTS, ROOTS)) != losses(fitted)[:1]
    drawn = check_random_state(5)
    first, second = (losses(classifier(random_state=drawn, epochs=1).fit(TEXTS, ROOTS)) for _ in range(2))
    again = losses(classifier(random_state=check_random_state(5), epochs=1).fit(TEXTS, ROOTS))
    assert again == first != second
    assert losses(classifier(random_state=None, epochs=1).fit(TEXTS, ROOTS)) not in (first, second)


def test_parameters_are_those_of_scikit_learn(fitted: TreeClassifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    assert copy.set_params(hidden_size=4, network="Tree-LSTM").get_params()["hidden_size"] == 4
    assert repr(TreeRegressor("Tree-RNN", epochs=3)) == "TreeRegressor(epochs=3, network='Tree-RNN')"


def test_options_reach_the_network_and_the_training() -> None:
    fitted = classifier(epochs=2, network_options={"activation": "relu"}).fit(TEXTS, ROOTS)
    assert fitted.model_.network.options == {"hidden_size": 8, "activation": "relu"}
    still = clone(fitted).set_params(training_options={"optimizer": "sgd", "clip": 1e-9}).fit(TEXTS, ROOTS)
    assert losses(still)[0] == pytest.approx(losses(still)[1])
    assert losses(fitted)[0] != pytest.approx(losses(fitted)[1])


def test_a_threshold_of_the_training_decides_predictions() -> None:
    fitted = classifier(epochs=2, training_options={"threshold": 1e-9}).fit(TEXTS, ROOTS)
    assert {*fitted.predict(TEXTS)} == {"g"}
    assert fitted.predict_proba(TEXTS).argmax(1).tolist() != [1] * 24, "where some probabilities are below a half"


def test_fit_reads_each_tree_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    nodes = TableRecords.nodes

    def counted(self: TableRecords, fields: Any) -> Any:
        read.append(fields)
        return nodes(self, fields)

    monkeypatch.setattr(TableRecords, "nodes", counted)
    fitted = classifier(epochs=2).fit(TEXTS, ROOTS)
    assert len(read) == 24
    fitted.predict(Forest.from_trees(TEXTS))
    assert len(read) == 24


def test_fit_leaves_no_files_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    classifier(epochs=1).fit(TEXTS, ROOTS).predict(TEXTS)
    with pytest.raises(ValueError, match="not finite"):
        regressor(epochs=3, learning_rate=1e30).fit(TEXTS, SIZES)
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]
    assert capfd.readouterr() == ("", "")
    classifier(epochs=1, verbose=1).fit(TEXTS, ROOTS)
    assert "epoch 1/1" in capfd.readouterr().err


def test_a_pickle_holds_the_model_alone(fitted: TreeClassifier) -> None:
    content = pickle.dumps(fitted)
    assert tempfile.gettempdir().encode() not in content
    assert not any(text.encode() in content for text in TEXTS)
    copy = pickle.loads(content)
    np.testing.assert_array_equal(copy.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    assert losses(copy) == losses(fitted)
    assert pickle.loads(pickle.dumps(classifier())).get_params() == classifier().get_params()


def test_a_damaged_pickle_is_refused(fitted: TreeClassifier) -> None:
    state = fitted.__getstate__()
    del state["model_"]["vocabulary.json"]
    with pytest.raises(CheckpointError, match="the pickled estimator does not describe a model"):
        TreeClassifier().__setstate__(state)


def test_the_model_of_an_estimator_is_a_model_of_the_library(fitted: TreeClassifier, tmp_path: Path) -> None:
    save(tmp_path / "model", fitted.model_)
    answers = list(TreePredictor(tmp_path / "model").predict(TEXTS))
    assert [answer["prediction"] for answer in answers] == fitted.predict(TEXTS).tolist()


def test_other_processes_train_and_return_the_same_models() -> None:
    here = cross_validate(classifier(), Forest.from_trees(TEXTS), ROOTS, cv=2, return_estimator=True)
    there = cross_validate(classifier(), TEXTS, ROOTS, cv=2, n_jobs=2, return_estimator=True)
    assert here["test_score"].tolist() == there["test_score"].tolist() == [1, 1]
    for one, other in zip(here["estimator"], there["estimator"], strict=True):
        np.testing.assert_array_equal(one.predict_proba(TEXTS), other.predict_proba(TEXTS))


def test_a_search_over_a_pipeline_finds_the_better_width_of_training() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda texts: list(map(parse_brackets, texts))), classifier())
    grid = {"treeclassifier__epochs": [1, 5], "treeclassifier__learning_rate": [1e-8, 0.1]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, ROOTS)
    assert search.best_params_["treeclassifier__learning_rate"] == 0.1
    assert search.best_score_ == 1
    assert search.predict(TEXTS[:2]).tolist() == ROOTS[:2]


def test_scikit_learn_makes_several_labels_of_several_estimators() -> None:
    y = np.stack([np.arange(24) % 2, np.arange(24) % 3 == 0], 1)
    assert MultiOutputClassifier(classifier(epochs=1)).fit(TEXTS, y).predict(TEXTS).shape == (24, 2)


def test_rows_without_weight_teach_nothing() -> None:
    wrong = ["f" if root == "g" else "g" for root in ROOTS]
    weight = [1.0] * 24 + [0.0] * 24
    assert classifier().fit(TEXTS * 2, ROOTS + wrong, weight).score(TEXTS, ROOTS) == 1
    assert classifier().fit(TEXTS * 2, wrong + ROOTS, weight).score(TEXTS, ROOTS) == 0
    doubled = [*SIZES, *(1e9 * number for number in SIZES)]
    fitted = regressor(epochs=20, learning_rate=0.03).fit(TEXTS * 2, doubled, sample_weight=np.array(weight))
    assert fitted.score(TEXTS, SIZES) > 0.5


@pytest.mark.parametrize("class_weight", ["balanced", {"f": 3.0, "g": 0.5}])
def test_weights_of_classes_are_weights_of_rows(class_weight: Any) -> None:
    y = ["f"] * 5 + ["g"] * 19
    weights = compute_sample_weight(class_weight, y)
    by_class = losses(classifier(class_weight=class_weight).fit(TEXTS, y))
    assert by_class == losses(classifier().fit(TEXTS, y, weights))
    assert by_class != losses(classifier().fit(TEXTS, y))
    twice = classifier(class_weight=class_weight).fit(TEXTS, y, np.arange(24))
    assert losses(twice) == losses(classifier().fit(TEXTS, y, weights * np.arange(24)))


def test_early_stopping_holds_out_rows_and_ends_when_nothing_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(**changes: Any) -> list[dict[str, Any]]:
        return classifier(epochs=12, **changes).fit(TEXTS, ROOTS).history_

    stopped = fit(early_stopping=True, patience=1, validation_fraction=0.25, learning_rate=1.0)
    assert len(stopped) < 12
    assert [record["examples"] for record in stopped] == [18] * len(stopped)
    assert "validation_accuracy" in stopped[0]
    whole = fit(patience=1)
    assert [record["examples"] for record in whole] == [24] * 12
    monkeypatch.setattr(treemem.sklearn, "_ENOUGH_TO_VALIDATE", 24)
    assert fit(validation_fraction=0.25)[0]["examples"] == 18
    assert fit(early_stopping=False)[0]["examples"] == 24


def test_rows_are_held_out_of_each_class_and_a_class_of_one_row_is_no_obstacle() -> None:
    y = ["rare"] * 4 + ["f"] * 20
    scores = classifier(epochs=1, early_stopping=True, validation_fraction=0.25).fit(TEXTS, y).history_[0]["validation"]
    assert scores[-1]["metrics"]["majority"] == 5 / 6
    y = ["rare"] + ["f"] * 23
    assert classifier(epochs=1, early_stopping=True).fit(TEXTS, y).classes_.tolist() == ["f", "rare"]


def test_a_leaf_that_training_had_not_is_an_error_or_unknown(fitted: TreeClassifier) -> None:
    with pytest.raises(ValueError, match="'w'"):
        fitted.predict(["(f w (f x y))"])
    assert classifier(unknown="<unk>").fit(TEXTS, ROOTS).predict(["(f w (f x y))"]).tolist() == ["f"]


def test_a_fit_that_fails_and_new_parameters_leave_the_model_as_it_is() -> None:
    fitted = classifier(epochs=1).fit(TEXTS, ROOTS)
    before = fitted.predict_proba(TEXTS)
    with pytest.raises(ValueError, match="row 24"):
        fitted.fit([*TEXTS[:23], "(f x"], ["yes"] + ["no"] * 23)
    fitted.set_params(text="json")
    np.testing.assert_array_equal(fitted.predict_proba(TEXTS), before)
    assert fitted.classes_.tolist() == ["f", "g"]


def test_no_tree_has_no_prediction_of_the_usual_shape(fitted: TreeClassifier) -> None:
    nothing = Forest.from_trees([])
    assert fitted.predict_proba(nothing).shape == (0, len(fitted.classes_))
    assert fitted.predict(nothing).dtype == fitted.classes_.dtype


def test_an_estimator_predicts_after_fit_only() -> None:
    for estimator, method in ((classifier(), "predict_proba"), (classifier(), "predict"), (regressor(), "predict")):
        with pytest.raises(NotFittedError):
            getattr(estimator, method)(TEXTS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("(f x y)", "put a single tree in a list"),
        (parse_brackets(TEXTS[0]), "put a single tree in a list"),
        (map(str, TEXTS), "X must be a list of trees"),
        (np.zeros((24, 3)), r"shape \(24, 3\), and trees are one column"),
        (np.zeros((24, 1)), "X holds numbers"),
        (np.array([["f", "x"]] * 24), "nested lists as a list"),
        (pandas.DataFrame({"tree": TEXTS, "more": 1}), r"frame\['tree'\]"),
        ([["(f x y)"]] * 24, r"give \[row\[0\] for row in X\]"),
        ([*TEXTS[:23], "(f x"], "row 24"),
        ([*TEXTS[:23], None], "row 24.*is empty"),
        (TEXTS[:3], "inconsistent numbers of samples"),
        ([], "there is no row"),
        (
            Forest.from_trees(TEXTS).with_vectors(np.ones((1, 2), np.float32), np.zeros(120, np.int64)),
            r"the nodes of X have vectors, .*; give X.with_data\(\)",
        ),
        (["( ( a b ) c )"] * 24, "unlabelled"),
    ],
)
def test_what_is_no_column_of_trees_is_refused(X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, ROOTS)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["f"] * 24, "y has one class, 'f'"),
        ([], "y has no row"),
        ([*ROOTS[:23], None], "row 24: the class is missing"),
        ([*ROOTS[:23], np.nan], "row 24: the class is missing"),
        (SIZES, "Unknown label type: continuous"),
        ([[1, 0]] * 24, "y should be a 1d array"),
        (None, "requires y"),
    ],
    ids=str,
)
def test_what_are_no_classes_is_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier().fit(TEXTS, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [([*SIZES[:23], np.nan], "NaN"), (ROOTS, "could not convert"), ([*SIZES[:23], np.inf], "infinity")],
    ids=str,
)
def test_what_are_no_numbers_is_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regressor().fit(TEXTS, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(24), "weights are zero"),
        ([-1.0] * 24, "0 or more"),
        ([1.0] * 23, "24"),
        ([*[1.0] * 23, np.nan], "0 or more"),
        (np.ones((24, 2)), "a number for each"),
        (ROOTS, "could not convert"),
    ],
    ids=str,
)
def test_what_are_no_weights_is_refused(weight: Any, message: str) -> None:
    for estimator, y in ((classifier(), ROOTS), (regressor(), SIZES)):
        with pytest.raises(ValueError, match=message):
            estimator.fit(TEXTS, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "Tree-LSTN"}, "did you mean Tree-LSTM"),
        ({"network_options": {"widht": 3}}, "widht"),
        ({"text": "newick"}, "newick"),
        ({"epochs": 0}, "epochs"),
        ({"training_options": {"epochs": 3}}, "'epochs' is a parameter of the estimator itself"),
        ({"training_options": {"clipp": 3}}, "'clipp' is no option of training; did you mean clip"),
        ({"early_stopping": "yes"}, "early_stopping"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction must be above 0"),
        ({"class_weight": "even"}, "class_weight"),
        ({"class_weight": {"f": 2, "fg": 3}}, "class_weight: no class 'fg'; there are 'f', 'g'"),
        ({"class_weight": {"f": -2}}, "class_weight: the weight of 'f' must be a number of 0 or more, not -2"),
        (
            {"training_options": {"monitor": "macro f1"}},
            "training_options: monitor='macro f1' needs .*early_stopping=True",
        ),
        ({"training_options": {"tensorboard": True}}, "which an estimator deletes; give the records in history_"),
        ({"training_options": {"threshold": "f1"}}, "training_options: threshold='f1' needs .*early_stopping=True"),
    ],
    ids=str,
)
def test_a_parameter_that_makes_no_sense_is_refused_by_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**changes).fit(TEXTS, ROOTS)
