from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import KindSum, MoreX, scored_batches, toy_data

from treemem.errors import RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs.evaluate import evaluate
from treemem.runs.options import TrainingOptions
from treemem.runs.run import fit_seeds
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

NETWORK = NetworkConfig("KindSum", {"hidden_size": 3})


def toy_model() -> Model:
    torch.manual_seed(0)
    return Model(MoreX(), NETWORK)


def test_scores_agree_with_the_predictions(caplog: pytest.LogCaptureFixture) -> None:
    model, data = toy_model(), toy_data(80)
    with caplog.at_level(logging.INFO):
        evaluation = evaluate(model, data, split="test", title="a network on a file")
    chosen = data.tree_data["split"] == "test"
    np.testing.assert_array_equal(evaluation.chosen, np.flatnonzero(chosen))
    np.testing.assert_allclose(evaluation.predicted, model.predict(data[chosen]), rtol=1e-5)
    correct = (evaluation.predicted > 0.5) == data.tree_data["label"][chosen]
    assert evaluation.overall.accuracy == correct.mean()
    assert evaluation.overall.examples == len(evaluation.chosen) == evaluation.num_trees
    assert evaluation.network_trees_per_second > evaluation.trees_per_second > 0
    assert "a network on a file: scored 16 examples: accuracy" in caplog.text
    assert "trees/s without making the batches" in caplog.text


def test_how_the_examples_are_batched_does_not_change_what_is_said_about_them() -> None:
    model, data = toy_model(), toy_data(80)
    expected = evaluate(model, data, batch_size=80)
    found = evaluate(model, data, batch_size=16, prefetch=2)
    np.testing.assert_array_equal(found.chosen, expected.chosen)
    np.testing.assert_allclose(found.predicted, expected.predicted, rtol=1e-5)
    assert found.scores == expected.scores


def test_a_network_that_reads_an_example_by_its_batch_is_given_examples_of_similar_length() -> None:
    torch.manual_seed(0)
    network = NetworkConfig("OrderedMemory", {"hidden_size": 4, "slots": 3, "padding": "left"})
    model, data = Model(MoreX(), network), toy_data(30)
    order = np.argsort(np.diff(data.begin), kind="stable")
    batches = [order[first : first + 8] for first in range(0, 30, 8)]
    expected = np.empty(30)
    expected[order] = np.concatenate([model.predict(data[batch]) for batch in batches])
    in_file_order = np.concatenate([model.predict(data[first : first + 8]) for first in range(0, 30, 8)])
    assert not np.allclose(in_file_order, expected, atol=1e-4)
    for found in (
        evaluate(model, data, batch_size=8).predicted,
        model.predict(data, batch_size=8),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rows_kept_across_batches_change_no_score(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, data = Model(MoreX(), NetworkConfig("TreeLSTM", {"hidden_size": 3})), toy_data(80)
    expected = evaluate(model, data, batch_size=16)
    with caplog.at_level(logging.INFO):
        found = evaluate(model, data, batch_size=16, cache_bytes=2**20)
    np.testing.assert_allclose(found.predicted, expected.predicted, rtol=1e-5)
    assert found.scores == expected.scores
    assert expected.cache is None
    assert found.cache is not None
    assert f"{found.cache.hits} rows found" in caplog.text


def test_what_cannot_be_scored_is_refused() -> None:
    model, data = toy_model(), toy_data(30)
    with pytest.raises(RecipeError, match="no example to evaluate in the split 'test'"):
        evaluate(model, data[data.tree_data["split"] != "test"], split="test")
    with pytest.raises(RecipeError, match=r"example 1 of \d+ has no label"):
        evaluate(model, Forest.from_trees([Tree("x")]))
    with pytest.raises(VocabularyError, match="unknown leaf 'z'"):
        evaluate(model, Forest.from_trees([Tree("z")], tree_data={"label": [1]}))


def test_several_seeds_give_mean_and_deviation(tmp_path: Path) -> None:
    options = TrainingOptions(epochs=2, batch_size=16, learning_rate=0.05)
    result = fit_seeds(MoreX(), NETWORK, toy_data(80), options, seeds=[1, 2, 3], output=tmp_path)
    accuracies = [evaluation.overall.accuracy for evaluation in result.evaluations]
    assert result.scores[-1].accuracy == pytest.approx(np.mean(accuracies))
    assert result.scores[-1].deviation == pytest.approx(np.std(accuracies, ddof=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-1", "seed-2", "seed-3"]
    assert [len(fit.records) for fit in result.fits] == [2, 2, 2]
    with pytest.raises(RecipeError, match="seeds must be distinct"):
        fit_seeds(MoreX(), NETWORK, toy_data(), options, seeds=[1, 1], output=tmp_path)


def test_loggers_get_the_records_of_one_seed_after_the_other(tmp_path: Path) -> None:
    seen: list[int] = []
    options = TrainingOptions(epochs=2, batch_size=16)

    def log(record: Mapping[str, Any]) -> None:
        seen.append(record["epoch"])

    fit_seeds(MoreX(), NETWORK, toy_data(80), options, seeds=[1, 2], output=tmp_path, loggers=[log])
    assert seen == [1, 2, 1, 2]


def test_seeds_of_an_own_network_are_scored_in_batches_and_threads_of_their_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = scored_batches(monkeypatch)
    options = TrainingOptions(epochs=1, evaluation_batch_size=4, threads=2)
    network = NetworkConfig("Mine", {"hidden_size": 3})
    result = fit_seeds(MoreX(), network, toy_data(), options, seeds=[1], output=tmp_path, networks={"Mine": KindSum})
    validation, test = 12, 12
    assert seen == [(4, 2)] * ((validation + test) // 4)
    assert isinstance(result.fits[0].model.encoder, KindSum)


def test_seeds_are_not_trained_where_the_split_to_evaluate_is_missing(tmp_path: Path) -> None:
    data = toy_data(30)
    untested = data[data.tree_data["split"] != "test"]
    for split, forest, problem in [
        ("test", untested, "no example to evaluate in the split 'test'"),
        ("tset", data, "no split 'tset'; .*did you mean test"),
        ("test", toy_data(divided=False), "not divided"),
    ]:
        with pytest.raises(RecipeError, match=problem):
            fit_seeds(MoreX(), NETWORK, forest, seeds=[1], output=tmp_path, split=split)
    assert not list(tmp_path.iterdir())
