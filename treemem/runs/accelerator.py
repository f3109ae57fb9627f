"""What a network runs on: the processor, or a CUDA device where it was asked for and is there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from treemem.data_parallel import Processes
from treemem.errors import RecipeError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def find_device(name: str = "auto", option: str = "device") -> torch.device:
    """The device of that name.

    Args:
        name: ``"auto"`` (CUDA where there is any, else the processor), ``"cpu"``, ``"cuda"`` or one of several, such as
            ``"cuda:1"``.
        option: what the name was given for, as messages call it.

    Raises:
        RecipeError: no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu(:0)?|cuda(:(0|[1-9][0-9]*))?", name):
        raise RecipeError(f"{option} is {name!r}; it must be auto, cpu, cuda or one of several such as cuda:1")
    kind, _, number = name.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        raise RecipeError(f'{option} is "{name}" and this machine has no CUDA device that torch can use')
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise RecipeError(f'{option} is "{name}" and the devices are cuda:0 to cuda:{torch.cuda.device_count() - 1}')
    return torch.device(name)


def fabric_of_process(processes: Processes, accelerator: str, precision: str) -> Fabric:
    """What brings a network to the device of this process, in the precision wanted.

    It knows of this process alone, whatever launched it: what processes that train together exchange, they exchange by
    :class:`~treemem.data_parallel.Processes`.

    Args:
        processes: those that were launched together.
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        precision: as lightning-fabric names it.

    Raises:
        RecipeError: no such device, more processes on a machine than devices, or ``fabric run`` with a precision or
            strategy of its own.
    """
    from lightning_fabric import Fabric

    with _without_variables_of_fabric_run() as launched_for:
        for name in ("precision", "strategy"):
            if f"LT_{name.upper()}" in launched_for:
                raise RecipeError(
                    f"fabric run was given --{name}; leave it away: the options of the training say the precision, and "
                    "processes are always data-parallel"
                )
        if accelerator == "auto" and launched_for.get("LT_ACCELERATOR") == "cpu":
            accelerator = "cpu"
        device = processes.device_of(find_device(accelerator, "accelerator").type)
        devices = 1 if device.index is None else [device.index]
        return Fabric(accelerator=device.type, devices=devices, precision=precision)  # type: ignore[arg-type]


@contextlib.contextmanager
def _without_variables_of_fabric_run() -> Iterator[dict[str, str]]:
    """Take what ``fabric run`` tells of all its processes out of the environment while the block lasts."""
    is_launched = os.environ.get("LT_CLI_USED") == "1"
    told = {name: os.environ.pop(name) for name in list(os.environ) if is_launched and name.startswith("LT_")}
    try:
        yield told
    finally:
        os.environ.update(told)
