"""Where Triton kernels run, and how they are made and launched."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from treemem.native import TYPE_NAMES
from treemem.native.second_derivative import active_transforms

COMPILER_OPTIONS = {"num_warps": 8, "enable_fp_fusion": True}
"""With fewer warps, kernels of trees spill registers to memory."""


class Launcher:
    """Launches kernels on CUDA. Tests have one that launches them in Triton's interpreter and counts.

    Attributes:
        device_type: the type of the devices whose tensors kernels take.
    """

    device_type = "cuda"

    def why_not(self, tensors: Sequence[torch.Tensor]) -> str | None:
        """Return why no kernel may run on some tensors, at least one; None if it may."""
        first = tensors[0]
        if first.device.type != self.device_type:
            return f"its kernels run on CUDA, and the layer is on {first.device}"
        if not has_triton():
            return "Triton is not installed"
        if torch.is_autocast_enabled(self.device_type):
            return "its kernels do not run under autocast"
        if active_transforms():
            return "its kernels do not run within transforms of torch.func and forward-mode AD"
        if self.is_watched():
            return "its kernels do not run in a mode of torch that must see each operation, such as torch.export"
        for tensor in tensors:
            if tensor.dtype not in TYPE_NAMES or tensor.dtype != first.dtype:
                names = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors})
                return f"its kernels run in float32 or in float64, not in {' and '.join(names)}"
            if tensor.device != first.device:
                return f"the layer is on {first.device} and on {tensor.device}"
        return None

    def is_watched(self) -> bool:
        """Return whether a mode of torch must see each operation."""
        return bool(torch._C._len_torch_dispatch_stack())

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Run a kernel of Triton.

        Args:
            kernel: a function that ``triton.jit`` decorates.
            grid: number of programs along up to three axes.
            arguments: of the function; None for memory that is not there.
            options: values that are known when it is compiled, and those of the compiler.
        """
        if min(grid):
            with torch.cuda.device_of(next(x for x in arguments if isinstance(x, torch.Tensor))):
                kernel[grid](*arguments, **COMPILER_OPTIONS, **options)


_launcher = Launcher()


def launcher() -> Launcher:
    """Return what launches kernels."""
    return _launcher


@cache
def has_triton() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@cache
def printed_kernels(text: str) -> dict[str, Any]:
    """Return what the text of a module defines. Triton reads the text again, from the cache of lines."""
    file = f"<treemem kernels {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    kernels: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, file, "exec"), kernels)
    return kernels


def product_precision(dtype: torch.dtype) -> str:
    """Return how kernels multiply matrices, as :func:`torch.set_float32_matmul_precision` says.

    In float32 it is by default a sum of three products of TF32 numbers, whose error is about that of float32. Plain
    products of float32 do not use tensor cores, and their operands do not fit into registers.
    """
    if dtype == torch.float64:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"
