"""Derivatives of gradients: right, or refused by an error whose remedy gives the right ones."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from device_cases import CASES, Case, Named, placed, set_engine
from device_cases import VOCABULARY as LABELS
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from tree_networks import NETWORKS, make
from tree_strategies import VOCABULARY, random_forest

from treemem import Forest, TreeBatch
from treemem.native import compile_mode
from treemem.native.second_derivative import once_differentiable, save_for_backward
from treemem.nn import TreeLSTM
from treemem.ops import compile_steps

_ALL_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
# Choices that have other gradients than the outputs would have, so differences of gradients say nothing.
STRAIGHT_THROUGH = ("Gumbel Tree-LSTM", "Recursion in Recursion", "memory cell, registers, straight-through")


def made(name: str) -> Case:
    """A case in double precision whose inputs require gradients; where plain engines are quick, long enough for C++."""
    torch.manual_seed(0)
    slow = any(each in name for each in ("DIORA", "GRC", "SPINN", "CRvNN", "Tree", "RRNet", "Ordered", "own cell"))
    case = placed(CASES[name](3 if slow else 17), "cpu", torch.float64)
    if name == "RIR-GRC":  # as its authors train it, what is read backwards has no gradients
        case.module.state_space.trained_backwards = True
    if "DIORA" in name:  # whose plain engine takes seconds for more
        case = case._replace(run=one_tree)
    return case._replace(inputs={name: value.clone().requires_grad_() for name, value in case.inputs.items()})


def one_tree(network: Any, _: Named, plain: bool) -> Named:
    set_engine(network, plain)
    output = network(TreeBatch.from_forest(Forest.from_trees(["(g (f x y))", "x"]), LABELS))
    return {"root": output.root, "outputs": output.outputs}


def leaves(case: Case) -> Named:
    every = {**dict(case.module.named_parameters()), **case.inputs}
    return {name: value for name, value in every.items() if value.requires_grad}


def weights(value: Tensor, salt: float = 0.0) -> Tensor:
    return torch.cos(0.7 * torch.arange(value.numel(), dtype=torch.float64) + salt).view(value.shape)


def gradients(case: Case, plain: bool = False, *, create_graph: bool = False) -> Named:
    """Those of a weighted sum of the outputs, so that what comes into the backward pass requires no gradients."""
    outputs = case.run(case.module, case.inputs, plain).values()
    loss = torch.stack([(each * weights(each)).sum() for each in outputs if each.requires_grad]).sum()
    named = leaves(case)
    found = torch.autograd.grad(loss, [*named.values()], create_graph=create_graph, allow_unused=True)
    pairs = zip(named.items(), found, strict=True)
    return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in pairs}


def along_a_direction(of_leaves: Named) -> Tensor:
    return torch.stack([(each * weights(each, 3.0)).sum() for each in of_leaves.values()]).sum()


def derivatives(value: Tensor, named: Named) -> dict[str, Tensor | str]:
    """The derivatives, or errors.

    If there are errors, each leaf is asked for alone: then autograd runs only what leads to it.
    """
    if not value.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in named.items()}
    try:
        found = torch.autograd.grad(value, [*named.values()], retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if len(named) == 1:
            return dict.fromkeys(named, str(error))
        alone = [derivatives(value, {name: leaf}) for name, leaf in named.items()]
        return {name: each for one in alone for name, each in one.items()}
    pairs = zip(named.items(), found, strict=True)
    return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in pairs}


def by_differences(case: Case) -> Named:
    """The change of the gradients along the direction, in a step so small that it hardly meets a rectifier's corner."""
    step, found = 1e-7, []
    before = {name: value.detach().clone() for name, value in leaves(case).items()}
    for side in (step, -step, 0.0):
        with torch.no_grad():
            for name, value in leaves(case).items():
                value.copy_(before[name] + side * weights(value, 3.0))
        found.append(gradients(case))
    return {name: (above - found[1][name]) / (2 * step) for name, above in found[0].items()}


@pytest.mark.parametrize("name", [name for name in CASES if "decoding" not in name])
def test_a_second_derivative_is_right_or_refused(name: str) -> None:
    case = made(name)
    first = gradients(case)
    if name in STRAIGHT_THROUGH:
        with compile_steps(False):
            found = along_a_direction(gradients(case, plain=True, create_graph=True))
        expected = derivatives(found, leaves(case))
    else:
        expected = by_differences(case)
    plain, compiled, kernels, refused = False, True, _ALL_KERNELS, {""}
    for _ in range(3):
        with compile_steps(compiled), sdpa_kernel(kernels):
            found = gradients(case, plain, create_graph=True)
        torch.testing.assert_close({key: each.detach() for key, each in found.items()}, first, rtol=0, atol=1e-9)
        second = derivatives(along_a_direction(found), leaves(case))
        for key, value in second.items():
            if isinstance(value, Tensor):
                largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
                assert (value - expected[key]).abs().le(1e-5 * largest).all(), key
        refused = {each for each in second.values() if isinstance(each, str)}
        if not refused:
            return
        if any("scaled_dot_product" in each for each in refused):  # torch's own error
            kernels = [SDPBackend.MATH]
            continue
        plain = plain or not all("compile_steps(False)" in each for each in refused)
        compiled = compiled and not any("compile_steps(False)" in each for each in refused)
    pytest.fail(f"no remedy worked: {refused}")


@pytest.mark.parametrize("name", NETWORKS)
def test_those_of_tree_layers_under_autograd_are_those_of_differences(name: str) -> None:
    layer = make(name, hidden_size=2, input_size=2, engine="autograd")
    forest = random_forest(seed=2, num_trees=2, size=6, widest=3)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False)
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(feat: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (batch, feat)).root

    assert torch.autograd.gradgradcheck(run, (feat, *parameters), fast_mode=True)


@needs_compiler
def test_the_weights_of_a_loss_depend_on_a_gradient_too() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY, engine="native").double()
    batch = TreeBatch.from_forest(random_forest(seed=0, num_trees=2, size=9, widest=3), VOCABULARY)
    head = torch.randn(3, dtype=torch.float64, requires_grad=True)
    embedding = layer.leaves.embedding.weight  # type: ignore[union-attr]
    (gradient,) = torch.autograd.grad((layer(batch).root @ head).sum(), embedding, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative; .* 'autograd'"):
        torch.autograd.grad(gradient.square().sum(), head)


def test_a_gradient_of_something_else_is_not_refused() -> None:
    layer, other = TreeLSTM(3, VOCABULARY), torch.ones((), requires_grad=True)
    batch = TreeBatch.from_forest(random_forest(seed=0, num_trees=2, size=9, widest=3), VOCABULARY)
    (gradient,) = torch.autograd.grad(layer(batch).root.sum(), layer.leaves.embedding.weight, create_graph=True)  # type: ignore[union-attr]
    (found,) = torch.autograd.grad(gradient.sum() + 2 * other, other)
    assert found == 2


@pytest.mark.parametrize("name", ["own cell", "EBT-GRC", "BT-GRC", "Tree-LSTM", "CRvNN"])
def test_forward_mode_is_right_or_refused(name: str) -> None:
    case = made(name)
    embedding = next(each for key, each in case.module.named_parameters() if "embedding" in key)
    (gradient,) = torch.autograd.grad(case.run(case.module, case.inputs, False)["root"].sum(), embedding)
    tangent = weights(embedding)
    with torch.no_grad(), forward_ad.dual_level():
        owner = next(each for each in case.module.modules() if any(p is embedding for p in each._parameters.values()))
        owner._parameters["weight"] = forward_ad.make_dual(embedding, tangent)  # type: ignore[assignment]
        try:
            root = case.run(case.module, case.inputs, False)["root"]
        except (RuntimeError, NotImplementedError) as error:
            assert "forward" in str(error)  # noqa: PT017
        else:
            found = forward_ad.unpack_dual(root.sum()).tangent
            torch.testing.assert_close(found, (gradient * tangent).sum())


class Square(torch.autograd.Function):
    """Fails on its first backward pass if ``fails`` is not empty."""

    fails: ClassVar[list[Exception]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        save_for_backward(ctx, x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[torch.Tensor, ...], gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if Square.fails:
            raise Square.fails.pop()
        return (2 * saved[0] * gradient,)


def test_after_a_failed_backward_pass_run_forward_again() -> None:
    loss = Square.apply(torch.ones(3, requires_grad=True)).sum()
    Square.fails.append(MemoryError())
    with pytest.raises(MemoryError):
        loss.backward()
    with pytest.raises(RuntimeError, match="run the forward pass again"):
        loss.backward()


def test_hooks_must_keep_the_shape() -> None:
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each[:1]):
        loss = Square.apply(x).sum()
    with pytest.raises(RuntimeError, match="keep the shape"):
        loss.backward()
