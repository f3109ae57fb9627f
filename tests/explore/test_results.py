from __future__ import annotations

from pathlib import Path

import pytest

from treemem.errors import RecipeError
from treemem.explore.plots import plot_accuracy
from treemem.explore.tables import accuracy_table, formatted_table, latex_table, overall_table
from treemem.metrics.score import Monitor, PublishedFigure, Score, mean_scores


def score(
    group: int | str, count: int, accuracy: float, majority: float, deviation: float | None = None, **metrics: float
) -> Score:
    runs = 1 if deviation is None else 3
    return Score(group, count, {"accuracy": accuracy, "majority": majority, **metrics}, deviation, runs)


def cells_of(table: str) -> list[list[str]]:
    """Return the cells of a Markdown table, without the rule below its head."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [rows[0], *rows[2:]]


SCORES = {
    "Tree-LSTM": [
        score(8, 20, 0.9, 0.5),
        score(10, 10, 0.8, 0.6),
        score("all", 30, 0.8667, 0.53),
    ],
    "Mine": [
        score(8, 20, 0.95, 0.5, deviation=0.01),
        score("all", 30, 0.9, 0.53, deviation=0.02),
    ],
}
PUBLISHED = (
    PublishedFigure("Tree-LSTM", "test", "accuracy", 0.8364, 0.0123, "a table"),
    PublishedFigure("Tree-LSTM", "train", "accuracy", 0.99, None, "a table"),
    PublishedFigure("majority class", "test", "accuracy", 0.5171, None, "a table"),
)


INTERVAL = "all: 95 % interval (Student's t over seeds)"


def test_the_table_has_a_row_a_network_and_a_column_a_group() -> None:
    table = accuracy_table(SCORES, PUBLISHED)
    assert cells_of(table) == [
        ["network", "seeds (n)", "depth 8", "depth 10", "all", INTERVAL, "published, all"],
        ["majority class", "", "50.00", "60.00", "53.00", "", "51.71"],
        ["Tree-LSTM", "1", "90.00", "80.00", "86.67", "", "83.64 ± 1.23"],
        ["Mine", "3", "95.00 ± 1.00", "", "90.00 ± 2.00", "85.03 to 94.97", ""],
        ["examples", "", "20", "10", "30", "", ""],
    ]
    assert len({len(line) for line in table.splitlines()}) == 1


def test_a_table_of_single_seeds_has_no_column_for_an_interval() -> None:
    assert cells_of(accuracy_table({"Tree-LSTM": SCORES["Tree-LSTM"]}))[0] == [
        *("network", "seeds (n)", "depth 8", "depth 10", "all"),
    ]


def test_a_metric_other_than_the_first_has_neither_deviation_nor_interval() -> None:
    rows = mean_scores([[Score("all", 4, {"perplexity": value, "accuracy": 0.5})] for value in (3.0, 4.0)])
    assert cells_of(accuracy_table({"A": rows}))[1] == ["A", "2", "50.00"]
    perplexity = Monitor("perplexity", "min", percent=False)
    assert cells_of(accuracy_table({"A": rows}, monitor=perplexity))[1] == ["A", "2", "3.50 ± 0.71", "-2.85 to 9.85"]


def test_a_latex_table_has_the_rules_of_booktabs_and_escapes_what_latex_reads() -> None:
    head = ["network", r"a_b & 50 % #1 $x$ {y} ~ ^ \z", "<|>"]
    lines = latex_table([head, ["[MAX", "-2.01 to 7.62", "*"], ["Tree-LSTM", "91.20 ± 0.31", "1e-3"]]).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[1] == r"\toprule"
    assert lines[2] == (
        r"network & a\_b \& 50 \% \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z & "
        r"\textless{}\textbar{}\textgreater{} \\"
    )
    assert lines[3:] == [
        r"\midrule",
        r"{[}MAX & $-$2.01 to 7.62 & {*} \\",
        r"Tree-LSTM & 91.20 $\pm$ 0.31 & 1e-3 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_tables_of_scores_can_be_latex() -> None:
    for table in (accuracy_table(SCORES, PUBLISHED, format="latex"), overall_table(SCORES, PUBLISHED, format="latex")):
        lines = table.splitlines()
        assert lines[1::2][0] == r"\toprule"
        assert len({line.count(" & ") for line in lines if line.endswith(r"\\")}) == 1
        assert r"Mine & 3 & " in table
    with pytest.raises(RecipeError, match="a table has the format markdown or latex, not 'html'"):
        formatted_table([["network"]], "html")  # type: ignore[arg-type]


OTHERS = {
    **SCORES,
    "Elsewhere": [
        score(9, 4, 0.5, 0.75),
        score("all", 4, 0.5, 0.75),
    ],
}


def test_networks_that_were_scored_on_other_examples_have_rows_of_their_own() -> None:
    assert cells_of(accuracy_table({"Elsewhere": OTHERS["Elsewhere"], **SCORES}, PUBLISHED)) == [
        ["network", "seeds (n)", "depth 8", "depth 9", "depth 10", "all", INTERVAL, "published, all"],
        ["majority class", "", "", "75.00", "", "75.00", "", "51.71"],
        ["Elsewhere", "1", "", "50.00", "", "50.00", "", ""],
        ["examples", "", "", "4", "", "4", "", ""],
        ["majority class", "", "50.00", "", "60.00", "53.00", "", "51.71"],
        ["Tree-LSTM", "1", "90.00", "", "80.00", "86.67", "", "83.64 ± 1.23"],
        ["Mine", "3", "95.00 ± 1.00", "", "", "90.00 ± 2.00", "85.03 to 94.97", ""],
        ["examples", "", "20", "", "10", "30", "", ""],
    ]


def test_the_figure_has_a_majority_for_each_set_of_examples(tmp_path: Path) -> None:
    (axes,) = plot_accuracy(OTHERS, tmp_path / "accuracy.png").axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["majority class, Tree-LSTM, Mine"].get_xydata().tolist() == [[8, 0.5], [10, 0.6]]
    assert lines["majority class, Elsewhere"].get_xydata().tolist() == [[9, 0.75]]


def test_the_overall_table_has_published_figures_beside_our_own() -> None:
    scores = {
        "Tree-LSTM": [
            Score(
                "all",
                30,
                {"accuracy": 0.8667, "majority": 0.53, "precision": 0.5, "recall": 0.25, "f1": 1 / 3},
                deviation=0.01,
                runs=5,
            )
        ]
    }
    cells = cells_of(overall_table(scores, PUBLISHED))
    assert cells[0] == ["network", "seeds (n)", "accuracy", "precision", "recall", "f1"]
    assert cells[-1] == ["Tree-LSTM", "5", "86.67 ± 1.00 (83.64 ± 1.23)", "50.00", "25.00", "33.33"]


def test_the_overall_table_of_numbers_has_their_units_and_each_target() -> None:
    metrics = {"rmse": 1.23456, "mae": 0.5, "r2": None, "rmse size": 2.0, "rmse depth": 0.469}
    cells = cells_of(overall_table({"Tree-LSTM": [Score("all", 30, {**metrics, "r2": 0.75}, runs=2)]}))
    assert cells[0] == ["network", "seeds (n)", "rmse", "mae", "r2", "rmse size", "rmse depth"]
    assert cells[-1] == ["Tree-LSTM", "2", "1.235", "0.5", "0.75", "2", "0.469"]
    assert "r2" not in cells_of(overall_table({"Tree-LSTM": [Score("all", 30, metrics)]}))[0]


def test_the_figure_has_a_line_a_network_the_majority_class_and_the_published_figure(tmp_path: Path) -> None:
    figure = plot_accuracy(SCORES, tmp_path / "accuracy.png", PUBLISHED, title="Equation verification")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["majority class"].get_xydata().tolist() == [[8, 0.5], [10, 0.6]]
    drawn = {bars.get_label(): bars.lines[0] for bars in axes.containers}
    assert drawn["Tree-LSTM, one seed"].get_xydata().tolist() == [[8, 0.9], [10, 0.8]]
    assert drawn["Mine, mean of seeds"].get_xydata().tolist() == [[8, 0.95]]
    published = [found.get_segments()[0].tolist() for found in axes.collections]
    assert [[8, 0.8364], [10, 0.8364]] in published
    assert {text.get_text() for text in figure.legends[0].texts} == {
        "majority class",
        "Mine, mean of seeds",
        "Tree-LSTM, one seed",
        "published (on the published data set, depth 8-10)",
    }
    assert axes.get_title() == "Equation verification"
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["accuracy.png"]
