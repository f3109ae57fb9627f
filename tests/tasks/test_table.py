"""Tasks from tables: classes, numbers and labels of trees."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treemem
from treemem.checkpoint import save
from treemem.cli.program import main
from treemem.errors import GraphError, ParseError, RecipeError
from treemem.explore.explorer import page_data
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor, predict_file
from treemem.records import write_records
from treemem.runs import TrainingOptions, evaluate, fit
from treemem.tasks.table import TableDataOptions, TableRegression, task_from_table
from treemem.trees import Tree, Vocabulary, parse_brackets, parse_text
from treemem.trees.formats.forms import FORMS

OPTIONS = TrainingOptions(epochs=8, batch_size=16, learning_rate=0.02, threads=1, seed=3)


def rows(count: int = 240) -> list[dict[str, Any]]:
    """Random trees, with what there is to predict of them."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        tree = Tree("xyz"[draw.integers(3)])
        for _ in range(draw.integers(1, 5)):
            tree = Tree("fg"[draw.integers(2)], [tree, "xyz"[draw.integers(3)]])
        labels = {node.label for node in tree.postorder()}
        found.append(
            {
                "expr": str(tree),
                "size": tree.size + 0.5,
                "twice": 2 * tree.size,
                "root": tree.label,
                "has x": int("x" in labels),
                "has f": int("f" in labels),
            }
        )
    return found


ROWS = rows()


@pytest.mark.parametrize(
    ("target", "name", "metric", "least"),
    [
        ("root", "table_classes", "accuracy", 0.9),
        ("size", "table_regression", "r2", 0.6),
        (["has x", "has f"], "table_labels", "f1", 0.8),
    ],
)
def test_a_network_learns_the_columns_of_a_table(
    tmp_path: Path, target: Any, name: str, metric: str, least: float
) -> None:
    task = task_from_table(ROWS, tree="expr", target=target)
    assert task.name == name
    data = task.make_data(TableDataOptions())
    network = task.networks["Tree-LSTM"].replace(hidden_size=16)
    result = fit(task, network, data, OPTIONS, output=tmp_path / "run")
    score = evaluate(result.model, data, split="test").scores[-1]
    assert score.metrics[metric] > least
    loaded = treemem.load(tmp_path / "run")
    texts = [row["expr"] for row in ROWS[:20]]
    np.testing.assert_allclose(loaded.predict(texts), result.model.predict(texts), rtol=1e-5)
    answers = list(TreePredictor(loaded).predict([{"expr": texts[0]}, {"expr": "(f x"}, {"expr": "(f x new)"}]))
    assert answers[0]["prediction"] is not None
    assert "not closed" in answers[1]["error"]
    assert "new" in answers[2]["error"]


def test_numbers_are_scored_in_the_units_of_the_table() -> None:
    task = task_from_table(ROWS, tree="expr", target=["size", "twice"])
    assert task.monitor.mode == "min"
    kept = np.array([[1.0, 2.0], [3.0, 4.0]])
    torch = pytest.importorskip("torch")
    (score, _) = task.scores(torch.from_numpy(kept), {"label": np.array([[1.0, 0.0], [1.0, 4.0]])}, np.zeros(2, int))
    assert score.metrics["rmse size"] == pytest.approx(2**0.5)
    assert score.metrics["rmse twice"] == pytest.approx(2**0.5)
    assert score.metrics["mae"] == 1.0
    assert score.metrics["r2"] is None  # the first target is the same everywhere
    sizes = np.array([row["size"] for row in ROWS])
    assert task.mean[0] == pytest.approx(sizes.mean())
    assert task.scale[0] == pytest.approx(sizes.std())


def test_columns_may_hold_json_numbers_and_gaps(tmp_path: Path) -> None:
    table = [
        {"ast": {"label": "f", "children": [1, 2.5]}, "y": 0.5, "split": "train"},
        {"ast": ["g", 3], "y": None, "split": "train"},
        {"ast": '["g", 4]', "y": 1.5, "split": "test"},
    ]
    task = task_from_table(table, tree="ast", target="y", text="json", number="Number")
    data = task.make_data(TableDataOptions())
    assert data.forest.value is not None
    assert task.vocabulary.number == "Number"
    assert len(data.forest) == 2, "the row without a target is left out"
    assert task.examples(data.forest).labelled.all()
    assert isinstance(task, TableRegression)
    assert task.mean == (0.5,)  # of the rows to train on


@pytest.mark.parametrize(
    ("name", "target", "metric"),
    [("table_regression", ["size", "twice"], "rmse"), ("table_labels", ["has x", "has f"], "f1")],
)
def test_commands_train_sweep_predict_compare_and_evaluate_a_recipe_that_names_a_file(
    name: str, target: list[str], metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, recipe, scores = tmp_path / "data.jsonl", tmp_path / "recipe.yaml", tmp_path / "scores.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:60]))
    recipe.write_text(
        f"task: {name}\ntask_options: {{path: '{file}', tree: expr, target: {target}}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 4}}}\n"
        "training: {epochs: 1, threads: 1}\n"
    )
    assert main(["train", str(recipe), "-o", str(tmp_path / "run")]) == 0
    assert f"Test: {metric}{' in %' * (metric == 'f1')}, by height" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "run")]) == 0
    assert f"Test: {metric}{' in %' * (metric == 'f1')}, by height" in capsys.readouterr().out
    varied = ["--trials", "2", "--vary", "training.learning_rate=0.001,0.1"]
    assert main(["sweep", str(recipe), "-o", str(tmp_path / "sweep"), *varied]) == 0
    said = capsys.readouterr().out
    assert f"validation {metric} |" in said
    records = [json.loads(line) for line in (tmp_path / "sweep" / "trials.jsonl").read_text().splitlines()]
    best = (min if metric == "rmse" else max)(records, key=lambda record: record[f"validation_{metric}"])
    assert f"best: trial {best['trial']}, " in said
    trial = str(tmp_path / "sweep" / f"trial-00{best['trial']}")
    assert main(["predict", trial, str(file), "-o", str(tmp_path / "answers.jsonl"), "--processes", "1"]) == 0
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 60
    assert main(["evaluate", trial, str(file), "--json", str(scores)]) == 0
    assert ("precision" in capsys.readouterr().out) == (name == "table_labels")
    content = json.loads(scores.read_text())
    assert content["scores"][-1][metric] is not None
    assert content["reliability"] is None
    assert main(["evaluate", trial, str(file), "--reliability"]) == 2
    assert f"--reliability needs a classification task, and {name} is not one" in capsys.readouterr().err


def with_nodes(count: int = 240) -> list[dict[str, Any]]:
    """The rows with a class for each node: whether there is an x below it; the classes of some nodes are not known."""
    found = []
    for place, row in enumerate(ROWS[:count]):
        nodes = list(parse_brackets(row["expr"]).postorder())
        names = ["x" if "x" in {each.label for each in node.postorder()} else "none" for node in nodes]
        found.append({"expr": row["expr"], "classes": [None, *names[1:]] if place % 7 == 0 else names})
    return found


def test_a_network_learns_the_classes_of_nodes(tmp_path: Path) -> None:
    table = with_nodes()
    task = task_from_table(table, tree="expr", target="classes")
    assert (task.name, task.classes) == ("table_nodes", ("none", "x"))
    data = task.make_data(TableDataOptions())
    result = fit(task, task.networks["Tree-RNN"].replace(hidden_size=16), data, OPTIONS, output=tmp_path / "run")
    score = evaluate(result.model, data, split="test").scores[-1]
    assert score.metrics["node accuracy"] > 0.9
    assert score.metrics["tree accuracy"] <= score.metrics["node accuracy"]
    (names,) = treemem.load(tmp_path / "run").predict(["(f (g x y) z)"])
    assert names == ["x", "none", "x", "none", "x"]


def test_scores_of_nodes_leave_out_those_without_a_class() -> None:
    task = task_from_table(with_nodes(), tree="expr", target="classes")
    kept = [np.array([1, 0]), np.array([1, 1, 1])]
    low, high, whole = task.scores(kept, {"label": np.array([1, -1, 1, 0, 1])}, np.array([1, 2]))
    assert (low.metrics["node accuracy"], low.metrics["tree accuracy"]) == (1, 1)
    assert (high.metrics["node accuracy"], high.metrics["tree accuracy"]) == (pytest.approx(2 / 3), 0)
    assert (whole.metrics["node accuracy"], whole.metrics["tree accuracy"]) == (pytest.approx(3 / 4), 0.5)


def test_classes_of_nodes_are_read_from_files(tmp_path: Path) -> None:
    table = with_nodes(20)
    cells = [json.dumps(row["classes"]).replace('"', '""') for row in table]
    lines = [f'{row["expr"]},"{cell}"\n' for row, cell in zip(table, cells, strict=True)]
    (tmp_path / "data.csv").write_text("".join(["expr,classes\n", *lines]))
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    frame = pytest.importorskip("pandas").DataFrame(table)
    frame.to_parquet(tmp_path / "data.parquet")
    expected = task_from_table(table, tree="expr", target="classes").make_data(TableDataOptions()).forest
    for source in (tmp_path / "data.csv", tmp_path / "data.jsonl", tmp_path / "data.parquet", frame):
        task = task_from_table(source, tree="expr", target="classes")
        assert task.name == "table_nodes"
        assert task.make_data(TableDataOptions()).forest == expected


def test_whole_numbers_are_classes_however_large(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    large = 2**53
    file.write_text(f"expr,y\n(f x),{large}\n(f y),{large + 1}\n(g x),5.0\n")
    assert task_from_table(file, tree="expr", target="y").classes == (5, large, large + 1)


def test_a_split_is_read_as_in_other_files() -> None:
    table = [{"expr": "(f x)", "y": "a", "split": "train "}, {"expr": "(f y)", "y": "b", "split": "test"}]
    task = task_from_table(table, tree="expr", target="y")
    assert task.make_data(TableDataOptions()).forest.tree_data["split"].tolist() == ["train", "test"]
    for missing in (None, float("nan")):
        task = task_from_table([table[0], {**table[1], "split": missing}], tree="expr", target="y")
        with pytest.raises(RecipeError, match="some examples say no split, and others do"):
            task.make_data(TableDataOptions())


def test_rows_without_a_target_are_left_out_of_training() -> None:
    rows = [{"tree": f"(f x{number})", "size": None if number % 3 == 0 else number + 0.5} for number in range(30)]
    task = task_from_table(rows, tree="tree", target="size")
    data = task.make_data(TableDataOptions())
    assert len(data.forest) == 20
    assert "Rows without a target left out: 10." in data.card
    assert sorted(data.forest.tree_data["label"][:, 0] - 0.5) == [number for number in range(30) if number % 3]
    with pytest.raises(RecipeError, match="no row has a value in 'size'"):
        task_from_table(rows[::3], tree="tree", target="size", kind="regression").make_data(TableDataOptions())


@pytest.fixture(params=["csv", "jsonl", "frame"])
def numbered(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A table whose classes are whole numbers, and whose nodes have whole numbers, in different forms."""
    pandas = pytest.importorskip("pandas")
    rows = [
        {"expr": "(f x y)", "class": 10, "classes": [1, 0, 2]},
        {"expr": "x", "class": 2, "classes": [1]},
        {"expr": "y", "class": 0, "classes": [None]},
    ]
    frame = pandas.DataFrame(rows)
    if request.param == "frame":
        return frame
    path = tmp_path / f"data.{request.param}"
    if request.param == "csv":
        frame["classes"] = frame["classes"].map(json.dumps)
        frame.to_csv(path, index=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_classes_that_are_numbers_are_predicted_as_numbers(numbered: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    task = task_from_table(numbered, tree="expr", target="class")
    assert task.classes == (0, 2, 10)
    model = Model(task, task.networks["Tree-RNN"])
    save(tmp_path / "model", model)
    loaded = treemem.load(tmp_path / "model")
    assert loaded.task.classes == (0, 2, 10)
    assert list(loaded.predict(pandas.DataFrame({"expr": ["x", "y"]})).columns) == [0, 2, 10]
    answers = list(TreePredictor(loaded).predict(["x", "y"]))
    assert {type(answer["prediction"]) for answer in answers} == {int}
    nodes = task_from_table(numbered, tree="expr", target="classes")
    assert (nodes.name, nodes.classes) == ("table_nodes", (0, 1, 2))


def test_classes_that_are_texts_stay_texts() -> None:
    for cells in (["0", "1"], [0, "1"]):
        rows = [{"tree": "x", "name": cell} for cell in cells]
        assert task_from_table(rows, tree="tree", target="name", kind="classes").classes == ("0", "1")
    truths = [{"tree": "x", "yes": True}, {"tree": "y", "yes": False}, {"tree": "z", "yes": None}]
    assert task_from_table(truths, tree="tree", target="yes").classes == (False, True)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_row_of_a_data_frame_without_a_tree_is_an_error_that_names_it(missing: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"expr": ["(f x)", missing], "size": [2.5, 1.5]}, index=["one", "two"])
    with pytest.raises(ParseError, match=r"^row two: the field 'expr' is empty$"):
        task_from_table(frame, tree="expr", target="size")
    task = task_from_table(frame[:1], tree="expr", target="size")
    model = Model(task, task.networks["Tree-RNN"])
    with pytest.raises(ParseError, match=r"^row two: the field 'expr' is empty$"):
        model.predict(frame)
    answers = TreePredictor(model).predict(frame)
    assert answers["error"].tolist() == [None, "row two: the field 'expr' is empty"]
    assert answers["prediction"]["two"] is None
    for predict in (model.predict, TreePredictor(model).predict):
        with pytest.raises(RecipeError, match=r"columns \['exp', 'size'\], and none of expr; did you mean exp"):
            predict(frame.rename(columns={"expr": "exp"}))


def test_predictions_of_several_targets_and_of_nodes_keep_the_form_of_the_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS[:8])
    for target in (["size", "twice"], ["has x", "has f"]):
        task = task_from_table(frame, tree="expr", target=target)
        model = Model(task, task.networks["Tree-RNN"])
        assert list(model.predict(frame).columns) == target
    frame = pandas.DataFrame(with_nodes(8))
    task = task_from_table(frame, tree="expr", target="classes")
    model = Model(task, task.networks["Tree-RNN"])
    found = model.predict(frame)
    assert found.index.equals(frame.index)
    assert [len(classes) for classes in found] == [parse_brackets(text).size for text in frame["expr"]]
    frame.to_csv(tmp_path / "new.csv", index=False)
    for name in ("answers.csv", "answers.parquet"):
        predict_file(model, tmp_path / "new.csv", tmp_path / name)
    for answers in (pandas.read_csv(tmp_path / "answers.csv"), pandas.read_parquet(tmp_path / "answers.parquet")):
        assert answers["prediction"].map(json.loads).tolist() == found.tolist()


def test_a_sequence_network_for_classes_of_nodes_is_refused_when_it_is_made() -> None:
    task = task_from_table(with_nodes(8), tree="expr", target="classes")
    with pytest.raises(RecipeError, match="table_nodes needs a state for each node, and LSTM reads sequences"):
        Model(task, NetworkConfig("LSTM", {"hidden_size": 4}))


ROW = {"expr": "(f x y)", "size": 3}


@pytest.mark.parametrize(
    ("rows", "options", "error", "named"),
    [
        ([{"expr": "(f x y)", "size": ["a", "b"]}], {}, RecipeError, "row 1: 2 classes for a tree of 3 nodes"),
        ([ROW], {"kind": "nodes"}, RecipeError, "row 1: size must be a list of classes"),
        (ROWS, {"target": "siz"}, RecipeError, "'siz'; did you mean size"),
        ([ROWS[0], {"expr": "(f", "size": 1}], {}, ParseError, "row 2, column 3"),
        ([{"expr": [], "size": 1}], {}, GraphError, "row 1: a list describes"),
        ([{"expr": "x", "size": "big"}], {"kind": "regression"}, RecipeError, "size must be a finite number"),
        (
            [{"expr": "x = 1", "size": "a"}, {"expr": " ", "size": "b"}],
            {"text": "python"},
            ParseError,
            "row 2: the field 'expr' is empty",
        ),
        (ROWS, {"kind": "labels"}, RecipeError, "row 1: the label 'size' must be 1 or 0, not 7.5"),
        ([{"expr": "x", "size": 1.5}, {"expr": "y", "size": "big"}], {}, RecipeError, 'row 2: .*give kind="classes"'),
        ([], {}, RecipeError, "there is no row"),
        ({"expr": ["x"], "size": ["a"]}, {}, RecipeError, r"not one dictionary with the fields .* pandas\.DataFrame"),
        ([("x", "a")], {}, RecipeError, r"row 1: a row is a dictionary of its fields, not \('x', 'a'\)"),
        ([{0: "x", 1: "a"}], {"target": 1}, RecipeError, "a column has a text as its name, not 1"),
        ([{"expr": "x", "other": "a"}], {}, RecipeError, "no column 'size'; there are 'expr', 'other'"),
        ([{"expr": "(f x)", "size": 0.5}], {"number": "Number"}, RecipeError, "number='Number' has no effect"),
        ([{"expr": "x", "size": ["N/A"]}, {"expr": "y", "size": ["b"]}], {}, RecipeError, "'N/A' .* missing value"),
        (
            [{"expr": "( - ( -4 6 ) )", "size": "a"}, {"expr": "( + ( -1 9 ) )", "size": "b"}],
            {},
            RecipeError,
            "unlabelled",
        ),
        (
            [{"expr": "x", "size": "a", "split": "trian"}],
            {},
            ParseError,
            "row 1: the split is 'trian'; did you mean train",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    rows: Any, options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        task_from_table(rows, tree="expr", **{"target": "size", **options})


def test_a_column_may_have_texts_in_the_forms_of_files(tmp_path: Path) -> None:
    for form in ("newick", "conllu:upos", "python", "smtlib", "estree", "prefix", "parents", "xml"):
        example = FORMS[form].example
        file = tmp_path / "data.csv"
        write_records(file, [{"tree": example, "label": label} for label in ("a", "b")])
        task = task_from_table(file, tree="tree", target="label", text=form)
        assert list(task.table.forest) == [parse_text(example, form)] * 2  # type: ignore[arg-type]
        network = task.networks["Tree-LSTM"].replace(hidden_size=4)
        good, bad = TreePredictor(Model(task, network)).predict([{"tree": example}, {"tree": "(f ( x"}])
        assert good["error"] is None, form
        assert bad["error"].startswith("line 2"), form
        write_records(file, [{"tree": example, "label": "a"}, {"tree": "\\frac{x}{y}", "label": "b"}])
        with pytest.raises(ParseError, match=r"data\.csv, line [0-9]+, .*: this looks like LaTeX; .*; as '"):
            task_from_table(file, tree="tree", target="label", text=form)


def test_labels_of_another_form_are_refused_and_so_is_a_task_without_a_table() -> None:
    for target, named in (
        ("root", "numbers of the classes .*, not 'true'"),
        (["size", "twice"], "2 numbers for each tree"),
    ):
        task = task_from_table(ROWS, tree="expr", target=target)
        forest = task.read_examples(ROWS[:2]).with_data(tree_data={"label": ["true", "false"]})
        with pytest.raises(RecipeError, match=named):
            task.examples(forest)
    with pytest.raises(RecipeError, match="has no table"):
        _ = TableRegression().vocabulary


def test_numbers_that_float32_cannot_tell_apart_are_refused() -> None:
    def task_of(offset: float) -> Any:
        rows = [{"expr": row["expr"], "size": offset + 0.5 * (place % 3)} for place, row in enumerate(ROWS)]
        return task_from_table(rows, tree="expr", target="size")

    assert isinstance(task_of(1e4), TableRegression)
    with pytest.raises(RecipeError, match=r"'size' are about 1e\+08 .*; subtract a constant"):
        task_of(1e8)


def test_answers_have_the_line_of_the_file_on_which_a_row_begins(tmp_path: Path) -> None:
    task = task_from_table(ROWS, tree="expr", target="size")
    (tmp_path / "new.csv").write_text('expr,note\n(f x y),"two\nlines"\n(g x z),one\n(f,bad\n')
    predict_file(Model(task, task.networks["Tree-RNN"]), tmp_path / "new.csv", tmp_path / "answers.jsonl")
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == [2, 4, 5]
    assert answers[2]["error"].startswith("line 5")


@pytest.mark.parametrize(
    ("target", "labels"),
    [("size", ["2.5", None]), (["has x", "has f"], ["has f", "(none)"]), ("classes", ["a b", None])],
)
def test_a_page_shows_the_labels(target: Any, labels: list[str | None]) -> None:
    rows = [
        {"expr": "(f y)", "size": 2.5, "has x": 0, "has f": 1, "classes": ["a", "b"]},
        {"expr": "y", "size": None, "has x": 0, "has f": 0, "classes": None},
    ]
    task = task_from_table(rows, tree="expr", target=target)
    page = page_data(Model(task, task.networks["Tree-RNN"]), task.read_examples(rows))
    assert [example["label"] for example in page["examples"]] == labels


def read_table(tmp_path: Path, name: str, text: str, **options: Any) -> Any:
    (tmp_path / name).write_bytes(text.encode())
    return task_from_table(tmp_path / name, tree="tree", target="label", **options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "(f x y)\tpos\n(g x)\tneg\n"),
        ("a.tsv", "tree\tlabel\n(f x y)\tpos\n(g x)\tneg\n"),
        ("a.txt", "label\ttree\npos\t(f x y)\nneg\t(g x)\n"),
        ("a.tsv", "\ufeff\tid\tlabel\t tree\tnote\r\n0\ta\tpos\t(f x y)\tx\r\n1\tb\tneg\t(g x)\r\n\r\n"),
        ("a.csv", "label,tree\npos,(f x y)\nneg,(g x)\n"),
        ("a.csv", '\ufefftree , label,\r\n"(f x y)", pos,\r\n\r\n(g x),neg ,,\r\n,\r\n \r\n'),
        ("a.jsonl", '{"label": " pos", "tree": "(f x y)"}\n\n{"tree": "(g x)", "label": "neg "}\n'),
    ],
)
def test_files_are_read_as_people_write_them_and_predicted_too(tmp_path: Path, name: str, text: str) -> None:
    task = read_table(tmp_path, name, text)
    assert [str(tree) for tree in task.table.forest] == ["(f x y)", "(g x)"]
    assert task.table.targets == [["pos", "neg"]]
    assert task.classes == ("neg", "pos")
    model = Model(task, task.networks["Tree-RNN"])
    answers = tmp_path / "answers.jsonl"
    counts = predict_file(model, tmp_path / name, answers)
    assert (counts.predicted, counts.rejected) == (2, text.count("\n,\r\n")), "a row of empty cells is a bad record"
    assert task.read_examples(tmp_path / name).tree_data["label"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.tsv", "pos\t(f x y)\nneg\t(g x)\n", "line 1.* the tree is 'pos', and there are brackets in another column"),
        ("a.tsv", "Tree\tLabel\n(f x y)\tpos\n", "'Tree', 'Label'; expected 'tree', 'label'"),
        ("a.tsv", "tree\tclass\n(f x y)\tpos\n", "no column 'label'"),
        ("a.txt", "tree,label\n(f x y),pos\n", "no column 'label'; the file seems to be CSV"),
        ("a.csv", "tree;label\n(f x y);pos\n", "separated by ';'"),
        ("a.csv", "tree,label,label\n(f x y),pos,neg\n", "two columns have one name, 'label'"),
        ("a.csv", 'tree,label\n(f x y), "pos"\n', "line 2.* a quote after a space"),
        ("a.csv", "tree,label\n(f x y),pos\n(g x),N/A\n", "line 3: label 'N/A' .* missing value"),
        ("a.jsonl", '{"tree": "(f x)", "label": "None"}\n', "line 1: label 'None' .* missing value"),
        ("a.tsv", 'tree\tlabel\n"(f x)"\t"pos"\n', r'line 2.* the cell "\(f x\)" is in quotes'),
        ("a.csv", "tree,label\n?,pos\n", "line 2.* the field 'tree' is '[?]', .* missing value"),
        ("a.csv", "tree,label\n(f x),01\n(g x),1\n(h x),a\n", "label '1' and '01' are one number"),
        ("a.jsonl", '{"tree": "x", "label": true}\n{"tree": "y", "label": 0}\n', "'True' is a truth value"),
        ("a.csv", 'tree,label\n(f x),"1,5"\n(g x),2\n', "'1,5' seems to be a number in another spelling"),
        ("a.csv", "tree,label\n(f x),\"['a', 'b']\"\n(g x),\"['b', 'b']\"\n", "a list and is not JSON"),
        ("a.csv", "tree,label\n(f x),#REF!\n(g x),a\n", "line 2: label '#REF!'"),
        ("a.csv", "tree,label\n(f x),TRUE\n(g x),1\n", "line 2: label 'TRUE' is a truth value"),
        ("a.csv", "tree,label\n(f x),a\n(g x),a\n", "label has one class, 'a'"),
        ("a.csv", "tree,label\n(f x),a\n\0\0,\0\n", "line 3, column 1: .* NUL"),
        ("a.txt", "tree label\n(f x) a\n", "no column 'label'; its first row has one cell, 'tree label'"),
        ("a.jsonl", '{"tree": "x", "label": "a", "label": "b"}\n', "line 1.*two fields have one name, 'label'"),
    ],
)
def test_files_that_could_be_misread_are_refused(tmp_path: Path, name: str, text: str, named: str) -> None:
    with pytest.raises((ParseError, RecipeError), match=named):
        read_table(tmp_path, name, text)


@pytest.mark.parametrize(
    ("cells", "classes", "numbers"),
    [
        (["1.0", "0.0", "", " 1 "], (0, 1), [1, 0, -1, 1]),
        (["1", "NA", "0", "?"], (0, 1), [1, -1, 0, -1]),
        (["1", "na", "0", "Null", "\u2014"], (0, 1), [1, -1, 0, -1, -1]),
        (["none", "a"], ("a", "none"), [1, 0]),
        (["True", "true", "FALSE", "N/A"], (False, True), [1, 1, 0, -1]),
        (["01", "02", "10", "a"], ("01", "02", "10", "a"), [0, 1, 2, 3]),
        (["01", "02", "10"], ("01", "02", "10"), [0, 1, 2]),
        (["+", "-", "+"], ("+", "-"), [0, 1, 0]),
        (["1", "2", "a"], ("1", "2", "a"), [0, 1, 2]),
    ],
)
def test_cells_of_classes_are_read_by_their_meaning(
    tmp_path: Path, cells: list[str], classes: tuple[Any, ...], numbers: list[int]
) -> None:
    lines = "".join(f"(f x{place}),{cell}\n" for place, cell in enumerate(cells))
    task = read_table(tmp_path, "a.csv", f"tree,label\n{lines}", kind="classes")
    assert task.classes == classes
    assert [type(name) for name in task.classes] == [type(name) for name in classes]
    assert task.read_examples(tmp_path / "a.csv").tree_data["label"].tolist() == numbers


def test_a_mark_of_a_missing_value_may_be_named_as_a_class_and_is_unknown_if_others_are(tmp_path: Path) -> None:
    text = "tree,label\n(f x),NA\n(g x),EU\n"
    assert read_table(tmp_path, "a.csv", text, classes=["EU", "NA"]).classes == ("EU", "NA")
    task = read_table(tmp_path, "a.csv", text, classes=["EU"])
    assert task.read_examples(tmp_path / "a.csv").tree_data["label"].tolist() == [-1, 0]
    task = read_table(tmp_path, "b.csv", "tree,label\n(f x),0.5\n(g x),NA\n(h x), 1.5\n")
    assert (task.name, task.table.targets) == ("table_regression", [["0.5", None, "1.5"]])


def test_rows_and_columns_of_equal_names_are_refused_where_answers_are_joined_to_them() -> None:
    pandas = pytest.importorskip("pandas")
    task = task_from_table(ROWS[:20], tree="expr", target="root")
    model = Model(task, task.networks["Tree-RNN"])
    frame = pandas.DataFrame({"expr": [row["expr"] for row in ROWS[:3]]}, index=[5, 5, 9])
    for predict in (model.predict, TreePredictor(model).predict):
        with pytest.raises(RecipeError, match=r"index of the DataFrame has 5 twice.*reset_index\(drop=True\)"):
            predict(frame)
        assert len(frame.reset_index(drop=True).join(predict(frame.reset_index(drop=True)))) == 3
    twice = pandas.DataFrame([["x", "y", "a"]], columns=["expr", "expr", "root"])
    for use in (
        model.predict,
        TreePredictor(model).predict,
        lambda data: task_from_table(data, tree="expr", target="root"),
    ):
        with pytest.raises(RecipeError, match="the DataFrame has two columns 'expr'"):
            use(twice)


def test_a_threshold_decides_between_two_classes_and_is_refused_where_it_has_no_effect() -> None:
    two = task_from_table(ROWS, tree="expr", target="has x", kind="classes")
    model = Model(two, two.networks["Tree-RNN"])
    texts = [row["expr"] for row in ROWS[:30]]
    chance = model.predict(texts)[:, 1]
    for threshold in (0.0, float(np.median(chance)), 0.5, 1.0):
        answers = list(TreePredictor(model, threshold=threshold).predict(texts))
        said = [answer["prediction"] for answer in answers]
        assert said == (chance > threshold).astype(int).tolist()
        np.testing.assert_allclose([answer["probability"] for answer in answers], np.where(said, chance, 1 - chance))
    for target in ("root", "size", "classes"):
        rows = with_nodes(20) if target == "classes" else [*ROWS, {**ROWS[0], "root": "third"}]
        task = task_from_table(rows, tree="expr", target=target)
        predictor = TreePredictor(Model(task, task.networks["Tree-RNN"]))
        with pytest.raises(RecipeError, match=f"a threshold has no effect on {task.name}"):
            predictor.with_threshold(0.9)


def rare_rows(count: int = 1000) -> list[dict[str, Any]]:
    """Trees of which one in fifty has the rare class: those with a ``z`` below a ``g``."""
    draw = np.random.default_rng(1)
    found = []
    for number in range(count):
        is_rare = number % 50 == 0
        trees = ["(g z)" if is_rare else "(f z)", *("(g " + "xy"[draw.integers(2)] + ")" for _ in range(3))]
        draw.shuffle(trees)
        found.append({"tree": f"(s {' '.join(trees)})", "rare": int(is_rare)})
    return found


def test_the_best_epoch_of_a_table_with_a_rare_class_has_learned_it(tmp_path: Path) -> None:
    task = task_from_table(rare_rows(), tree="tree", target="rare")
    data = task.make_data(TableDataOptions(validation=0.3, test=0.3, duplicates_together=False))
    options = TrainingOptions(epochs=4, batch_size=32, learning_rate=0.005, threads=1)
    network = task.networks["Tree-LSTM"].replace(hidden_size=8)
    result = fit(task, network, data, options, output=tmp_path / "run")
    assert {record["validation_accuracy"] for record in result.records} == {59 / 60}, "that of an untrained network"
    losses = [record["validation_loss"] for record in result.records]
    assert result.best_epoch == 1 + int(np.argmin(losses)) > 1
    evaluation = evaluate(result.model, data, split="test")
    label = task.examples(data.forest).targets["label"][evaluation.chosen]
    chance = evaluation.predicted[:, 1]
    assert (chance[label == 1][:, None] > chance[label == 0]).mean() > 0.9  # the area under the ROC curve
    by_accuracy = dataclasses.replace(options, epochs=2, monitor="accuracy")
    assert fit(task, network, data, by_accuracy, output=tmp_path / "accuracy").best_epoch == 2, "ties go by the loss"
    fit(task, network, data, dataclasses.replace(options, epochs=2), output=tmp_path / "resumed")
    resumed = fit(task, network, data, options, output=tmp_path / "resumed", resume=True)
    assert [resumed.best_epoch, resumed.records[-1]["validation_loss"]] == [result.best_epoch, losses[-1]]


@pytest.mark.parametrize(
    ("target", "metric", "mode"),
    [("root", "loss", "min"), (["has x", "has f"], "f1 has f", "max")],
)
def test_a_metric_that_validation_reports_may_choose_the_best_epoch(
    tmp_path: Path, target: Any, metric: str, mode: str
) -> None:
    task = task_from_table(ROWS[:100], tree="expr", target=target)
    data = task.make_data(TableDataOptions())
    network = task.networks["Tree-RNN"].replace(hidden_size=4)
    options = TrainingOptions(epochs=3, batch_size=32, learning_rate=0.05, threads=1, monitor=metric)
    result = fit(task, network, data, options, output=tmp_path / "run")
    values = [record[f"validation_{metric}"] for record in result.records]
    assert values[result.best_epoch - 1] == (min(values) if mode == "min" else max(values))
    assert all(f"validation_{task.monitor.metric}" in record for record in result.records)
    wrong = dataclasses.replace(options, monitor="recall")
    with pytest.raises(RecipeError, match=rf"validation reports no 'recall'.*training\.monitor may be .*{metric}"):
        fit(task, network, data, wrong, output=tmp_path / "wrong")
    with pytest.raises(RecipeError, match=r"training\.monitor needs validation examples"):
        fit(task, network, task.make_data(TableDataOptions(validation=0)), options, output=tmp_path / "none")


def test_numbers_in_brackets_are_values_and_brackets_have_no_labels_if_asked() -> None:
    rows = [{"tree": f"(f {number} x)", "y": 2.0 * number + 0.5} for number in range(8)]
    task = task_from_table(rows, tree="tree", target="y", number="Number")
    assert task.vocabulary == Vocabulary(["x"], [("f", 2)], number="Number")
    assert task.table.forest.value[::3].tolist() == list(range(8))
    rows = [{"tree": "( - ( -4 6 ) )", "y": "a"}, {"tree": "( + ( -10 9 ) )", "y": "b"}]
    task = task_from_table(rows, tree="tree", target="y", text="unlabelled")
    assert [str(tree) for tree in task.table.forest] == ["(X - (X -4 6))", "(X + (X -10 9))"]
    assert str(task.parse("( - ( 1 2 ) )")) == "(X - (X 1 2))"


def test_many_different_whole_numbers_are_classes_or_numbers_only_if_the_user_says_so() -> None:
    def of(distinct: int, count: int) -> list[dict[str, Any]]:
        return [{"tree": f"(f x{row})", "y": row % distinct} for row in range(count)]

    assert task_from_table(of(20, 40), tree="tree", target="y").name == "table_classes"
    assert task_from_table(of(30, 300), tree="tree", target="y").name == "table_classes"
    with pytest.raises(RecipeError, match=r'21 whole numbers in 40 rows, .* kind="regression" .* or kind="classes"'):
        task_from_table(of(21, 40), tree="tree", target="y")
    for kind, name in (("regression", "table_regression"), ("classes", "table_classes")):
        assert task_from_table(of(21, 40), tree="tree", target="y", kind=kind).name == name
