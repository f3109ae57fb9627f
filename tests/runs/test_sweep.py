from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from toy_task import toy_data

from treemem.errors import RecipeError
from treemem.runs import run
from treemem.runs.sweep import plan_sweep, run_trials, without_test
from treemem.runs.training_loop import DivergedError
from treemem.runs.variation import Variation


def run_sweep(
    recipe: str, variations: list[Variation], *, trials: int, output: Path, seed: int = 0, overwrite: bool = False
) -> list[dict[str, Any]]:
    sweep = plan_sweep(recipe, variations, trials=trials, seed=seed)
    return run_trials(sweep, trials, output, overwrite=overwrite)


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    content = {
        "task": "more_x",
        "data": {"count": 40},
        "networks": {"sum": {"network": "KindSum", "options": {"hidden_size": 2}}},
        "training": {"epochs": 1, "batch_size": 8},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def before_fit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., None]]:
    """Functions that are called with what each training is called with."""
    functions: list[Callable[..., None]] = []
    fit = run.fit

    def watched(*arguments: Any, **options: Any) -> Any:
        for function in functions:
            function(*arguments, **options)
        return fit(*arguments, **options)

    monkeypatch.setattr(run, "fit", watched)
    return functions


def failing(place: str, error: type[BaseException]) -> Callable[..., None]:
    def fail(*_: Any, output: Path, **__: Any) -> None:
        if str(output).endswith(place):
            raise error("the loss is not finite")

    return fail


@pytest.mark.parametrize(
    ("text", "variation"),
    [
        ("a.b=1,x,null", Variation("a.b", (1, "x", None))),
        ("a=[1,2],[3]", Variation("a", ([1, 2], [3]))),
        ("a=5", Variation("a", (5,))),
        ("a=1:9", Variation("a", (), 1, 9)),
        ("a=1e-3:0.1:log", Variation("a", (), 0.001, 0.1, True)),
        ("a=iid:31-50", Variation("a", ("iid:31-50",))),
    ],
)
def test_a_variation_is_read(text: str, variation: Variation) -> None:
    assert Variation.parse(text) == variation
    assert isinstance(Variation.parse("a=1:9").low, int)


@pytest.mark.parametrize(
    "text",
    [
        *("a", "=1", "a=", "a..b=1", "a=3:1", "a=0:1:log", "a=[1", "a=x: 1", "a=2024-13-45", "a=!!int ''"),
        *("a=16:32:8", "a=1:9:lin", "a=16:32,64:128"),
    ],
)
def test_what_is_no_variation_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="cannot vary"):
        Variation.parse(text)


def drawn(text: str, count: int) -> list[Any]:
    """What Optuna draws of a variation."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [Variation.parse(text).suggested(study.ask()) for _ in range(count)]


def test_drawn_values_lie_in_their_range() -> None:
    assert set(drawn("a=2:4", 30)) == {2, 3, 4}
    logs = drawn("a=1e-4:1.0:log", 100)
    assert 1e-4 <= min(logs) < 1e-3
    assert 0.3 < np.mean(np.array(logs) < 1e-2) < 0.7
    assert set(drawn("a=x,y", 20)) == {"x", "y"}
    assert isinstance(drawn("a=1:100:log", 1)[0], int)


@pytest.mark.parametrize("text", ["a=0.9999:0.99999", "a=10000.2:10000.4", "a=0.9999:0.99999:log", "a=-2.0:-1.9999"])
def test_of_a_narrow_range_many_values_are_drawn_and_none_outside(text: str) -> None:
    variation, values = Variation.parse(text), drawn(text, 100)
    assert variation.low <= min(values) <= max(values) <= variation.high
    assert len(set(values)) > 70


def test_a_field_is_not_varied_twice(recipe: str) -> None:
    twice = [Variation.parse("training.batch_size=2,4"), Variation.parse("training.batch_size=8,16")]
    with pytest.raises(RecipeError, match=r"training\.batch_size is varied twice"):
        plan_sweep(recipe, twice, trials=1)


def test_no_point_is_drawn_twice_and_more_trials_than_points_are_refused(recipe: str, tmp_path: Path) -> None:
    varied = [Variation.parse("training.batch_size=4,8"), Variation.parse("training.epochs=1:2")]
    records = run_sweep(recipe, varied, trials=4, output=tmp_path / "sweep")
    points = {(each["overrides"]["training.batch_size"], each["overrides"]["training.epochs"]) for each in records}
    assert points == {(4, 1), (4, 2), (8, 1), (8, 2)}
    with pytest.raises(RecipeError, match="have 4 different values, fewer than the 5 trials"):
        plan_sweep(recipe, varied, trials=5)


def test_without_optuna_the_message_says_what_to_install(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RecipeError, match=r"pip install 'treemem\[sweep\]'"):
        plan_sweep(recipe, [], trials=1)


def test_no_test_example_is_trained_on_or_scored(
    recipe: str, tmp_path: Path, before_fit: list[Callable[..., None]]
) -> None:
    seen: list[set[str]] = []
    before_fit.append(lambda task, network, data, *_, **__: seen.append(set(data.tree_data["split"])))
    run_sweep(recipe, [], trials=2, output=tmp_path / "sweep")
    assert seen == [{"train", "validation"}] * 2


def test_trials_are_judged_by_what_chooses_the_best_epoch(recipe: str, tmp_path: Path) -> None:
    variations = [Variation.parse("training.learning_rate=1e-3,1e-1")]
    planned = plan_sweep(recipe, variations, trials=2, overrides=["training.monitor=loss"])
    records = run_trials(planned, 2, tmp_path / "sweep")
    losses = [record["validation_loss"] for record in records]
    assert planned.monitor.mode == "min"
    assert planned.best(records)["validation_loss"] == min(losses) < max(losses)
    with pytest.raises(RecipeError, match=r"cannot vary training\.monitor: the trials are judged by it"):
        plan_sweep(recipe, [Variation.parse("training.monitor=loss,accuracy")], trials=2)


def test_trials_with_a_rare_class_are_judged_by_the_loss(tmp_path: Path) -> None:
    rows = "".join(f"(f x),{'b' if place % 10 == 0 else 'a'}\n" for place in range(40))
    (tmp_path / "rare.csv").write_text("tree,label\n" + rows)
    content = {
        "task": "table_classes",
        "task_options": {"path": str(tmp_path / "rare.csv"), "target": ["label"]},
        "networks": {"sum": {"network": "TreeRNN", "options": {"hidden_size": 2}}},
        "training": {"epochs": 1, "batch_size": 8},
    }
    (tmp_path / "rare.yaml").write_text(yaml.safe_dump(content))
    assert plan_sweep(str(tmp_path / "rare.yaml"), [], trials=1).judged_by == "validation_loss"


def test_a_recorded_trial_is_not_run_again_and_more_can_be_added(
    recipe: str, tmp_path: Path, before_fit: list[Callable[..., None]]
) -> None:
    output = tmp_path / "sweep"
    variations = [Variation.parse("training.learning_rate=1e-3:1e-1:log"), Variation.parse("data.seed=1,2")]
    first = run_sweep(recipe, variations, trials=2, output=output)
    ran: list[str] = []
    before_fit.append(lambda *_, output, **__: ran.append(output.name))
    longer = run_sweep(recipe, variations, trials=3, output=output)
    assert longer[:2] == first
    assert ran == ["trial-003"]
    assert len({record["overrides"]["training.learning_rate"] for record in longer}) == 3
    assert run_sweep(recipe, variations, trials=1, output=output) == first[:1]
    with pytest.raises(RecipeError, match=r"trials\.jsonl has a trial 1 of another sweep"):
        run_sweep(recipe, variations[:1], trials=1, output=output)
    run_sweep(recipe, variations[:1], trials=1, output=output, overwrite=True)
    assert sorted(path.name for path in output.glob("trial*")) == ["trial-001", "trials.jsonl"]


def test_a_trial_that_diverges_is_recorded_and_is_not_the_best(
    recipe: str, tmp_path: Path, before_fit: list[Callable[..., None]]
) -> None:
    before_fit.append(failing("trial-001", DivergedError))
    records = run_sweep(recipe, [], trials=2, output=tmp_path / "sweep")
    assert records[0]["error"] == "the loss is not finite"
    assert records[0]["validation_accuracy"] is None
    planned = plan_sweep(recipe, [], trials=2)
    assert planned.best(records)["trial"] == 2
    with pytest.raises(RecipeError, match="no trial came to anything; the first: the loss is not finite"):
        planned.best(records[:1])


@pytest.mark.parametrize("diverging", [1, 2])
def test_a_trial_with_seeds_that_diverges_is_recorded_like_the_others(
    diverging: int, recipe: str, tmp_path: Path, before_fit: list[Callable[..., None]]
) -> None:
    output = tmp_path / "sweep"
    before_fit.append(failing(f"trial-00{diverging}/seed-2", DivergedError))
    planned = plan_sweep(recipe, [], trials=2, seeds=[1, 2])
    records = run_trials(planned, 2, output)
    assert [record["error"] for record in records] == [
        "the loss is not finite" if n == diverging else None for n in (1, 2)
    ]
    assert [record["seeds"] for record in records] == [[1, 2]] * 2
    assert [record["by_seed"] is None for record in records] == [n == diverging for n in (1, 2)]
    assert run_trials(planned, 2, output) == records


def test_data_that_are_not_divided_cannot_be_searched_with() -> None:
    assert set(without_test(toy_data(20)).tree_data["split"]) == {"train", "validation"}
    with pytest.raises(RecipeError, match="needs validation examples"):
        without_test(toy_data(20, divided=False))
