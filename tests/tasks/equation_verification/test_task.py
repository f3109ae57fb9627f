from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import treemem
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.runs import load_recipe
from treemem.runs.recipe import recipe_fields
from treemem.tasks.equation_verification import (
    EquationDataOptions,
    EquationVerification,
    equation_vocabulary,
)
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.tasks.equation_verification.published import MAJORITY_CLASS, PUBLISHED_FIGURES
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import LEAF_LABELS
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.tree import Tree

TASK = EquationVerification()
NUMERIC_TASK = EquationVerification(numeric=True)
TEXTS = ["sin(x) = sin(x)", "x + 1 = x", "x^2 = x*x"]


def forest(texts: list[str], *, numeric: bool = False, **tree_data: object) -> Forest:
    trees = [parse_equation(text, numeric=numeric) for text in texts]
    return Forest.from_trees(trees, tree_data=tree_data)  # type: ignore[arg-type]


def test_the_vocabulary_is_the_published_one_whatever_the_data() -> None:
    vocabulary = TASK.vocabulary
    assert vocabulary.leaves == LEAF_LABELS
    assert len(vocabulary.leaves) == 34
    assert [len(vocabulary.kinds_of_arity[arity]) for arity in (1, 2)] == [25, 4]
    assert vocabulary.number is None
    assert equation_vocabulary(numeric=True).number == "Number"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Tree-RNN", {45: 73_937, 100: 356_802}),
        ("Tree-LSTM", {50: 362_952, 60: 520_742}),
        ("Tree-LSTM+stack+normalize+no-op", {50: 530_852, 60: 761_822}),
    ],
)
def test_numeric_networks_have_as_many_parameters_as_the_published_ones(name: str, count: dict[int, int]) -> None:
    for hidden_size, expected in count.items():
        model = Model(NUMERIC_TASK, NUMERIC_TASK.networks[name].replace(hidden_size=hidden_size))
        assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_examples_are_pairs_of_sides_with_the_depth_of_the_whole() -> None:
    examples = TASK.examples(forest(TEXTS, label=[1, 0, 1]))
    assert (len(examples), examples.trees_per_example, len(examples.forest)) == (3, 2, 6)
    assert list(examples.forest[:2]) == list(parse_equation(TEXTS[0]).children)
    assert examples.group.tolist() == [2, 2, 2]
    assert examples.targets["label"].tolist() == [1, 0, 1]
    assert examples.labelled.all()
    assert examples.split is None


def test_labels_splits_and_equations_may_be_missing() -> None:
    examples = TASK.examples(forest(TEXTS))
    assert not examples.labelled.any()
    examples = TASK.examples(forest(TEXTS, label=[1, -1, 0], split=["test", "train", "validation"]))
    assert examples.labelled.tolist() == [True, False, True]
    assert [examples.part(name).tolist() for name in ("train", "validation", "test")] == [[1], [2], [0]]
    examples = TASK.examples(Forest.from_trees([]))
    assert len(Model(TASK, TASK.networks["Tree-RNN"].replace(hidden_size=3)).outputs(examples)) == 0


def test_what_is_no_equation_or_no_label_is_refused() -> None:
    with pytest.raises(GraphError, match="tree 2 is no equation: its root is 'Add' with 2 children"):
        TASK.examples(Forest.from_trees([parse_equation("x = x"), Tree("Add", [Tree("One:1"), Tree("One:1")])]))
    with pytest.raises(GraphError, match="'Equality' with 1 children"):
        TASK.examples(Forest.from_trees([Tree("Equality", [Tree("One:1")])]))
    with pytest.raises(RecipeError, match="must be 1"):
        TASK.examples(forest(TEXTS, label=[1, 0, 2]))
    with pytest.raises(RecipeError, match="holds 'tset'; it must be one of"):
        TASK.examples(forest(TEXTS, split=["train", "tset", "train"]))


def test_loss_and_probability_are_those_of_the_score() -> None:
    score = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    label = np.array([1, 0, 0])
    expected = (
        torch.log1p((-score).exp()) * torch.tensor(label) + torch.log1p(score.exp()) * torch.tensor(1 - label)
    ).mean()
    torch.testing.assert_close(TASK.loss(score, {"label": torch.tensor(label)}).mean, expected)
    probability = TASK.probabilities(score, {"label": label})
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-score.numpy())))
    scores = TASK.scores(score, {"label": label}, np.array([8, 8, 9]))
    assert [(each.group, each.accuracy) for each in scores] == [(8, 1.0), (9, 0.0), ("all", 2 / 3)]


@pytest.mark.parametrize(
    ("text", "side", "value"),
    [
        ("sin(2.5) = 0.6", 0, 0.6),
        ("0.6 = sin(2.5)", 1, 0.6),
        ("sin(2.5) = -0.6", 0, -0.6),
        ("2.5 = 2.25", 0, 2.25),
        ("x + 2.5 = 2.5 + x", -1, 0.0),
        ("sin(x) = 1", -1, 0.0),
        ("x = 7", -1, 0.0),
    ],
)
def test_a_number_alone_on_a_side_is_what_the_other_side_decodes_to(text: str, side: int, value: float) -> None:
    targets = NUMERIC_TASK.examples(forest([text], numeric=True)).targets
    assert (targets["side"].tolist(), targets["value"].tolist()) == ([side], [value])


def test_a_negated_number_is_a_number() -> None:
    number = Tree("Number", value=0.6)
    minus = Tree("NegativeOne:-1")
    for negated in (Tree("Mul", [minus, number]), Tree("Mul", [number, minus])):
        targets = NUMERIC_TASK.examples(Forest.from_trees([Tree("Equality", [number, negated])])).targets
        assert (targets["side"].tolist(), targets["value"].tolist()) == ([0], [-0.6])
    other = Tree("Add", [minus, number])
    assert NUMERIC_TASK.examples(Forest.from_trees([Tree("Equality", [other, other])])).targets["side"].tolist() == [-1]


def test_the_numeric_loss_adds_squared_errors_of_correct_equations() -> None:
    outputs = torch.tensor([[1.0, 9.0, 9.0], [9.0, 0.5, 9.0], [9.0, 9.0, 2.0], [9.0, 4.0, 9.0]], dtype=torch.float64)
    targets = {"label": [1, 1, 1, 0], "side": [-1, 0, 1, 0], "value": [0.0, 0.6, 1.5, 1.0]}
    tensors = {name: torch.tensor(values) for name, values in targets.items()}
    expected = (np.log1p(np.exp(-1.0)) + 0.1**2 + 0.5**2) / 4
    assert NUMERIC_TASK.loss(outputs, tensors).mean.item() == pytest.approx(expected)
    close = outputs.clone()
    close[1, 1] = 0.6004
    arrays = {name: np.array(values) for name, values in targets.items()}
    np.testing.assert_allclose(NUMERIC_TASK.probabilities(close, arrays), [1 / (1 + np.exp(-1)), 1, 0, 0])


def test_dictionaries_with_the_fields_of_a_record_are_predicted() -> None:
    model = treemem.load_pretrained()
    records = [{"lhs": "x + y", "rhs": "y + x", "label": 1}, {"equation": "x = y"}]
    nodes = {"label": "Equality", "children": ["Symbol:var_0", "Symbol:var_1"]}
    expected = model.predict(["x + y = y + x", "x = y", "x = y"])
    np.testing.assert_array_equal(model.predict([*records, nodes]), expected)


def test_data_come_from_the_generator_a_folder_or_a_file(tmp_path: Path) -> None:
    made = TASK.make_data(EquationDataOptions(size=60, seed=5))
    data = generate_equations(60, seed=5)
    assert made.forest == data
    assert "60 equations made by treemem's equation generator, version 2, seed 5" in made.card
    assert "28 real points, and at 12 complex ones" in made.card
    data.save(tmp_path / "data")
    assert TASK.make_data(EquationDataOptions(path=str(tmp_path / "data"))).forest == data
    (tmp_path / "own.txt").write_text("x = x\t1\n" * 5 + "sin(cos(sin(cos(sin(cos(sin(x))))))) = x\t0\n")
    divided = TASK.make_data(EquationDataOptions(path=str(tmp_path / "own.txt"))).forest
    assert sorted(divided.tree_data["split"].tolist()) == ["test", *["train"] * 4, "validation"]
    (tmp_path / "own.csv").write_text("equation,label,split\nx = x,1,train\nx = -x,0,validation\n")
    given = TASK.make_data(EquationDataOptions(path=str(tmp_path / "own.csv"))).forest
    assert given.tree_data["split"].tolist() == ["train", "validation"]
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(RecipeError, match="no equations"):
        TASK.make_data(EquationDataOptions(path=str(tmp_path / "empty.txt")))


@pytest.mark.parametrize(
    ("size", "empty"), [(0, "train and validation and test"), (8, "validation and test"), (12, "test")]
)
def test_a_size_that_leaves_a_split_without_equations_is_refused(size: int, empty: str) -> None:
    with pytest.raises(RecipeError, match=rf"data\.size is {size}, which leaves no equation for {empty}; .* larger"):
        TASK.make_data(EquationDataOptions(size=size), progress=False)


def test_a_score_of_exactly_zero_is_wrong_for_either_label() -> None:
    scores = TASK.scores(torch.zeros(2), {"label": np.array([0, 1])}, np.array([1, 1]))
    assert scores[-1].accuracy == 0


def test_published_figures_are_those_of_the_table() -> None:
    found = {(each.network, each.split, each.metric): (each.value, each.deviation) for each in PUBLISHED_FIGURES}
    assert found["Tree-LSTM+stack+normalize+no-op", "test", "accuracy"] == (0.8601, 0.0074)
    assert found["Tree-LSTM", "test", "recall"] == (0.8045, 0.0383)
    assert found["Tree-RNN", "train", "precision"] == (0.9536, None)
    assert found["Tree-LSTM+stack", "validation", "accuracy"] == (0.9331, None)
    assert found["majority class", "test", "accuracy"] == (MAJORITY_CLASS["test"], None)
    assert {each.network for each in PUBLISHED_FIGURES} - {"majority class"} <= set(TASK.networks)
    assert len(found) == len(PUBLISHED_FIGURES) == 7 * 9 + 3


def test_recipes_train_networks_of_the_task() -> None:
    small, published = load_recipe("equation_verification/small"), load_recipe("equation_verification/published")
    assert list(small.networks) == ["Tree-LSTM", "Tree-LSTM+stack+normalize+no-op"]
    assert published.data.size == 41_894
    assert published.seeds == (12093, 12345, 45678)
    for recipe in (small, published):
        task = recipe.make_task()
        for name, network in recipe.networks.items():
            own, named = (Model(task, each).state_dict().keys() for each in (network, TASK.networks[name]))
            assert own == named


def test_the_recipe_of_an_earlier_run_is_read_if_its_data_are_those_of_today(tmp_path: Path) -> None:
    recipe = load_recipe("equation_verification/small")
    for version in ("2", 2, "1"):
        content = recipe_fields(recipe)
        content["data"] |= {"version": version, "derived_share": 0.0, "branches": False}
        (tmp_path / f"{version}.yaml").write_text(json.dumps(content))
    assert load_recipe(tmp_path / "2.yaml") == recipe
    with pytest.raises(RecipeError, match=r"no field 'data\.version'"):
        load_recipe(tmp_path / "1.yaml")


def test_numeric_data_are_generated_beside_symbolic_ones_for_a_numeric_task_only() -> None:
    made = NUMERIC_TASK.make_data(EquationDataOptions(size=60, numeric=20, seed=5))
    examples = NUMERIC_TASK.examples(made.forest)
    assert len(examples) == 80
    assert (examples.targets["side"][60:] != -1).sum() == 20
    assert set(made.forest.tree_data["split"][60:].tolist()) == {"train", "validation", "test"}
    with pytest.raises(RecipeError, match="task_options"):
        TASK.make_data(EquationDataOptions(size=60, numeric=20))


def test_more_equations_can_be_asked_for_to_train_on() -> None:
    few = TASK.make_data(EquationDataOptions(size=300, seed=4)).forest
    more = TASK.make_data(EquationDataOptions(size=300, seed=4, training_size=1000, training_depth=10))
    split = more.forest.tree_data["split"]
    assert (split == "train").sum() == 1000
    for name in ("validation", "test"):
        theirs = few[few.tree_data["split"] == name]
        assert [str(tree) for tree in more.forest[split == name]] == [str(tree) for tree in theirs]
    depth = more.forest.height()[more.forest.begin[1:] - 1]
    assert depth[split == "train"].max() == 10
    assert set(split[depth > 10]) == {"test"}
    assert f"Beside them, {len(more.forest) - len(few)} equations of depth 1-10" in more.card
    with pytest.raises(RecipeError, match="for training already"):
        TASK.make_data(EquationDataOptions(size=300, seed=4, training_size=10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"training_depth": 9}, "data.training_depth needs data.training_size; set that too"),
        ({"training_size": 400, "training_depth": 21}, "data.training_depth must be 7 to 20, not 21"),
        ({"training_size": 400, "max_depth": 4}, "data.max_depth is 4; make it at least 7"),
        ({"training_size": 400, "path": "own.csv"}, "set only one of them"),
        ({"numeric": 50, "path": "own.csv"}, "data.numeric adds to generated equations, but data.path is set"),
    ],
)
def test_options_of_data_are_refused_when_they_are_made(options: dict[str, float], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        EquationDataOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("read_out", ["dot", "cosine", "distance", "comparison"])
def test_every_read_out_is_kept_in_a_checkpoint(tmp_path: Path, read_out: str, numeric: bool) -> None:
    task = EquationVerification(numeric=numeric, read_out=read_out)  # type: ignore[arg-type]
    model = Model(task, TASK.networks["Tree-LSTM"].replace(hidden_size=4)).eval()
    treemem.checkpoint.save(tmp_path / "model", model)
    again = treemem.load(tmp_path / "model")
    assert again.task == task
    np.testing.assert_array_equal(again.predict(TEXTS), model.predict(TEXTS))
    swapped = [" = ".join(reversed(text.split(" = "))) for text in TEXTS]
    np.testing.assert_allclose(model.predict(swapped), model.predict(TEXTS), rtol=1e-6)
