"""What only the fused Ordered Memory has: threads, its own dropout, skipped slots, and when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_parity import assert_same
from ordered_memory_runs import SIZE, new_inputs, new_maps, results

from treemem import native
from treemem.native import compile_mode
from treemem.networks.parsers.ordered_memory.equations import Dropouts, Problem
from treemem.networks.parsers.ordered_memory.layer import OrderedMemoryCell, OrderedMemoryScore
from treemem.networks.parsers.ordered_memory.native import fused
from treemem.networks.parsers.ordered_memory.run import ordered_memory
from treemem.ops import compile_steps

pytestmark = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


@pytest.fixture
def no_library() -> Iterator[None]:
    """Compile anew; afterwards too."""
    native._library.cache_clear()
    yield
    native._library.cache_clear()
    compile_mode._broken = False


def is_fused(inputs: torch.Tensor, cell: OrderedMemoryCell = "gated") -> bool:
    weights = new_maps(cell).to(inputs.dtype).weights()
    return fused(Problem(inputs, [2, 1], torch.zeros(2, dtype=torch.bool), weights, 3), False) is not None


def test_it_is_used_where_it_can_be() -> None:
    inputs = new_inputs([3])[0]
    assert is_fused(inputs)
    assert is_fused(inputs.float())
    assert is_fused(inputs, "rnn")
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_fused(inputs)
    with compile_steps(False):
        assert not is_fused(inputs)


@pytest.mark.parametrize(("cell", "score"), [("gated", "layer_norm"), ("rnn", "tanh")])
def test_gradients_with_dropout_are_those_of_the_same_masks(cell: OrderedMemoryCell, score: OrderedMemoryScore) -> None:
    maps, lengths = new_maps(cell, score=score), torch.tensor([4, 2])
    inputs = new_inputs([4, 2]).requires_grad_()

    def run(values: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return ordered_memory(values, lengths, maps.weights(), 3, dropouts=Dropouts(0.4, 0.3)).outputs

    assert torch.autograd.gradcheck(run, (inputs, *maps.parameters()), fast_mode=True)


def test_dropout_has_its_rate_and_its_mean() -> None:
    maps, size = new_maps(), 4000
    inputs = new_inputs([2])[:, :2].expand(size, 2, -1)
    lengths = torch.full((size,), 2)
    with torch.no_grad():
        found = {
            engine: ordered_memory(
                inputs, lengths, maps.weights(), 2, dropouts=Dropouts(0.5, 0.0), engine=engine
            ).outputs
            for engine in ("fused", "naive")
        }
    assert len(found["fused"][:, 1].unique(dim=0)) > size / 2, "sequences have masks of their own"
    for moment in (1, 2):
        means = [found[engine][:, 1].pow(moment).mean(0) for engine in ("fused", "naive")]
        torch.testing.assert_close(*means, rtol=0, atol=0.08)


@pytest.mark.parametrize("engine", ["fused", "naive"])
def test_skipping_slots_hardly_changes_anything(engine: str) -> None:
    lengths = [30] * 8
    for sharpness in (1.0, 10.0, 60.0):
        maps, inputs = new_maps(sharpness=sharpness), new_inputs(lengths)
        given = (inputs, torch.tensor(lengths), maps.weights(), 9)
        found, expected = (ordered_memory(*given, engine=engine, skip=skip) for skip in (1e-5, 0.0))  # type: ignore[arg-type]
        torch.testing.assert_close(found.outputs, expected.outputs, rtol=0, atol=1e-6 * SIZE)
        names, parameters = zip(*maps.named_parameters(), strict=True)
        gradients = [torch.autograd.grad(each.outputs.mean(), parameters) for each in (found, expected)]
        for name, *pair in zip(names, *gradients, strict=True):
            torch.testing.assert_close(*pair, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_where_compiling_fails_it_is_naive_after_one_warning_with_the_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_library: None
) -> None:
    compiler, error = tmp_path / "compiler", "In file included from a\nb: error: no header"
    failing = f"echo $* > {tmp_path}/flags; echo '{error}' >&2; exit 1"
    macros = f"echo '#define __{name}__ 1'"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) {macros};; *) {failing};; esac\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    maps, inputs = new_maps(), new_inputs([4, 2])
    with pytest.warns(RuntimeWarning, match="more slowly: b: error: no header"):
        found = results(maps, inputs, [4, 2], 3, "fused")
    assert_same(found, results(maps, inputs, [4, 2], 3, "fused"), "without another warning")
    only_gcc_knows = "-fvect-cost-model" in (tmp_path / "flags").read_text()
    assert only_gcc_knows == (name == "gcc")
