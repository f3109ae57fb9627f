"""Metrics of classes and labels, compared with scikit-learn."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn import metrics

from treemem.metrics.class_report import class_metrics, label_metrics, report_of_classes, report_of_labels

DRAW = np.random.default_rng(0)


def predictions(count: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predicted classes, true ones and scores that rank the examples, with ties."""
    actual = DRAW.integers(0, classes, count)
    scores = (DRAW.normal(size=(count, classes)) + np.eye(classes)[actual]).round(1)
    return scores.argmax(1), actual, scores


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_of_classes_are_those_of_scikit_learn(classes: int) -> None:
    predicted, actual, scores = predictions(200, classes)
    computed = class_metrics(predicted, actual, scores)
    assert computed["macro f1"] == pytest.approx(metrics.f1_score(actual, predicted, average="macro"))
    assert computed["balanced accuracy"] == pytest.approx(metrics.balanced_accuracy_score(actual, predicted))
    if classes == 2:
        assert computed["auc"] == pytest.approx(metrics.roc_auc_score(actual, scores[:, 1]))
        assert computed["average precision"] == pytest.approx(metrics.average_precision_score(actual, scores[:, 1]))
    else:
        chance = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        log = np.log(chance)
        expected = metrics.roc_auc_score(actual, chance, multi_class="ovr", average="macro")
        assert class_metrics(predicted, actual, log)["auc"] == pytest.approx(expected)
        expected = metrics.average_precision_score(np.eye(classes)[actual], chance, average="macro")
        assert class_metrics(predicted, actual, log)["average precision"] == pytest.approx(expected)


def test_the_report_of_each_class_is_that_of_scikit_learn() -> None:
    predicted, actual, scores = predictions(150, 3)
    report = report_of_classes(("a", "b", "c"), predicted, actual, scores)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(actual, predicted)
    for computed, expected in (
        (report.precision, precision),
        (report.recall, recall),
        (report.f1, f1),
        (report.examples, support),
        (report.confusion, metrics.confusion_matrix(actual, predicted)),
    ):
        np.testing.assert_allclose(computed, expected)
    for number in range(3):
        assert report.auc[number] == pytest.approx(metrics.roc_auc_score(actual == number, scores[:, number]))


def test_a_class_without_examples_or_predictions_has_zeros_and_no_area() -> None:
    actual, predicted = np.array([0, 0, 1]), np.array([0, 0, 0])
    report = report_of_classes(("a", "b", "c"), predicted, actual, np.zeros((3, 3)))
    assert report.precision.tolist() == [pytest.approx(2 / 3), 0, 0]
    assert report.recall.tolist() == [1, 0, 0]
    assert math.isnan(report.auc[2])
    assert report.f1[:2].tolist() == [pytest.approx(0.8), 0]
    assert math.isnan(report.f1[2])
    assert report.rows()[3] == ["c", "0", "0.00", "0.00", "", "", ""]
    computed = class_metrics(predicted, actual, np.zeros((3, 3)))
    assert computed["macro f1"] == pytest.approx((0.8 + 0) / 2), "the class c has neither examples nor predictions"
    assert computed["balanced accuracy"] == 0.5
    assert computed["auc"] == 0.5, "the mean of the two classes that have examples and others"
    alone = class_metrics(np.zeros(3, int), np.zeros(3, int), np.zeros((3, 2)))
    assert (alone["auc"], alone["average precision"]) == (None, None)
    record = json.loads(json.dumps(report.as_record(), allow_nan=False))
    assert record["auc"] == [0.5, 0.5, None]
    assert record["confusion"] == [[2, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_the_report_of_labels_is_that_of_scikit_learn() -> None:
    actual = DRAW.random((80, 2)) > 0.6
    scores = DRAW.normal(size=(80, 2)) + actual
    report = report_of_labels(("x", "y"), scores > 0, actual, scores, 0.5)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(actual, scores > 0)
    for computed, expected in (
        (report.precision, precision),
        (report.recall, recall),
        (report.f1, f1),
        (report.examples, support),
    ):
        np.testing.assert_allclose(computed, expected)
    computed = label_metrics(actual, scores)
    assert computed["auc"] == pytest.approx(metrics.roc_auc_score(actual, scores, average="macro"))
    assert computed["average precision"] == pytest.approx(metrics.average_precision_score(actual, scores))
    assert report.confusion_rows() == []
    assert report.rows()[0] == ["label", "examples", "precision", "recall", "F1", "AUC", "average precision"]


def test_a_confusion_matrix_names_its_rows_and_columns_and_is_no_table_of_many_classes() -> None:
    predicted, actual = np.array([0, 1, 1]), np.array([0, 0, 1])
    report = report_of_classes(("no", "yes"), predicted, actual, np.eye(2)[predicted], 0.5)
    assert report.confusion_rows() == [
        ["true class", "predicted no", "predicted yes"],
        ["no", "1", "1"],
        ["yes", "0", "1"],
    ]
    assert report.rows()[2][:5] == ["yes", "1", "50.00", "100.00", "66.67"]
    many = report_of_classes(range(21), np.arange(21), np.arange(21), np.eye(21))
    assert many.confusion_rows() == []
