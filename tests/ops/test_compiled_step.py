"""Compiled steps against those they take the place of, and what happens where nothing can be compiled."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from engine_parity import assert_same, results

from treemem import RecipeError
from treemem.nn import StackTreeLSTM, TreeLayer, TreeLSTM
from treemem.ops import announced_run, compile_mode, compile_steps, compiled_step
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

CPU = torch.device("cpu")
SMALL = Vocabulary(["x", "y"], [("f", 1), ("g", 2), ("h", 2)])
needs_compiler = pytest.mark.skipif(not compile_mode._has_compiler(), reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def untouched_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_mode, "_broken", False)
    monkeypatch.delenv("TREEMEM_COMPILE", raising=False)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has compiled nothing yet."""
    monkeypatch.setattr(compiled_step, "_steps", {})


def small_batch(share_subtrees: bool = True) -> TreeBatch:
    x, y = Tree("x"), Tree("y")
    wide = Tree("g", [Tree("h", [x, Tree("f", [y])]), Tree("g", [x, Tree("h", [y, y])])])
    trees = [Tree("f", [wide]), Tree("h", [Tree("f", [x]), Tree("g", [x, y])]), Tree("f", [Tree("f", [y])]), x]
    return TreeBatch.from_trees(trees, SMALL, share_subtrees=share_subtrees)


def random_tree(generator: random.Random, height: int) -> Tree:
    if not height or generator.random() < 0.2:
        return Tree(generator.choice("xy"))
    name = generator.choice("fgh")
    return Tree(name, [random_tree(generator, height - 1) for _ in range(1 if name == "f" else 2)])


@needs_compiler
@pytest.mark.parametrize(
    "make",
    [
        # Of two children, the gates and the stacks have 24 entries each: the compiler takes the two sizes for one.
        lambda: StackTreeLSTM(4, SMALL, stack_size=3),
        lambda: StackTreeLSTM(5, SMALL, stack_size=2, no_op=True, normalize=True, activation="relu"),
        lambda: TreeLSTM(4, SMALL),
    ],
    ids=["stack", "stack of relu", "plain"],
)
def test_compiled_steps_are_exact(make: type[TreeLayer], no_kernels: None) -> None:
    torch.manual_seed(0)
    layer = make().double()
    batches = {
        "a few trees": small_batch(),
        "unshared": small_batch(share_subtrees=False),
        "more rows": TreeBatch.from_trees([random_tree(random.Random(seed), 9) for seed in range(9)], SMALL),
    }
    for name, batch in batches.items():
        with compile_steps(True):
            found = results(layer, batch, "fused")
        with compile_steps(False):
            eager = results(layer, batch, "fused")
        assert_same(found, eager, name)
        assert_same(found, results(layer, batch, "recursive"), name)
    layer.engine = "fused"
    with torch.no_grad():
        with compile_steps(True):
            scored = layer(small_batch()).h
        with compile_steps(False):
            torch.testing.assert_close(scored, layer(small_batch()).h, rtol=0, atol=1e-12)
    assert len(compiled_step._steps) == 2, "one for each arity, whatever the number of rows"
    for step in compiled_step._steps.values():
        assert set(step._kernels) == {"train", "backward", "score"}


@needs_compiler
@pytest.mark.parametrize(("arity", "compiled"), [(6, True), (9, False)])
def test_steps_of_many_children_are_exact_and_those_of_very_many_uncompiled(
    arity: int, compiled: bool, no_kernels: None
) -> None:
    torch.manual_seed(0)
    layer = StackTreeLSTM(3, Vocabulary(["x"], [("f", arity)]), stack_size=4, no_op=True).double()
    x, inner = Tree("x"), Tree("f", [Tree("x")] * arity)
    trees = [Tree("f", [inner] + [x] * (arity - 2) + [inner]), inner]
    batch = TreeBatch.from_trees(trees, layer.vocabulary, share_subtrees=False)
    with compile_steps(True):
        found = results(layer, batch, "fused")
    assert_same(found, results(layer, batch, "recursive"), f"{arity} children")
    assert bool(compiled_step._steps) == compiled


@needs_compiler
def test_leaves_with_features_are_compiled_too(no_kernels: None) -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(3, SMALL, input_size=2).double()
    batch = TreeBatch.from_trees(
        [Tree("g", [Tree("x"), Tree("g", [Tree("x"), Tree("y")])])], SMALL, share_subtrees=False
    )
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64)
    with compile_steps(True):
        found = results(layer, batch, "fused", feat)
    assert_same(found, results(layer, batch, "recursive", feat), "")
    assert {step._step.arity for step in compiled_step._steps.values()} == {0, 2}


@needs_compiler
def test_scoring_compiles_no_backward_pass(no_kernels: None) -> None:
    layer = TreeLSTM(3, SMALL)
    with compile_steps(True), torch.no_grad():
        layer(small_batch())
    assert compiled_step._steps
    assert all(step._kernels.keys() == {"score"} for step in compiled_step._steps.values())


@needs_compiler
def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch, no_kernels: None) -> None:
    compile_rightly = compiled_step._compiled

    def compile_wrongly(function: compiled_step.Kernel, examples: list[torch.Tensor]) -> compiled_step.Kernel:
        kernel = compile_rightly(function, examples)

        def run(inputs: list[torch.Tensor]) -> None:
            last = inputs[-1]
            kernel(inputs)
            last += 1

        return run

    monkeypatch.setattr(compiled_step, "_compiled", compile_wrongly)
    layer, batch = TreeLSTM(3, SMALL).double(), small_batch()
    with compile_steps(True), pytest.warns(RuntimeWarning, match="compute other numbers"):
        found = results(layer, batch, "fused")
    assert_same(found, results(layer, batch, "recursive"), "")
    with compile_steps(True):
        assert compile_mode.compiling(CPU), "other steps are still compiled"


def test_without_a_compiler_steps_run_uncompiled_after_one_warning(
    monkeypatch: pytest.MonkeyPatch, no_kernels: None
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    layer, batch = StackTreeLSTM(3, SMALL).double(), small_batch()
    expected = results(layer, batch, "fused")
    with compile_steps(True):
        with pytest.warns(RuntimeWarning, match="CXX names, 'no-such-compiler', is not there"):
            found = results(layer, batch, "fused")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = results(layer, batch, "fused")
    assert_same(found, expected, "first")
    assert_same(again, expected, "again")
    assert not compiled_step._steps


def test_where_compiling_fails_steps_run_uncompiled(monkeypatch: pytest.MonkeyPatch, no_kernels: None) -> None:
    def fail(*_: object) -> None:
        raise OSError("Python.h is missing")

    monkeypatch.setattr(compile_mode, "_has_compiler", lambda: True)
    monkeypatch.setattr(compiled_step, "_compiled", fail)
    layer, batch = TreeLSTM(3, SMALL).double(), small_batch()
    with compile_steps(True), pytest.warns(RuntimeWarning, match=r"Python\.h is missing"):
        found = results(layer, batch, "fused")
    assert_same(found, results(layer, batch, "recursive"), "")


@pytest.mark.parametrize(
    ("variable", "forced", "nodes", "expected"),
    [
        (None, None, 0, False),
        ("auto", None, 0, False),
        ("auto", None, compile_mode.WORTH_NODES, True),
        ("1", None, 0, True),
        ("0", None, compile_mode.WORTH_NODES, False),
        ("0", True, 0, True),
        ("1", False, compile_mode.WORTH_NODES, False),
    ],
)
def test_an_argument_goes_before_the_environment_and_both_before_the_length_of_the_run(
    variable: str | None, forced: bool | None, nodes: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_mode, "_has_compiler", lambda: True)
    if variable is not None:
        monkeypatch.setenv("TREEMEM_COMPILE", variable)
    with announced_run(nodes):
        if forced is None:
            assert compile_mode.compiling(CPU) == expected
        else:
            with compile_steps(forced):
                assert compile_mode.compiling(CPU) == expected


def test_a_short_run_within_a_long_one_is_compiled_as_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_mode, "_has_compiler", lambda: True)
    with announced_run(compile_mode.WORTH_NODES), announced_run(1):
        assert compile_mode.compiling(CPU)
    with announced_run(compile_mode.WORTH_NODES - 1):
        assert not compile_mode.compiling(CPU)


def test_an_unknown_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEMEM_COMPILE", "yes")
    with pytest.raises(RecipeError, match="TREEMEM_COMPILE='yes'"):
        compile_mode.compiling(CPU)


def test_steps_with_dropout_are_not_compiled() -> None:
    layer = StackTreeLSTM(3, SMALL, dropout=0.5)
    assert layer.cell.step_pair(2).unrolled is None
    assert layer.eval().cell.step_pair(2).unrolled is not None
