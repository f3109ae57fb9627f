"""What only the levels in C++ have: tiles, loops over children, masks, threads, and what happens without a compiler."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_parity import assert_same, results
from torch.nn import functional
from tree_networks import make
from tree_strategies import VOCABULARY, random_forest

from treemem import RecipeError, native
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks.gated_cell.layer import GatedCell
from treemem.networks.gated_cell.levels import gated_levels, growing_states
from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, TreeCell, TreeLayer
from treemem.ops import compile_steps
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled yet; afterwards neither."""
    monkeypatch.setattr(compile_mode, "_broken", False)
    monkeypatch.delenv("TREEMEM_COMPILE", raising=False)
    native._library.cache_clear()
    yield
    native._library.cache_clear()


def batch(num_trees: int = 20) -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=7, num_trees=num_trees, size=20, widest=3), VOCABULARY)


def assert_as_in_torch(layer: TreeLayer, trees: TreeBatch) -> None:
    assert_same(results(layer, trees, "native"), results(layer, trees, "autograd"), "")


@needs_compiler
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_levels_of_more_rows_than_a_tile_are_exact() -> None:
    vocabulary = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("h", 2)])
    trees = [Tree("g", [Tree("f", ["x"]), Tree("h", ["y", Tree("g", ["x", "x"])])])] * 700
    torch.manual_seed(0)
    layer = StackTreeLSTM(3, vocabulary, stack_size=2, no_op=True).double()
    assert_as_in_torch(layer, TreeBatch.from_trees(trees, vocabulary, share_subtrees=False))


@needs_compiler
@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("layer_class", [ChildSumTreeLSTM, StackTreeLSTM, TreeCell])
def test_loops_over_children_are_as_in_torch(layer_class: type[TreeLayer]) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {} if layer_class is ChildSumTreeLSTM else {"max_arity": 50}
    layer = layer_class(3, Vocabulary(["x", "y"], [("f", 50)]), **options).double()
    inner = Tree("f", ["x", "y"] * 25)
    trees = [Tree("f", [inner, *["x"] * 48, inner]), inner]
    assert_as_in_torch(layer, TreeBatch.from_trees(trees, layer.vocabulary, share_subtrees=False))


@needs_compiler
def test_nodes_of_more_children_than_are_printed_run_in_torch() -> None:
    vocabulary = Vocabulary(["x"], [("f", 129)])
    layer = TreeCell(3, vocabulary, max_arity=129).double()
    wide = TreeBatch.from_trees([Tree("f", ["x"] * 129)], vocabulary)
    assert_same(results(layer, wide, "auto"), results(layer, wide, "autograd"), "")
    layer.engine = "native"  # type: ignore[assignment]
    with pytest.raises(RecipeError, match="129 children"):
        layer(wide)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("tree lstm", {"dropout": 0.4}),
        ("stack lstm normalize", {"dropout": 0.4}),
        ("tree cell", {"dropout": 0.4, "leaf_dropout": 0.2}),
    ],
)
def test_gradients_with_dropout_are_those_of_the_same_masks(name: str, rates: dict[str, float]) -> None:
    layer = make(name, **rates, engine="native")
    small = TreeBatch.from_forest(random_forest(seed=3, num_trees=2, size=9, widest=3), VOCABULARY)
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(*values: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (small,)).root

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


@needs_compiler
def test_masks_are_gone_after_the_backward_pass_though_a_state_stays() -> None:
    states = make("tree cell", dropout=0.5, engine="native")(batch())
    root = states.root
    function: Any = states.rows["h"].grad_fn
    masks = [weakref.ref(mask) for mask in function.run.masks.values()]
    root.sum().backward()
    gc.collect()
    assert masks
    assert all(mask() is None for mask in masks)


@needs_compiler
def test_a_frozen_layer_norm_is_printed() -> None:
    layer = make("tree cell")
    layer.cell.norm.requires_grad_(False)
    assert_as_in_torch(layer, batch())


def test_without_a_working_compiler_torch_runs_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_library: None
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    layer = make("stack lstm")
    with pytest.warns(RuntimeWarning, match="steps run uncompiled"):
        found = results(layer, batch(), "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = results(layer, batch(), "auto")
    expected = results(layer, batch(), "autograd")
    assert_same(found, expected, "first")
    assert_same(again, expected, "again")


@needs_compiler
@pytest.mark.parametrize("drops", [False, True])
def test_rows_that_come_step_by_step_are_those_of_levels(drops: bool) -> None:
    """Their number is enough for several threads."""
    torch.manual_seed(0)
    leaves, weights = torch.randn(6, 3, dtype=torch.float64), GatedCell(3).double().weights()
    children = torch.cat([torch.randint(below, (count, 2)) for below, count in ((6, 200), (206, 3), (209, 1))])
    parents = torch.arange(6, 210).repeat_interleave(2)
    schedule = Schedule.from_edges(210, children.flatten(), parents, allow_several_parents=True)
    keep = functional.dropout(torch.ones(204, 12, dtype=torch.float64), 0.4) if drops else None
    expected = gated_levels(leaves, schedule, weights, keep).detach()
    states = torch.cat([leaves, torch.full((204, 3), torch.nan, dtype=torch.float64)])
    known = torch.zeros(204, 2, dtype=torch.int64)
    with torch_threads(3), torch.no_grad():
        growing = growing_states(states, known, weights, keep)
        assert growing is not None
        for begin, end, _ in schedule.levels[1:]:
            known[begin - 6 : end - 6] = schedule.child.view(-1, 2)[begin - 6 : end - 6]
            growing.compute(begin, end)
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)
    with compile_steps(False):
        assert growing_states(states, known, weights, keep) is None
