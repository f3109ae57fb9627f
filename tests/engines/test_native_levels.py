"""What only the levels in C++ have: threads, spilled gradients, and when they are used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

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
from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, StackTreeRNN, TreeCell, TreeLayer, TreeLSTM
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


def batch(share_subtrees: bool = True) -> TreeBatch:
    return TreeBatch.from_forest(
        random_forest(seed=7, num_trees=20, size=20, widest=3), VOCABULARY, share_subtrees=share_subtrees
    )


def is_native(layer: TreeLayer) -> bool:
    """Whether the layer runs in C++."""
    layer.engine = "native"
    try:
        layer(batch())
    except RecipeError:
        return False
    finally:
        layer.engine = "auto"
    return True


@needs_compiler
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_levels_of_more_rows_than_a_tile_are_exact() -> None:
    x, y = Tree("x"), Tree("y")
    vocabulary = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("h", 2)])
    trees = [Tree("g", [Tree("f", [x]), Tree("h", [y, Tree("g", [x, x])])])] * 700
    wide = TreeBatch.from_trees(trees, vocabulary, share_subtrees=False)
    torch.manual_seed(0)
    layer = StackTreeLSTM(3, vocabulary, stack_size=2, no_op=True).double()
    expected = results(layer, wide, "autograd")
    assert_same(results(layer, wide, "auto"), expected, "")


@needs_compiler
@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("layer_class", [ChildSumTreeLSTM, StackTreeLSTM, TreeCell])
def test_loops_over_children_are_as_in_torch(layer_class: type[TreeLayer]) -> None:
    torch.manual_seed(0)
    options = {} if layer_class is ChildSumTreeLSTM else {"max_arity": 50}
    layer = layer_class(3, Vocabulary(["x", "y"], [("f", 50)]), **options).double()
    x, inner = Tree("x"), Tree("f", [Tree("x"), Tree("y")] * 25)
    trees = TreeBatch.from_trees([Tree("f", [inner, *[x] * 48, inner]), inner], layer.vocabulary, share_subtrees=False)
    assert_same(results(layer, trees, "native"), results(layer, trees, "autograd"), "")


@needs_compiler
@pytest.mark.parametrize("name", ["tree lstm", "stack lstm normalize", "tree cell"])
def test_gradients_with_dropout_are_those_of_the_same_masks(name: str) -> None:
    layer = make(name, dropout=0.4)
    assert is_native(layer)
    small = TreeBatch.from_forest(random_forest(seed=3, num_trees=2, size=9, widest=3), VOCABULARY)
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(*values: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (small,)).root

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


@needs_compiler
def test_a_frozen_layer_norm_is_printed() -> None:
    layer = make("tree cell", hidden_size=3)
    layer.cell.norm.requires_grad_(False)
    assert_same(results(layer, batch(), "native"), results(layer, batch(), "autograd"), "")


@needs_compiler
def test_dropout_draws_what_torch_draws() -> None:
    layer = make("tree cell", hidden_size=3, dropout=0.4)
    one = TreeBatch.from_trees([Tree("f", [Tree("x"), Tree("y")])], layer.vocabulary)
    found = []
    for engine in ("native", "autograd"):
        layer.engine = engine
        torch.manual_seed(5)
        found.append(layer(one).root)
    torch.testing.assert_close(*found)


@needs_compiler
def test_dropout_has_its_rate_and_its_mean() -> None:
    x = Tree("x")
    vocabulary = Vocabulary(["x"], [("f", 2)])
    many = TreeBatch.from_trees([Tree("f", [x, x])] * 4000, vocabulary, share_subtrees=False)
    layer = TreeLSTM(3, vocabulary, dropout=0.5)
    with torch.no_grad():
        found = layer(many).root
        with compile_steps(False):
            expected = layer(many).root
    for moment in (1, 2):
        torch.testing.assert_close(found.pow(moment).mean(0), expected.pow(moment).mean(0), rtol=0.1, atol=0.01)


@needs_compiler
def test_it_is_used_where_it_can_be() -> None:
    layer = make("tree lstm")
    assert is_native(layer)
    assert is_native(make("stack lstm no-pop normalize").float())
    assert is_native(make("stack lstm queue"))
    assert not is_native(make("stack rnn own")), "it has a product after its step"
    assert not is_native(make("tree lstm").bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_native(layer.float())
    with compile_steps(False):
        assert not is_native(layer)


@pytest.mark.parametrize("compiler", ["no-such-compiler"])
def test_without_a_working_compiler_torch_runs_after_one_warning(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_library: None
) -> None:
    monkeypatch.setenv("CXX", compiler)
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


@pytest.mark.parametrize(
    ("variable", "forced", "expected"),
    [(None, None, True), ("1", None, True), ("0", None, False), ("0", True, True), ("1", False, False)],
)
def test_an_argument_goes_before_the_environment(
    variable: str | None, forced: bool | None, expected: bool, monkeypatch: pytest.MonkeyPatch, no_library: None
) -> None:
    monkeypatch.setattr(compile_mode, "_has_compiler", lambda: True)
    if variable is not None:
        monkeypatch.setenv("TREEMEM_COMPILE", variable)
    if forced is None:
        assert compile_mode.native_wanted() == expected
    else:
        with compile_steps(forced):
            assert compile_mode.native_wanted() == expected


def test_an_unknown_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEMEM_COMPILE", "yes")
    with pytest.raises(RecipeError, match="TREEMEM_COMPILE='yes'"):
        compile_mode.native_wanted()


@needs_compiler
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_nodes_of_very_many_children_are_as_in_torch() -> None:
    arity = 12_000
    vocabulary = Vocabulary(["x", "y"], [("s", arity), ("s", 2)])
    pair = Tree("s", [Tree("x"), Tree("y")])
    wide = Tree("s", [pair, *[Tree("x"), Tree("y")] * (arity // 2 - 1), pair])
    trees = TreeBatch.from_trees([wide] * 3, vocabulary, share_subtrees=False)
    torch.manual_seed(0)
    layer = StackTreeRNN(8, vocabulary, stack_size=3, max_arity=arity).double()
    with torch_threads(2):
        found = results(layer, trees, "auto")
    assert_same(found, results(layer, trees, "autograd"), "")


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
