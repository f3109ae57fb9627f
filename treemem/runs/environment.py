"""What a run was made with: the commit of treemem, the version of torch and the processor."""

from __future__ import annotations

import platform
import re
import subprocess
from functools import cache
from pathlib import Path

import torch

import treemem.errors


@cache
def environment() -> dict[str, str]:
    """Return ``treemem`` (the commit of a checkout, followed by ``+`` if its code was changed, or else the version),
    ``torch``, and ``processor`` (names of the CPU and of the GPU, if torch has one)."""
    processor = _cpu_name()
    if torch.cuda.is_available():
        processor += f", {torch.cuda.get_device_name()}"
    return {"treemem": _commit() or _version(), "torch": torch.__version__, "processor": processor}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("treemem")
    except PackageNotFoundError:  # the package is a folder on the path
        return "unknown"


def _commit() -> str | None:
    """Return the commit of the checkout that the package lies in; None if it lies in no checkout of its own."""
    root = Path(treemem.errors.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "treemem", "tasks")
    except (OSError, subprocess.SubprocessError):  # no git, or not the owner's checkout
        return None
    return commit + "+" * bool(changed)


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def _cpu_name() -> str:
    place = Path("/proc/cpuinfo")
    if place.exists():
        model_name = re.search(r"^model name\s*:\s*(.+)$", place.read_text(errors="replace"), re.MULTILINE)
        if model_name:
            return model_name[1].strip()
    return platform.processor() or platform.machine()
