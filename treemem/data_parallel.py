"""The processes of ``torchrun`` that train together, and their communication.

Each process takes a part of every batch and divides its loss by the number of examples of the whole batch. The gradient
of the batch is then the sum of theirs. All of them receive the sum and take the same step.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from treemem.errors import RecipeError, TreememError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

_logger = logging.getLogger(__name__)
_Made = TypeVar("_Made")
_LAST_WORD = timedelta(seconds=10)
_groups: dict[str, Any] = {}


class ProcessLostError(TreememError):
    """Another process ended, or cannot be reached, while this one waited for it."""


@dataclass(frozen=True)
class Processes:
    """The processes that were launched together.

    All of them must call the methods that wait for the others, in the same order. A single process never waits.

    Attributes:
        rank: of this process, from 0.
        count: number of processes on all machines.
        local_rank: of this process among those of its machine, from 0.
        local_count: number of processes on its machine.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and logs."""
        return self.rank == 0

    def gathered(self, value: _Made) -> list[_Made]:
        """Return the values of all processes by rank. Waits for all. The values must be picklable."""
        if self.count == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.count
        with _reaching_the_others():
            distributed.all_gather_object(values, value)
        return values

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """Raise a ``TreememError`` or ``OSError`` of one process in the block in all processes.

        Of several errors, that of the lowest rank is raised. Waits for all at the end of the block; within it, no
        process may wait for others. Any other exception ends its process, and the others with
        :class:`ProcessLostError`.
        """
        if self.count == 1:
            yield
            return
        problem: Exception | None = None
        try:
            yield
        except (TreememError, OSError) as error:
            problem = error
        errors = self.gathered(problem)
        first = next((rank for rank, error in enumerate(errors) if error is not None), None)
        if first is not None:
            raise (problem if first == self.rank and problem is not None else errors[first])  # type: ignore[misc]  # not None

    def in_first(self, make: Callable[[], _Made]) -> _Made:
        """Call ``make`` in the first process and return its picklable result, or raise its error, in all processes."""
        if self.count == 1:
            return make()
        from torch import distributed

        made: list[Any] = [None]
        with self.agreeing():
            if self.is_first:
                made[0] = make()
        with _reaching_the_others():
            distributed.broadcast_object_list(made, src=0)
        return made[0]

    def part(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's contiguous part of some examples. Parts differ in length by at most one."""
        import numpy as np

        return np.array_split(places, self.count)[self.rank]

    def balanced_part(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's part of a batch, as indices in ascending order. Parts are about as heavy and as long.

        Examples are dealt from the heaviest to the lightest, to and fro. With fewer examples than processes, some
        processes get none.

        Args:
            weights: of the examples, ``[examples]``.
        """
        import numpy as np

        turn = np.arange(len(weights)) % (2 * self.count)
        whose = np.minimum(turn, 2 * self.count - 1 - turn)
        return np.sort(np.argsort(-weights, kind="stable")[whose == self.rank])

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes. Waits for all.

        A parameter without a gradient in any process keeps none, so that the optimiser skips it.

        Args:
            parameters: in the same order in every process.
        """
        if self.count == 1:
            return
        import torch
        from torch import distributed

        learnt = [parameter for parameter in parameters if parameter.requires_grad]
        has_own = [parameter.grad is not None for parameter in learnt]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in learnt]
        flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), learnt[0].new_tensor(has_own)])
        with _reaching_the_others():
            distributed.all_reduce(flat)
        *sums, counts = flat.split([*(weight.numel() for weight in learnt), len(learnt)])
        has_any = has_own if all(has_own) else (counts > 0).tolist()  # to read counts is to wait for the device
        for parameter, summed, is_there in zip(learnt, sums, has_any, strict=True):
            if is_there:
                parameter.grad = summed.view_as(parameter).to(parameter.dtype)

    def device_of(self, kind: str) -> torch.device:
        """Return the device of this process: ``"cpu"``, or the CUDA device of its local rank.

        Raises:
            RecipeError: the machine has more processes than devices.
        """
        import torch

        if kind != "cuda" or self.count == 1:
            return torch.device(kind)
        if self.local_count > torch.cuda.device_count():
            raise RecipeError(
                f"{self.local_count} processes were launched on a machine with {torch.cuda.device_count()} CUDA "
                "devices; launch one for each, or train on the CPU"
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def first_has_told(self) -> bool:
        """Return whether the first process calls this too within ten seconds, as it does after printing an error."""
        if self.count == 1 or "last word" not in _groups:
            return False
        from torch import distributed

        try:
            distributed.barrier(group=_groups["last word"])
        except RuntimeError:
            return False
        return True


def launched_processes() -> Processes:
    """Return the processes that ``torchrun`` launched, or a single process without ``torchrun``.

    A script should print only if :attr:`Processes.is_first`.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Processes()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    rank, count, local_rank, local_count = (int(os.environ[name]) for name in names)
    return Processes(rank, count, local_rank, local_count) if count > 1 else Processes()


def joined_processes() -> Processes:
    """Connect the launched processes and return them. The first call waits for all.

    They use gloo on the CPU and nccl on CUDA devices, unless the script has called
    ``torch.distributed.init_process_group`` before.
    """
    processes = launched_processes()
    _warn_of_another_launcher()
    if processes.count > 1 and not _groups:
        from torch import distributed

        with _reaching_the_others():
            if not distributed.is_initialized():
                distributed.init_process_group()
                atexit.register(_leave)
            # a group of its own, so that its barrier is not mixed up with other calls
            _groups["last word"] = distributed.new_group(backend="gloo", timeout=_LAST_WORD)
    return processes


@functools.cache
def _warn_of_another_launcher() -> None:
    count = os.environ.get("WORLD_SIZE", "1")
    if count != "1" and "TORCHELASTIC_RUN_ID" not in os.environ:
        _logger.warning(
            "WORLD_SIZE is %s, but torchrun did not launch this process, which works by itself; launch with torchrun",
            count,
        )


def _leave() -> None:
    """End the groups while the interpreter lives: a thread of gloo that outlives it may abort the process."""
    from torch import distributed

    _groups.clear()  # a group that is referred to keeps its threads
    if distributed.is_initialized():
        distributed.destroy_process_group()


@contextlib.contextmanager
def _reaching_the_others() -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # of gloo and of nccl alike
        problem = " ".join(str(error).split())[:200]
        raise ProcessLostError(
            f"another process that was launched with this one has ended, or cannot be reached ({problem})"
        ) from error
