"""Products of float32 matrices of which torch says how exact they are."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.native import compile_mode, native_library
from treemem.native.matmul_precision import matmul_precision
from treemem.networks import NetworkConfig
from treemem.schedule.tree_batch import TreeBatch

pytestmark = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
ERRORS = {"highest": 1e-5, "high": 2e-4, "medium": 0.06}
"""Of a sum of k products of standard normal numbers, over the root of k."""


def products(precision: str) -> ctypes.CDLL:
    with matmul_precision(precision):
        library = native_library(Path(__file__).with_name("packed_products.cpp"), [torch.zeros(1)])
    assert library is not None
    return library


def parts(precision: str) -> int:
    """As how many bfloat16 numbers it multiplies: 0 without the processor or a compiler that knows it."""
    found = ctypes.c_int()
    products(precision).in_bfloat16(ctypes.byref(found))
    return found.value


def test_numbers_have_the_parts_of_the_precision_or_are_whole() -> None:
    assert [parts(precision) for precision in ERRORS] in ([0, 2, 1], [0, 0, 0])


@pytest.mark.parametrize("precision", ERRORS)
def test_a_product_of_any_shape_is_as_exact_as_asked(precision: str) -> None:
    library, draw, worst = products(precision), torch.Generator().manual_seed(0), 0.0
    for rows, columns, depth in [
        (1, 1, 1),
        (16, 16, 32),
        (17, 5, 31),
        (33, 40, 2),
        (300, 100, 65),
        (300, 40, 600),
        (32, 31, 600),
        (3, 2, 0),
    ]:
        for choice in range(16):
            transposed, plain, add, spare = (choice >> bit & 1 for bit in range(4))
            left, right, out = (
                torch.randn(*shape, generator=draw)
                for shape in ((rows, depth), (depth, columns), (rows, columns + spare))
            )
            x = torch.cat(
                [left.T if transposed else left, torch.full(((depth, rows)[1 - transposed], spare), torch.nan)], 1
            )
            weight = torch.cat(
                [right if plain else right.T, torch.full(((columns, depth)[plain], spare), torch.nan)], 1
            )
            found = out.clone()
            strides = [ctypes.c_int64(each.stride(0)) for each in (x, weight, found)]
            pointers = [ctypes.c_void_p(each.data_ptr()) for each in (x, weight, found)]
            numbers = [ctypes.c_int64(each) for each in (rows, columns, depth, transposed, plain, add)]
            library.multiply_float(
                *numbers[:3], pointers[0], strides[0], numbers[3], pointers[1], strides[1], numbers[4], pointers[2],
                strides[2], numbers[5],
            )  # fmt: skip
            expected = out.double()
            expected[:, :columns] = left.double() @ right.double() + add * expected[:, :columns]
            assert torch.equal(found[:, columns:], out[:, columns:]), "what lies beside the product"
            worst = max(worst, float((found - expected).abs().max()) / max(depth, 1) ** 0.5)
    assert worst < ERRORS[precision]
    if parts(precision):
        assert worst > ERRORS["highest"], "or it is not used"


@pytest.mark.parametrize("network", ["OrderedMemory", "ONLSTM", "MemoryRNN", "TreeLSTM"])
def test_networks_and_their_gradients_are_as_exact_as_asked(network: str) -> None:
    torch.manual_seed(0)
    encoder = NetworkConfig(network, {"hidden_size": 20}).build(VOCABULARY)
    batch = TreeBatch.from_forest(random_forest(seed=7, num_trees=150, size=20), VOCABULARY)

    def results(name: str) -> list[torch.Tensor]:
        encoder.zero_grad()
        with matmul_precision(name):
            encoding = encoder(batch).root
            torch.cos(3 * encoding).sum().backward()
        gradients = [each.grad.clone() for each in encoder.parameters() if each.grad is not None]
        return [encoding.detach(), *gradients]

    exact, found = results("highest"), results("medium")
    least = 0.01 * max(float(each.norm()) for each in exact)  # some gradients are 0 but for rounding
    errors = [
        float((one - other).norm()) / (float(other.norm()) + least) for one, other in zip(found, exact, strict=True)
    ]
    assert max(errors) <= 0.05
    if parts("medium"):
        assert max(errors) > 0, "or it is not used"


def test_a_block_has_its_precision_and_leaves_the_one_before() -> None:
    with matmul_precision("medium"), matmul_precision("high"), matmul_precision(None):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_torch_is_told_for_gpus_alone_changes_nothing_on_the_cpu() -> None:
    code = """
import torch
from treemem.native.matmul_precision import bfloat16_parts, matmul_precision
torch.backends.cuda.matmul.fp32_precision = "tf32"
with matmul_precision(None):
    assert bfloat16_parts() == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
