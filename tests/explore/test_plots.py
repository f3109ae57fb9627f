from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treemem.errors import GraphError, ParseError
from treemem.explore.plots import plot_heat_maps, plot_training, plot_tree
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree

RECORDS = [
    {"epoch": 1, "loss": 0.7, "validation_loss": 0.6, "validation_accuracy": 0.5},
    {"epoch": 2, "loss": 0.5},
    {"epoch": 3, "loss": 0.4, "validation_loss": 0.5, "validation_accuracy": 0.9},
    {"epoch": 4, "loss": 0.3, "validation_loss": 0.7, "validation_accuracy": 0.8},
]
TREE = parse_brackets("(f (g x) (f y x))")


def test_curves_have_a_point_for_each_epoch_that_tells_and_a_dot_at_the_best(tmp_path: Path) -> None:
    losses, accuracies = plot_training({"mine": RECORDS}, tmp_path / "curves.png", title="A run").axes
    training, validation = losses.lines
    assert training.get_xydata().tolist() == [[1, 0.7], [2, 0.5], [3, 0.4], [4, 0.3]]
    assert validation.get_xydata().tolist() == [[1, 0.6], [3, 0.5], [4, 0.7]]
    accuracy, best = accuracies.lines
    assert accuracy.get_xydata().tolist() == [[1, 0.5], [3, 0.9], [4, 0.8]]
    assert best.get_xydata().tolist() == [[3, 0.9]]


def test_curves_are_read_from_the_file_of_a_run(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": 0.25}\n')
    (line, *_) = plot_training({"mine": metrics}, tmp_path / "curves.svg").axes[0].lines
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")
    assert line.get_xydata().tolist() == [[1, 0.5], [2, 0.25]]


def test_what_is_no_record_of_an_epoch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("none\n")
    with pytest.raises(ParseError, match="line 1"):
        plot_training({"mine": tmp_path / "metrics.jsonl"}, tmp_path / "curves.svg")


def test_an_accuracy_of_zero_is_drawn_without_room_for_negative_ones(tmp_path: Path) -> None:
    records = [{**RECORDS[0], "validation_accuracy": 0.0}, {**RECORDS[2], "validation_accuracy": 0.0}]
    low, high = plot_training({"mine": records}, tmp_path / "curves.svg").axes[1].get_ylim()
    assert -0.05 < low < 0
    assert high > 1


def test_no_runs_make_an_empty_plot(tmp_path: Path) -> None:
    plot_training({}, tmp_path / "nothing.png")
    assert (tmp_path / "nothing.png").read_bytes().startswith(b"\x89PNG")


def test_a_tree_is_drawn_with_the_stack_of_each_node_and_one_scale_for_all(tmp_path: Path) -> None:
    stacks = np.random.default_rng(0).normal(size=(TREE.size, 3, 4))
    stacks[0] = 0
    axes, _ = plot_tree(TREE, stacks, tmp_path / "tree.png").axes
    drawn = [image.get_array() for image in axes.images]
    np.testing.assert_array_equal(drawn, stacks)
    assert {image.get_clim() for image in axes.images} == {(-np.abs(stacks).max(), np.abs(stacks).max())}
    assert [text.get_text() for text in axes.texts] == ["x", "g", "y", "x", "f", "f"]
    assert len(axes.lines) == TREE.size - 1


def test_children_stand_below_their_parent_and_leaves_side_by_side(tmp_path: Path) -> None:
    axes, _ = plot_tree(TREE, np.zeros((TREE.size, 2)), tmp_path / "tree.png").axes
    middles = [(sum(image.get_extent()[:2]) / 2, round(image.get_extent()[2] + 0.3)) for image in axes.images]
    np.testing.assert_allclose(middles, [(0, 0), (0, 1), (1, 0), (2, 0), (1.5, 1), (0.75, 2)])


def test_labels_that_look_like_formulas_and_states_that_are_no_numbers_are_drawn(tmp_path: Path) -> None:
    plot_tree(Tree("$x_{", [Tree("a")]), np.array([[np.nan, 1], [np.inf, 0]]), tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_heat_maps_have_one_scale_and_leave_what_is_not_known_empty(tmp_path: Path) -> None:
    maps = {"push": [[0.0, 1.0], [np.nan, 0.5]], "pop": [[0.25, 0.5], [0.75, 2.0]]}
    options = {"rows": ["Add", "sin"], "columns": ["1", "2"], "axes_names": ("height", "function")}
    push, pop, _ = plot_heat_maps(maps, tmp_path / "maps.svg", **options).axes
    drawn = [axes.images[0] for axes in (push, pop)]
    assert {image.get_clim() for image in drawn} == {(0.0, 2.0)}
    assert drawn[0].get_array().mask.tolist() == [[False, False], [True, False]]
    assert [text.get_text() for text in push.get_yticklabels()] == ["Add", "sin"]


def test_states_of_another_number_of_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"states are \[2, 3\]; a tree of 6 nodes needs \[6, rows, width\]"):
        plot_tree(TREE, np.zeros((2, 3)), tmp_path / "tree.png")
    with pytest.raises(GraphError, match="plot_tree draws a Tree, not None"):
        plot_tree(None, np.zeros((2, 3)), tmp_path / "tree.png")  # type: ignore[arg-type]
