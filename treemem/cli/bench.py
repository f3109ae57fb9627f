"""``treemem bench``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jsonargparse import Namespace

import treemem
from treemem.cli.command import Command, CommandParser
from treemem.errors import RecipeError


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", type=str, help="arguments of python -m benchmarks")


def _run(options: Namespace) -> int:
    checkout = Path(treemem.__file__).parent.parent
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise RecipeError(
            "the benchmarks are not part of the installed package; clone the repository and run treemem bench there"
        )
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "benchmarks", *options.arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False).returncode


COMMAND = Command(
    name="bench",
    summary="Run the benchmarks (in a source checkout).",
    usage="[ARGUMENT ...]",
    description="Runs python -m benchmarks with these arguments. treemem bench -- --help prints its help.",
    examples=('treemem bench --quick --only "equations 8-13 batch 256 shared" --baseline products',),
    add_arguments=_add_arguments,
    run=_run,
    hands_on=True,
)
