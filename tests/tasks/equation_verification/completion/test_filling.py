from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_parity import needs_dgl
from numpy.typing import NDArray
from toy_task import MoreX

from treemem.errors import CellError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.completion import (
    Blanks,
    Candidates,
    blank_out,
    complete,
    draw_blanks,
    filling_scores,
    make_candidates,
    place_blanks,
)
from treemem.tasks.equation_verification.completion.filling import filled_forest
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


def assert_engines_agree(model: Model, equations: Forest, blanks: Blanks, *rest: Candidates) -> NDArray[np.floating]:
    """Check that both engines give the same scores, in batches of other sizes, and return them."""
    whole, paths = (
        np.concatenate(list(filling_scores(model, equations, blanks, *rest, engine=engine, rows_at_once=rows)))
        for engine, rows in (("whole", 40_000), ("paths", 20_000))
    )
    np.testing.assert_allclose(paths, whole, rtol=0, atol=1e-10)
    return paths


TREE_NETWORKS = [name for name in EquationVerification.networks if name.startswith("Tree")]


def replaced(tree: Tree, place: int, filling: Tree) -> Tree:
    """``tree`` with ``filling`` at a place of its post-order, one node after the other."""
    done: list[Tree] = []
    for number, node in enumerate(tree.postorder()):
        first = len(done) - node.arity
        done[first:] = [filling if number == place else Tree(node.label, done[first:])]
    return done.pop()


def test_filled_trees_differ_from_the_equation_in_the_blank_alone() -> None:
    forest, candidates = generate_equations(60, seed=1)[::7], make_candidates()
    blanks = draw_blanks(forest, candidates, seed=1)
    some = candidates.unified[::97]
    filled = filled_forest(forest, blanks, some)
    expected = [
        replaced(forest[int(tree)], int(node - forest.begin[tree]), filling)
        for tree, node in zip(blanks.tree, blanks.node, strict=True)
        for filling in some
    ]
    assert list(filled) == expected


@pytest.mark.parametrize("name", TREE_NETWORKS)
def test_running_paths_alone_gives_the_scores_of_whole_equations(name: str, untrained) -> None:
    test = generate_equations(300, seed=4)
    equations = blank_out(test[test.tree_data["depth"] > 6], make_candidates(), seed=4).spread(6)
    model = untrained(name)
    assert assert_engines_agree(model, equations.forest, equations.blanks).shape == (6, 1470)
    found = [complete(model, equations.forest, equations.blanks, engine=engine).ranks for engine in ("whole", "paths")]
    for rank in found[0]:
        np.testing.assert_array_equal(found[0][rank], found[1][rank])


def test_blanks_at_all_places_of_an_equation_are_filled_alike_by_both_engines(untrained) -> None:
    tree = parse_equation("sin(x + y)*2^x = x", variables="indexed")
    places = [place for place, node in enumerate(tree.preorder()) if place and node.height <= 1]
    forest = Forest.from_trees([tree] * len(places))
    blanks = place_blanks(forest, make_candidates(), places)
    assert tree.size - 1 in places, "a whole side is blank too"
    model = untrained()
    for row, original in zip(assert_engines_agree(model, forest, blanks), blanks.original, strict=True):
        (score,) = model.outputs(model.task.examples(forest[:1])).tolist()
        assert row[original] == pytest.approx(score, abs=1e-10)


def test_sequence_networks_are_completed_whole(untrained) -> None:
    equations = blank_out(Forest.from_trees([parse_equation("x = x")]), make_candidates())
    model = untrained("LSTM", hidden_size=3)
    (scores,) = filling_scores(model, equations.forest, equations.blanks)
    assert scores.shape == (1, 1470)
    with pytest.raises(RecipeError, match="'paths' does not take this LSTM"):
        list(filling_scores(model, equations.forest, equations.blanks, engine="paths"))


@needs_dgl
def test_on_the_naive_engine_equations_are_completed_whole(untrained) -> None:
    few = Candidates(make_candidates().forest[:30], np.arange(30))
    equations = blank_out(Forest.from_trees([parse_equation("x = x")]), few)
    forest, blanks, model = equations.forest, equations.blanks, untrained()
    (by_paths,) = filling_scores(model, forest, blanks, few, engine="paths")
    model.encoder.engine = "naive"
    (whole,) = filling_scores(model, forest, blanks, few)
    np.testing.assert_allclose(whole, by_paths, rtol=0, atol=1e-10)
    with pytest.raises(RecipeError, match="its engine is 'naive'; set it to 'auto'"):
        list(filling_scores(model, forest, blanks, few, engine="paths"))


def test_a_numeric_model_is_read_by_its_score_of_equality() -> None:
    torch.manual_seed(0)
    task = EquationVerification(numeric=True)
    model = Model(task, NetworkConfig("TreeRNN", {"hidden_size": 3})).double().eval()
    equations = blank_out(Forest.from_trees([parse_equation("x + 2 = 2 + x")]), make_candidates())
    scores = assert_engines_agree(model, equations.forest, equations.blanks)
    first = filled_forest(equations.forest, equations.blanks, make_candidates().unified[:1])
    assert scores[0, 0] == pytest.approx(float(model.outputs(task.examples(first))[0, 0]))


def test_any_node_may_be_blank_whatever_stands_there(untrained) -> None:
    forest = Forest.from_trees([parse_equation("sin(x*y + cos(x)^2)*(x + 2) = x")])
    nodes = np.arange(forest.num_nodes - 1)
    blanks = Blanks(np.zeros_like(nodes), nodes, np.full_like(nodes, -1))
    model, few = untrained(), Candidates(make_candidates().forest[::40], np.arange(37))
    whole, paths = (
        np.concatenate(list(filling_scores(model, forest, blanks, few, engine=engine, rows_at_once=rows)))
        for engine, rows in (("whole", 10_000), ("paths", 300))
    )
    np.testing.assert_allclose(paths, whole, rtol=0, atol=1e-10)


def test_wrong_use_is_refused(untrained) -> None:
    equations = blank_out(Forest.from_trees([parse_equation("x = x")]), make_candidates())
    forest, blanks, model = equations.forest, equations.blanks, untrained()
    with pytest.raises(RecipeError, match="models of equation_verification, not of"):
        list(filling_scores(Model(MoreX(), NetworkConfig("TreeRNN", {"hidden_size": 3})), forest, blanks))
    with pytest.raises(RecipeError, match="engine='path' is none of auto, paths, whole; did you mean paths"):
        list(filling_scores(model, forest, blanks, engine="path"))
    with pytest.raises(RecipeError, match="the original of blank 0 is not a candidate"):
        complete(model, forest, Blanks(blanks.tree, blanks.node, np.array([-1])))
    with pytest.raises(RecipeError, match="seed must be at least 0, not -1"):
        complete(model, forest, blanks, seed=-1)
    broken = untrained(seed=1)
    with torch.no_grad():
        broken.head.bias.fill_(float("nan"))
    for engine in ("paths", "whole"):
        with pytest.raises(CellError, match="not a number"):
            list(filling_scores(broken, forest, blanks, engine=engine))
