"""The device of a run: the CPU or a CUDA device."""

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
    """Return a device by name.

    Args:
        name: ``"auto"`` (CUDA if available, else the CPU), ``"cpu"``, ``"cuda"`` or, for one of several, ``"cuda:1"``.
        option: the option's name for messages.

    Raises:
        RecipeError: there is no such device.
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
    """Return the Fabric of this process, for device and precision only.

    Args:
        processes: those that were launched together.
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        precision: as in lightning-fabric.

    Raises:
        RecipeError: no such device, more processes than devices on a machine, or ``fabric run`` with its own precision
            or strategy.
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
    """Remove the variables of ``fabric run`` from the environment within the block, and yield them."""
    is_launched = os.environ.get("LT_CLI_USED") == "1"
    told = {name: os.environ.pop(name) for name in list(os.environ) if is_launched and name.startswith("LT_")}
    try:
        yield told
    finally:
        os.environ.update(told)
