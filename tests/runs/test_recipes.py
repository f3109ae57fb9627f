from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from toy_task import KindSum, MoreX, ToyDataOptions

from treemem.errors import RecipeError
from treemem.networks import NETWORKS, NetworkConfig
from treemem.plain_yaml import dump_yaml
from treemem.runs.options import TrainingOptions
from treemem.runs.recipe import (
    load_recipe,
    load_task_data,
    parse_recipe,
)
from treemem.task import TASKS
from treemem.trees.vocabulary import Vocabulary
from treemem.type_words import type_words


def content(**changes: Any) -> dict[str, Any]:
    return {
        "task": "more_x",
        "data": {"count": 50},
        "networks": {"sum": {"network": "KindSum", "options": {"hidden_size": 3}}},
        "training": {"epochs": 2, "learning_rate": "1e-2"},
        **changes,
    }


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_yaml(content(**changes)))
    return path


def test_a_recipe_is_read_into_dataclasses(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, seeds=[1, 2]))
    assert recipe.make_task() == MoreX()
    assert recipe.data == ToyDataOptions(count=50)
    assert recipe.networks == {"sum": NetworkConfig("KindSum", {"hidden_size": 3})}
    assert recipe.training == TrainingOptions(epochs=2, learning_rate=0.01)
    assert recipe.seeds == (1, 2)
    shortest = parse_recipe({"task": "more_x", "networks": content()["networks"]})
    assert (shortest.training, shortest.data, shortest.seeds) == (TrainingOptions(), ToyDataOptions(), ())


def test_any_field_can_be_overridden(tmp_path: Path) -> None:
    overrides = [
        "training.epochs=5",
        "training.clip=0.5",
        "training.schedule=cosine",
        "training.averaging=0.99",
        "data.seed=3",
        "networks.sum.options={hidden_size: '3', dropout: '1e-1'}",
        "task_options.strict=true",
        "seeds=[4, 5]",
    ]
    recipe = load_recipe(written(tmp_path), overrides)
    assert recipe.training.epochs == 5
    assert recipe.training.clip == 0.5
    assert (recipe.training.schedule, recipe.training.averaging) == ("cosine", 0.99)
    assert recipe.data.seed == 3
    assert recipe.networks["sum"].options == {"hidden_size": 3, "dropout": 0.1}
    assert recipe.make_task() == MoreX(strict=True)
    assert recipe.seeds == (4, 5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trainin": {}}, "no field 'trainin'; did you mean training"),
        ({"training": {"epoch": 2}}, r"no field 'training\.epoch'; did you mean epochs"),
        ({"training": {"epochs": "many"}}, r"training\.epochs must be a whole number, not \'many\'$"),
        ({"training": {"epochs": 0}}, "epochs must be at least 1"),
        ({"training": 3}, "training must be fields"),
        ({"data": {"cuont": 2}}, r"no field 'data\.cuont'; did you mean count"),
        ({"networks": {"a": {"netwrk": "KindSum"}}}, r"no field 'networks\.a\.netwrk'; did you mean network"),
        ({"networks": {"a": {"network": "KindSun"}}}, "no network 'KindSun'; did you mean KindSum"),
        ({"networks": {"a": {"network": "KindSum", "options": {"hidden": 1}}}}, "did you mean hidden_size"),
        ({"networks": ["KindSum"]}, "networks must be names"),
        ({"task": "more_z"}, "no task 'more_z'; did you mean more_x"),
        ({"networks": {"a": {"network": "KindSum", "options": {}}}}, r"networks\.a\.options\.hidden_size is missing"),
        (
            {"networks": {"a": {"network": "KindSum", "options": {"hidden_size": "abc"}}}},
            "hidden_size must be a whole number, not 'abc'",
        ),
        ({"networks": {"a": {"network": "KindSum", "options": {"hidden_size": 10**30}}}}, "'hidden_size': 1000"),
        ({"networks": {"a": {"network": "TreeLSTM", "options": {"hidden_size": 0}}}}, "hidden_size must be at least 1"),
        ({"task_options": {"strict": "maybe"}}, r"task_options\.strict must be true or false, not 'maybe'"),
        ({"task_options": {"strikt": True}}, r"no field 'task_options\.strikt'; did you mean strict"),
        ({"seeds": ["a"]}, r"seeds must be a list of whole numbers"),
        ({"seeds": 3}, r"seeds must be a list of whole numbers, not '3'; write \[3\]$"),
        ({"seeds": "three"}, r"seeds must be a list of whole numbers, not 'three'$"),
        ({"seeds": [1, -1]}, r"seeds must be from 0 to 2\^63 - 1, not -1$"),
        ({"seeds": [1, 2, 1]}, r"seeds must differ, not 1, 2, 1$"),
    ],
)
def test_an_unknown_or_ill_typed_field_is_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem) as caught:
        load_recipe(written(tmp_path, **changes))
    assert "recipe.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("training.epochs", "write FIELD=VALUE"),
        ("task.name=x", "'task' has no fields"),
        ("training.epochs=[", "is not a YAML value"),
        (
            "training.epochs=0",
            r"yaml with training\.batch_size=4 training\.epochs=0 data\.seed=3: epochs must be",
        ),
        ("networks.sum.options.hidden_size=1e2", r"sum\.options\.hidden_size must be a whole number, not '100\.0'$"),
        (
            "networks.sum.options={hidden_size: 3, dropout: maybe}",
            r"sum\.options\.dropout must be a number, not 'maybe'$",
        ),
        ("networks.sum.options={hidden_size: 3, hidden_size: 4}", "the field 'hidden_size' is given twice"),
        ("training.epochs=2024-13-45", "is not a YAML value"),
        ("training.averaging=often", r"training\.averaging must be a number or null, not 'often'$"),
        (
            "training.curriculum=[[5]]",
            r"must be a whole number or a list of lists of 2 whole numbers, not '\[\[5\]\]'$",
        ),
    ],
)
def test_a_wrong_override_is_named(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem) as caught:
        load_recipe(written(tmp_path), ["training.batch_size=4", override, "data.seed=3"])
    assert len(str(caught.value)) < 1000


def test_an_override_mends_a_mistake_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, training={"epochs": 0})
    with pytest.raises(RecipeError, match=r"recipe\.yaml: epochs must be at least 1"):
        load_recipe(path)
    assert load_recipe(path, ["training.epochs=1"]).training.epochs == 1
    with pytest.raises(RecipeError, match=r"with training\.epochs=1 seeds=x: seeds must be a list"):
        load_recipe(path, ["training.epochs=1", "seeds=x"])


def test_a_network_whose_types_only_checkers_see_and_one_made_by_a_function_are_checked_by_making_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(KindSum):
        def __init__(self, hidden_size: OnlyForCheckers, vocabulary: Vocabulary, **more: float) -> None:  # noqa: F821
            super().__init__(hidden_size, vocabulary, **more)

    def made(vocabulary: Vocabulary, hidden_size: int = 2) -> KindSum:
        assert torch.linspace(0, 1, hidden_size).tolist()[0] == 0
        return KindSum(hidden_size, vocabulary)

    monkeypatch.setattr(NETWORKS, "_registered", {**NETWORKS._registered, "Late": Late, "made": made})
    for name, size in (("Late", 3), ("made", 4)):
        networks = {"a": {"network": name, "options": {"hidden_size": size}}}
        assert parse_recipe(content(networks=networks)).networks["a"].options == {"hidden_size": size}
        networks["a"]["options"] = {"hidden_size": "abc"}
        with pytest.raises(RecipeError, match=r"networks\.a\.options.*abc"):
            parse_recipe(content(networks=networks))


@pytest.mark.parametrize("text", ["task: more_x\ntask: more_x\n", "training: {epochs: 3, 'epochs': 4}\ntask: more_x\n"])
def test_a_field_given_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"recipe\.yaml: the field '(task|epochs)' is given twice .*line \d"):
        load_recipe(path)


def test_aliases_are_refused_as_they_let_a_small_file_grow_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("task: more_x\nnetworks:\n  a: &a {network: KindSum, options: {hidden_size: 3}}\n  b: *a\n")
    with pytest.raises(RecipeError, match=r"recipe\.yaml: the alias \*a is not read; write the value out .*line 4"):
        load_recipe(path)


@pytest.mark.parametrize(
    "text",
    ["", "- a\n", "a: [", "a: !!python/object/apply:os.getcwd []\n", "\xff", "a: !!int ''", "2024-13-45"],
    ids=range(7),
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecipeError, match=r"recipe\.yaml"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("task_options.numeric=maybe", "task_options.numeric must be true or false, not 'maybe'"),
        ("task_options.decoder_activation=softplus", "task_options.decoder_activation must be one of .*softplus"),
        ("networks.Tree-LSTM+stack+normalize+no-op.options.stack_size=0", "stack_size must be at least 1, not 0"),
        ("networks.Tree-LSTM.options.engine=fast", "engine='fast' is none of auto, naive, autograd"),
    ],
)
def test_options_of_the_packaged_task_and_networks_are_checked_with_the_recipe(override: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        load_recipe("equation_verification/small", [override])


def test_a_recipe_may_name_an_engine_as_it_was_named_before_as_a_layer_may() -> None:
    recipe = load_recipe("equation_verification/small", ["networks.Tree-LSTM.options.engine=fused"])
    network = recipe.networks["Tree-LSTM"].build(recipe.make_task().vocabulary)
    assert network.options["engine"] == "auto"


def test_a_missing_file_of_the_task_is_no_fault_of_a_network() -> None:
    with pytest.raises(RecipeError, match=r"task_options.path=/nowhere: there is no file /nowhere/train\.txt"):
        load_recipe("sentiment/small", ["task_options.path=/nowhere"])


def test_an_unknown_recipe_names_the_near_ones() -> None:
    with pytest.raises(RecipeError, match="did you mean equation_verification/small"):
        load_recipe("equation_verification/smal")
    with pytest.raises(RecipeError, match="no recipe 'nothing'"):
        load_recipe("nothing")


def test_a_recipe_can_be_narrowed_to_networks_of_its_own_or_of_its_task() -> None:
    recipe = load_recipe("equation_verification/small")
    assert recipe.with_networks(None) is recipe
    assert list(recipe.with_networks(["Tree-RNN", "Tree-LSTM"]).networks) == ["Tree-RNN", "Tree-LSTM"]
    with pytest.raises(RecipeError, match=r"no network 'tree-lstmm'; did you mean Tree-LSTM"):
        recipe.with_networks(["tree-lstmm"])


@pytest.mark.parametrize("name", ["../evil", "..", "/tmp/evil", "a\\b"])
def test_the_name_of_a_network_leads_to_no_other_folder(name: str) -> None:
    with pytest.raises(RecipeError, match="name a folder"):
        parse_recipe({"task": "equation_verification", "networks": {name: {"network": "TreeLSTM"}}})


def test_the_name_of_a_network_is_a_text(tmp_path: Path) -> None:
    network = {"network": "KindSum", "options": {"hidden_size": 3}}
    assert list(load_recipe(written(tmp_path, networks={"1": network, "no": network})).networks) == ["1", "no"]
    with pytest.raises(RecipeError, match="the network's name 1 is not a text; write it in quotes"):
        load_recipe(written(tmp_path, networks={1: network, "1": network}))


def test_a_whole_number_is_read_as_a_text_where_a_text_is_wanted() -> None:
    _, data = load_task_data("equation_verification", ["data.path=2024"])
    assert data.path == "2024"


def test_options_of_a_tasks_data_are_at_their_defaults_but_for_the_overrides() -> None:
    assert load_task_data("more_x") == (MoreX(), ToyDataOptions())
    found = load_task_data("more_x", ["data.count=7", "task_options.strict=true"])
    assert found == (MoreX(strict=True), ToyDataOptions(count=7))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.cuont=3", "more_x with data.seed=1 data.cuont=3: no field 'data.cuont'; did you mean count"),
        ("data.count=many", "data.count must be a whole number, not 'many'"),
        ("training.epochs=3", "no field 'training'; there are task, task_options, data"),
        ("task_options.strcit=true", "did you mean strict"),
        ("data", "write FIELD=VALUE"),
    ],
)
def test_a_wrong_override_of_a_tasks_data_is_named(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_task_data("more_x", ["data.seed=1", override])


def test_a_changed_network_has_a_name_of_its_own() -> None:
    recipe = load_recipe("equation_verification/small")
    stack = "networks.Tree-LSTM+stack+normalize+no-op"
    overrides = ["networks.Tree-LSTM.options.hidden_size=16", f"{stack}.network=TreeLSTM"]
    overrides += [f"{stack}.options={{hidden_size: 50}}"]
    named = load_recipe("equation_verification/small", overrides).named_by_changes(recipe)
    assert list(named.networks) == ["Tree-LSTM, hidden_size 16", "TreeLSTM, hidden_size 50"]
    assert recipe.named_by_changes(recipe) == recipe
    logic = load_recipe("logical_inference/small").with_networks(["Tree-LSTM"])
    logic = dataclasses.replace(logic, networks={"Tree-LSTM": NetworkConfig("TreeCell", {"hidden_size": 200})})
    (name,) = logic.named_by_changes(load_recipe("logical_inference/small")).networks
    assert name == "TreeCell, no dropout, no leaf_dropout"
    other = recipe.with_networks(["Transformer"])
    assert other.named_by_changes(recipe) == other


def test_fewer_epochs_than_a_curriculum_takes_leave_it_out(caplog: pytest.LogCaptureFixture) -> None:
    assert load_recipe("listops/small", ["training.epochs=10"]).training.curriculum
    assert "curriculum" not in caplog.text
    assert load_recipe("listops/small", ["training.epochs=1"]).training.curriculum == 0
    assert "the curriculum of the recipe takes 10 epochs; with 1 it is left out" in caplog.text
    with pytest.raises(RecipeError, match="which leaves none of epochs=1"):
        load_recipe("listops/small", ["training.epochs=1", "training.curriculum=[[7, 4]]"])


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Literal["a", "b"], "one of a, b"),
        (int | None, "a whole number or null"),
        (tuple[str, ...], "a list of texts"),
        (tuple[int, float], "a list of 2 whole numbers and numbers"),
        (dict[str, float], "names and numbers"),
        (bool, "true or false"),
    ],
)
def test_types_are_told_in_words(declared: Any, words: str) -> None:
    assert type_words(declared) == words


def test_a_misspelt_recipe_is_told_with_near_files_and_packaged_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("task: more_x\n")
    for source, near in (("mien.yaml", "mine.yaml"), ("listops/smal", "listops/small"), ("smal", "listops/small")):
        with pytest.raises(RecipeError, match=f"no recipe '{source}'.*{near}"):
            load_recipe(source)


def test_a_network_that_is_not_there_is_told_with_near_names() -> None:
    networks = TASKS.find("listops").networks
    with pytest.raises(RecipeError, match="no network 'TreeLSTM'; did you mean Tree-LSTM"):
        networks["TreeLSTM"]
    with pytest.raises(RecipeError, match="separate names by spaces, not by commas"):
        networks["LSTM,RNN"]
