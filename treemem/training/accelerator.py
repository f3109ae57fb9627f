"""What a network runs on: the processor, or a CUDA device where it was asked for and is there."""

from __future__ import annotations

import torch

from treemem.errors import RecipeError


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
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise RecipeError(f"{option} is {name!r}; it must be auto, cpu, cuda or one of several such as cuda:1")
    if kind == "cuda" and not torch.cuda.is_available():
        raise RecipeError(f'{option} is "{name}" and this machine has no CUDA device that torch can use')
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise RecipeError(f'{option} is "{name}" and the devices are cuda:0 to cuda:{torch.cuda.device_count() - 1}')
    return torch.device(name)
