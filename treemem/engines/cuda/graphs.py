"""Steps that run as CUDA graphs: what a step launches is recorded once, and later launched as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from itertools import chain, count, islice, repeat
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from treemem.checked_options import checked_count
from treemem.device_copy import Constants, StaticTensors, to_device_together
from treemem.engines.cuda.trees_in_bucket import BucketPlans, PaddedTrees
from treemem.errors import RecipeError
from treemem.schedule.tree_batch import TreeBatch

Work = Callable[[], None]
Padded = torch.Tensor | PaddedTrees
"""An argument of a step in the size of its bucket."""


class Capturer:
    """Captures on CUDA. Tests have one that needs no GPU.

    All graphs share a pool of memory and run one after the other, so what one computes may overwrite what another left.

    Attributes:
        device_type: the type of the devices that it captures on.
    """

    device_type = "cuda"

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def aside(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return a block that runs on the stream of captures, before and after which streams wait for each other."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        return _Aside(self._stream)

    def capture(self, work: Work) -> tuple[Work, int]:
        """Return what launches all that ``work`` launches, and how many bytes that has taken."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.memory_reserved()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay, max(0, torch.cuda.memory_reserved() - before)


class _Aside:
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream, self._before = stream, torch.cuda.current_stream(stream.device)
        self._block = torch.cuda.stream(stream)

    def __enter__(self) -> None:
        self._stream.wait_stream(self._before)
        self._block.__enter__()

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(*error)
        self._before.wait_stream(self._stream)


_capturer = Capturer()


def captures_on(device: torch.device) -> bool:
    """Return whether steps on a device can be graphs."""
    return device.type == _capturer.device_type


class _Bucket:
    """The step for tensors of some shapes.

    Args:
        padded: the arguments of a first batch.
        device: where the step runs.

    Attributes:
        arguments: which the step gets.
        constants: what it copies from the host.
        gradients: of the module's parameters after the step.
        replay: what launches it; None until it is captured.
        outputs: what it writes.
    """

    def __init__(self, padded: Sequence[Padded], device: torch.device) -> None:
        self._inputs, self.constants = StaticTensors(_tensors(padded), device), Constants()
        self._plans = [BucketPlans(x.sizes, device) for x in padded if isinstance(x, PaddedTrees)]
        self.arguments: list[Any] = []
        self.replay: Work | None = None
        self.outputs: Any = None
        self.gradients: list[torch.Tensor | None] = []
        self._give(padded)

    def fill(self, padded: Sequence[Padded]) -> None:
        """Put another batch in the place of the last one."""
        self._inputs.fill(_tensors(padded))
        self._give(padded)

    def _give(self, padded: Sequence[Padded]) -> None:
        tensors, plans = iter(self._inputs.tensors), iter(self._plans)
        self.arguments = [
            x.given(list(islice(tensors, len(x.tensors))), next(plans)) if isinstance(x, PaddedTrees) else next(tensors)
            for x in padded
        ]


def _tensors(padded: Sequence[Padded]) -> list[torch.Tensor]:
    return [tensor for x in padded for tensor in (x.tensors if isinstance(x, PaddedTrees) else [x])]


class CapturedStep:
    """A step of training or inference that runs as one CUDA graph.

    A step on a small batch takes as long as its launches. A graph launches all of them at once. Each **bucket**, a
    combination of shapes, has a graph of its own: its first batch runs as usual, at its second batch the step is
    captured, and from then on it is launched as a graph. On a CPU, and where buckets have no graph, the step runs as
    usual, on the same padded tensors.

    What the step does may depend on the shapes of its tensors, and on nothing else that changes. It must not read
    numbers on the host: pass lengths and labels as tensors, and read sequences of several lengths by
    :meth:`treemem.nn.SequenceEncoder.in_bucket`. A step that computes gradients must first set them to None or to 0.

    A :class:`treemem.TreeBatch` is padded, too: to a multiple of ``examples``, with copies of its first example, and
    to few sizes of nodes and rows. Tree layers read it by :meth:`treemem.nn.TreeNetwork.in_bucket`.

    Within a step, optimisers of torch need ``capturable=True``, and learning rates that change must be tensors. Random
    numbers are drawn anew each time. Let no other thread copy to the device while a bucket has its first two batches.

    Args:
        step: takes tensors and batches of trees, nested in tuples, lists and dictionaries as you like, and returns such
            tensors.
        module: what it runs, and whose gradients it may compute, on one device.
        examples, times: the first dimension of each tensor is padded to a multiple of ``examples``, and the second, if
            there is one, to a multiple of ``times``. 1: no padding.
        padding: the number that each tensor is padded with, in the order of the tensors; by default 0.
        of_nodes: numbers of the tensors, in their order from 0, whose first dimension counts the nodes of the first
            batch of trees, such as their labels; it is padded as the nodes are.
        most_graphs: buckets after so many have no graph.
        most_bytes: once the graphs have taken as much memory, further buckets have none.
        enabled: False: always run as usual.

    Attributes:
        num_graphs: how many buckets have a graph.
        num_bytes: the memory that they have taken.

    Raises:
        RecipeError: an option outside its range; a step that copies other numbers from the host for each batch.

    Example:
        >>> layer = torch.nn.Linear(3, 1)
        >>> step = CapturedStep(lambda x: layer(x).sum(1), layer, examples=4)
        >>> step(torch.ones(2, 3)).shape
        torch.Size([4])
    """

    def __init__(
        self,
        step: Callable[..., Any],
        module: torch.nn.Module,
        *,
        examples: int = 1,
        times: int = 1,
        padding: Sequence[float] = (),
        of_nodes: Collection[int] = (),
        most_graphs: int = 32,
        most_bytes: int = 8 << 30,
        enabled: bool = True,
    ) -> None:
        self._step, self._module, self._enabled = step, module, enabled
        self._multiples = checked_count("examples", examples), checked_count("times", times)
        self._padding, self._of_nodes = padding, of_nodes
        self._most_graphs, self._most_bytes = checked_count("most_graphs", most_graphs), most_bytes
        self._buckets: dict[Hashable, _Bucket] = {}
        self._gradients: dict[torch.nn.Parameter, torch.Tensor] = {}
        self.num_graphs = self.num_bytes = 0

    def __call__(self, *arguments: Any) -> Any:
        """Return what the step returns for padded tensors, which are copied to the device of the module.

        Args:
            arguments: as of the step; on the CPU or on the device.
        """
        flat, structure = tree_flatten(arguments)
        padded = self._padded(flat)
        device = next(self._module.parameters()).device
        if not self._enabled or not captures_on(device):
            tensors = iter(to_device_together([x for x in padded if isinstance(x, torch.Tensor)], device))
            moved = [x.on(device) if isinstance(x, PaddedTrees) else next(tensors) for x in padded]
            return self._step(*tree_unflatten(moved, structure))
        modes = torch.is_grad_enabled(), self._module.training, torch.is_autocast_enabled(device.type)
        shapes = ((tensor.shape, tensor.dtype, tensor.device) for tensor in _tensors(padded))
        key = (structure, modes, *shapes, *(x.key for x in padded if isinstance(x, PaddedTrees)))
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(padded, device)
            with bucket.constants.kept():
                return self._run(bucket, structure, device)
        bucket.fill(padded)
        is_full = self.num_graphs >= self._most_graphs or self.num_bytes >= self._most_bytes
        if bucket.replay is None and is_full:
            return self._run(bucket, structure, device)
        if bucket.replay is None:
            self._capture(bucket, structure)
        assert bucket.replay is not None
        bucket.replay()
        if torch.is_grad_enabled():
            for parameter, gradient in zip(self._module.parameters(), bucket.gradients, strict=True):
                parameter.grad = gradient
        return tree_map_only(torch.Tensor, torch.clone, bucket.outputs)

    def _run(self, bucket: _Bucket, structure: Any, device: torch.device) -> Any:
        with _capturer.aside(device):
            return self._step(*tree_unflatten(bucket.arguments, structure))

    def _capture(self, bucket: _Bucket, structure: Any) -> None:
        def work() -> None:
            before = [parameter.grad for parameter in self._module.parameters()]
            bucket.outputs = self._step(*tree_unflatten(bucket.arguments, structure))
            self._share_gradients(before)

        with bucket.constants.given():
            bucket.replay, num_bytes = _capturer.capture(work)
        bucket.outputs = tree_map_only(torch.Tensor, torch.Tensor.detach, bucket.outputs)
        bucket.gradients = [parameter.grad for parameter in self._module.parameters()]
        self.num_graphs += 1
        self.num_bytes += num_bytes

    def _share_gradients(self, before: Sequence[torch.Tensor | None]) -> None:
        """Copy new gradients to the memory of those of the first graph, so that further graphs need none for them."""
        for parameter, earlier in zip(self._module.parameters(), before, strict=True):
            gradient = parameter.grad
            if gradient is None or gradient is earlier:
                continue
            shared = self._gradients.setdefault(parameter, gradient)
            if shared is not gradient:
                parameter.grad = shared.copy_(gradient)

    def _padded(self, arguments: Sequence[Any]) -> list[Padded]:
        padded = [PaddedTrees(x, self._multiples[0]) if isinstance(x, TreeBatch) else x for x in arguments]
        nodes = next((x.sizes.nodes for x in padded if isinstance(x, PaddedTrees)), 0)
        numbers = chain(self._padding, repeat(0.0))
        places = count()
        for at, x in enumerate(padded):
            if isinstance(x, torch.Tensor):
                sizes = [-(-size // to) * to for size, to in zip(x.shape, self._multiples, strict=False)]
                if next(places) in self._of_nodes:
                    sizes[0] = nodes
                padded[at] = _enlarged(x, (*sizes, *x.shape[2:]), next(numbers))
            elif not isinstance(x, PaddedTrees):
                raise RecipeError(
                    f"a captured step takes tensors and TreeBatches, not {type(x).__name__}; others would not change"
                )
        return padded


def _enlarged(tensor: torch.Tensor, shape: tuple[int, ...], number: float) -> torch.Tensor:
    if shape == tensor.shape:
        return tensor
    enlarged = tensor.new_full(shape, number)
    enlarged[tuple(map(slice, tensor.shape))] = tensor
    return enlarged
