"""A device that computes on the CPU and behaves like CUDA, for tests on machines without a GPU.

Its tensors say that they are on the device (called ``meta``, the name that torch's autograd serves without hardware),
so the code takes the path that it takes on a GPU. Each holds a tensor of the CPU, with which torch computes; kernels of
Triton run in its interpreter. The fake counts launches, and what makes the host wait for the device. It fails where
CUDA would: if an operation mixes devices, or if native code of the CPU asks for a pointer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from treemem.engines.cuda.graphs import Capturer
from treemem.engines.cuda.launcher import Launcher, has_triton

DEVICE = torch.device("meta")
_aten = torch.ops.aten
_READ_BY_HOST = {
    _aten._local_scalar_dense, _aten.equal, _aten.nonzero, _aten.masked_select, _aten._unique2,
    _aten.unique_consecutive, _aten.repeat_interleave,
}  # fmt: skip
"""Operations that return a number to the host, or whose result has a shape that depends on values."""
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
_COPIES = {_aten.copy_, _aten._to_copy}
_PACKING = {_aten._pack_padded_sequence, _aten._pad_packed_sequence, _aten._pack_padded_sequence_backward}
"""Operations that take or return counts on the CPU beside tensors of the device."""

_NEW = {_aten.empty, _aten.empty_like, _aten.new_empty, _aten.empty_strided, _aten.new_empty_strided}

_LAUNCHES = {
    **dict.fromkeys(
        (
            *_NEW, _aten.lift_fresh, _aten._unsafe_view, _aten._reshape_alias, _aten.detach, _aten.alias, _aten.set_,
            _aten._local_scalar_dense, _aten.is_same_size, _aten._fused_sdp_choice, *_PACKING,
        ),
        0,
    ),
    **dict.fromkeys((_aten.native_layer_norm_backward, _aten.topk), 2),
    **dict.fromkeys(
        (_aten.sort, _aten.argsort, _aten.index_put_, _aten._index_put_impl_, _aten.nonzero, _aten.repeat_interleave), 3
    ),
    _aten.embedding_dense_backward: 4,
    _aten.unique_consecutive: 5,
}  # fmt: skip
"""How many kernels of CUDA an operation is, if not one."""


class DeviceTensor(torch.Tensor):
    """A tensor that says that it is on the device and holds its numbers on the CPU."""

    numbers: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> DeviceTensor:
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset()}
        made = cls._make_wrapper_subclass(cls, numbers.shape, **layout, dtype=numbers.dtype, device=DEVICE)  # type: ignore[attr-defined]
        made.numbers = numbers
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside fake_device()")

    def tolist(self) -> Any:
        """Wait for the numbers."""
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        """Fail."""
        raise AssertionError("native code of the CPU asks for a pointer of the device")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Save the numbers, which are loaded to the CPU."""
        return self.numbers.__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.numbers})"


class FakeDevice(TorchDispatchMode):
    """Runs operations on tensors of the device.

    Attributes:
        waits: how often the host waited for the device, by the name of the operation.
        copies: number of copies to the device.
        launches: number of kernels that CUDA would launch; within a tenth of what a GPU counts.
    """

    def __init__(self, runs_kernels: bool = True) -> None:
        super().__init__()
        self._clears = not runs_kernels  # new memory, in which a kernel that does not run leaves no numbers of rows
        self.waits: Counter[str] = Counter()
        self.copies = self.launches = 0
        self.recording: Recording | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        there = [each for each in _tensors([*args, *kwargs.values()]) if isinstance(each, DeviceTensor)]
        device = kwargs.get("device")
        goes_there = bool(there) if device is None else torch.device(device).type == DEVICE.type
        if there and packet not in _COPIES | _PACKING:
            _refuse_mixture(func, args, kwargs)
        self._count(func, args, kwargs, bool(there), goes_there)
        if packet is _aten._fused_sdp_choice:
            return 0  # plain products
        own = {**kwargs, "device": "cpu"} if device is not None else kwargs
        own = {name: value for name, value in own.items() if name not in ("pin_memory", "non_blocking")}
        if packet is _aten._conj:
            func = _aten.conj_physical.default  # torch's lazy conjugation does not reach operations called from here
        args, own = _numbers(args), _numbers(own)
        if self.recording is not None:
            self.recording.before(func, args)
        found = func(*args, **own)
        if self.recording is not None:
            self.recording.after(lambda: func(*args, **own), [*args, *own.values()], found)
        if self._clears and packet in _NEW:
            found.zero_()
        if packet in _PACKING and isinstance(found, tuple):
            return DeviceTensor(found[0]), found[1]
        if not goes_there:
            return found
        given = {id(each.numbers): each for each in there}  # what was written in place stays the same tensor

        return _mapped(lambda each: given[id(each)] if id(each) in given else DeviceTensor(each), found)

    def _count(self, func: Any, args: Any, kwargs: Any, comes_from_there: bool, goes_there: bool) -> None:
        packet = func.overloadpacket
        if packet is _aten._to_copy:
            crosses, asynchronous = comes_from_there != goes_there, kwargs.get("non_blocking")
        elif packet is _aten.copy_:
            into, source = (isinstance(each, DeviceTensor) for each in args[:2])
            crosses, goes_there, asynchronous = into != source, into, args[2:] and args[2]
        else:
            crosses = asynchronous = False
        waits = False
        if crosses:
            self.copies += goes_there
            waits = not asynchronous
            assert self.recording is None, "a CUDA graph would repeat a copy of the host's numbers"
        elif packet in _INDEXING:
            waits = any(
                each.dtype in (torch.bool, torch.uint8) or not isinstance(each, DeviceTensor)
                for each in _tensors(args[1])
            )
        else:
            waits = packet in _READ_BY_HOST and "output_size" not in kwargs
        if comes_from_there or goes_there:
            if waits:
                assert self.recording is None, f"{packet} waits for the device within a CUDA graph"
                self.waits[str(packet)] += 1
            if not (func.is_view or crosses):
                self.launches += _LAUNCHES.get(packet, 1)


def _refuse_mixture(func: Any, args: Any, kwargs: Any) -> None:
    """Fail if a tensor is on the CPU that is neither a single number nor an index."""
    indices = {id(each) for each in _tensors(args[1])} if func.overloadpacket in _INDEXING else ()
    for each in _tensors([*args, *kwargs.values()]):
        if not isinstance(each, DeviceTensor) and each.dim() and id(each) not in indices:
            raise AssertionError(f"{func} mixes tensors of the device and of the CPU, {[*each.shape]}")


def _mapped(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return function(tree)
    return type(tree)(_mapped(function, each) for each in tree) if type(tree) in (tuple, list) else tree


def _tensors(tree: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _mapped(found.append, tree)
    return found


def _numbers(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _numbers(value) for name, value in tree.items()}
    return _mapped(lambda each: each.numbers if isinstance(each, DeviceTensor) else each, tree)


HAS_INTERPRETER = has_triton() and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels of Triton run on the fake device; ``conftest.py`` asks for the interpreter where there is no GPU."""


class FakeLauncher(Launcher):
    """Launches kernels in Triton's interpreter.

    Args:
        device: counts the launches.
        runs: whether kernels run; if not, what they write stays 0.
    """

    device_type = DEVICE.type

    def __init__(self, device: FakeDevice, runs: bool) -> None:
        self._device, self._runs = device, runs

    def is_watched(self) -> bool:
        """Whether a mode beside the fake device must see each operation."""
        return torch._C._len_torch_dispatch_stack() > 1

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Run a kernel on the numbers of its arguments."""
        self._device.launches += min(grid) > 0
        if not self._runs:
            return
        numbers = [_numbers(argument) for argument in arguments]

        def run() -> None:
            with _disable_current_modes(), np.errstate(all="ignore"):  # rows that are not there may divide by 0
                super(FakeLauncher, self).launch(kernel, grid, *numbers, **options)

        run()
        if self._device.recording is not None:
            self._device.recording.after(run, [], None)


class Recording:
    """What runs on the device while a CUDA graph is captured."""

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._known: set[int] = set()  # memory that was made since, or is in _before

    def before(self, func: Any, args: Any) -> None:
        """Keep what an operation overwrites that was there before."""
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors([value]):
                    memory = tensor.untyped_storage()
                    if memory.data_ptr() not in self._known:
                        self._known.add(memory.data_ptr())
                        whole = torch.empty(0, dtype=torch.uint8).set_(memory)
                        self._before.append((whole, whole.clone()))

    def after(self, run: Callable[[], Any], read: Any, found: Any) -> None:
        """Keep an operation with its results, which stay where they are."""
        results = _tensors([found])
        self._steps.append((run, results))
        memory = {tensor.untyped_storage().data_ptr() for tensor in results}
        self._known |= memory - {tensor.untyped_storage().data_ptr() for tensor in _tensors(read)}

    def undo(self) -> None:
        """Restore what was overwritten: a capture runs nothing."""
        for tensor, numbers in self._before:
            tensor.copy_(numbers)

    def replay(self) -> None:
        """Run the same operations on the same memory."""
        with _disable_current_modes():
            for run, results in self._steps:
                for result, value in zip(results, _tensors([run()]), strict=True):
                    if result.data_ptr() != value.data_ptr():
                        result.copy_(value)


class FakeCapturer(Capturer):
    """Captures what runs on the fake device. A graph counts as one launch."""

    device_type = DEVICE.type

    def __init__(self, device: FakeDevice) -> None:
        self._device = device

    def aside(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return a block without effect."""
        return nullcontext()

    def capture(self, work: Callable[[], None]) -> tuple[Callable[[], None], int]:
        """Return what repeats the operations of ``work``, and 1 as the number of bytes."""
        recording, launches = Recording(), self._device.launches
        random = torch.get_rng_state()
        self._device.recording = recording
        try:
            work()
        finally:
            self._device.recording = None
        self._device.launches = launches
        torch.set_rng_state(random)
        with _disable_current_modes():
            recording.undo()

        def replay() -> None:
            self._device.launches += 1
            recording.replay()

        return replay, 1


class _Event:
    """An event that has happened."""

    def __init__(self, device: torch.device) -> None:
        assert device == DEVICE

    def record(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """True."""
        return True


@contextmanager
def fake_device(runs_kernels: bool = True) -> Iterator[FakeDevice]:
    """In this block tensors can be on :data:`DEVICE`. There is no autocast."""
    device = FakeDevice(runs_kernels)
    launcher = FakeLauncher(device, runs_kernels) if HAS_INTERPRETER else Launcher()
    with (
        mock.patch("torch.is_autocast_enabled", return_value=False),
        mock.patch("torch.get_autocast_dtype", return_value=torch.bfloat16),
        mock.patch("torch.autocast", return_value=nullcontext()),
        mock.patch("torch.Event", _Event),
        mock.patch("treemem.device_copy.PINNED", {DEVICE.type}),
        mock.patch("treemem.engines.cuda.launcher._launcher", launcher),
        mock.patch("treemem.engines.cuda.graphs._capturer", FakeCapturer(device)),
        device,
    ):
        yield device
