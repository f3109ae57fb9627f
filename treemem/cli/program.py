"""The program: finds the command, runs it, and tells what went wrong in a line."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import treemem
from treemem.cli import (
    bench,
    compare,
    convert,
    evaluate,
    explore,
    generate,
    parse,
    predict,
    sweep,
    tasks,
    train,
    validate,
)
from treemem.cli.command import Command, UsageError
from treemem.data_parallel import joined_processes, launched_processes
from treemem.errors import TreememError, near_names

COMMANDS: tuple[Command, ...] = (
    tasks.LIST,
    tasks.DESCRIBE,
    parse.COMMAND,
    generate.COMMAND,
    validate.COMMAND,
    train.COMMAND,
    evaluate.COMMAND,
    predict.COMMAND,
    explore.COMMAND,
    compare.COMMAND,
    sweep.COMMAND,
    convert.COMMAND,
    bench.COMMAND,
)
_WRONG, _INTERRUPTED, _BROKEN_PIPE = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the process is to exit with.

    Args:
        arguments: the words after the program's name; those of the process by default.

    Returns:
        0; 2 if the user's input was wrong or standard output is closed; 3 if predict found an error in every record;
        130 after Ctrl-C; 141 if the reader of standard output went away.

    Of processes that ``torchrun`` launched all exit with the same, and the first one tells what there is to tell.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_descriptors()
    if sys.stdout is None:
        print("error: standard output is closed; redirect it to a file or to /dev/null", file=sys.stderr)
        return _WRONG
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a table has characters that not every terminal knows
    try:
        with _log_on_standard_error():
            joined_processes()
            code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _tell_interruption("")
        return _INTERRUPTED
    except (TreememError, OSError) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
            _give_up_standard_output()
            return _BROKEN_PIPE
        if "--debug" in words:
            traceback.print_exc()
        _tell_error(error)
        return _WRONG
    return code


def _tell_error(error: Exception) -> None:
    """Say what went wrong: all processes do the same, and the first one says it for all."""
    processes = launched_processes()
    if processes.is_first:
        print(f"error: {error}", file=sys.stderr)
    if not processes.first_has_told() and not processes.is_first:
        print(f"error in process {processes.rank + 1}: {error}", file=sys.stderr)


def _tell_interruption(stopped: str) -> None:
    if launched_processes().is_first:
        print(f"\nstopped{stopped and f'; {stopped}'}", file=sys.stderr)


def _run(words: Sequence[str]) -> int:
    rest = list(words)
    while rest and rest[0] == "--debug":
        rest = rest[1:]
    if not rest or rest[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if rest else sys.stderr)
        return 0 if rest else _WRONG
    if rest[0] == "--version":
        print(f"treemem {treemem.__version__}")
        return 0
    command, own_words = _found(rest)
    if launched_processes().count > 1 and not command.data_parallel:
        raise UsageError(f"treemem {command.name} is one process; call it without torchrun")
    try:
        options = command.options(own_words)
    except SystemExit:  # of argparse, which has printed the help
        return 0
    try:
        return command.run(options) or 0
    except KeyboardInterrupt:
        _tell_interruption(command.stopped)
        return _INTERRUPTED


def _found(words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    """The command that the first words name, and the words after its name.

    Raises:
        UsageError: no such command.
    """
    for command in COMMANDS:
        length = len(command.name.split())
        if " ".join(words[:length]) == command.name:
            return command, words[length:]
    names = [command.name for command in COMMANDS]
    family = [name for name in names if name.partition(" ")[0] == words[0]]
    if family:
        second = f"{words[0]} {words[1]}" if len(words) > 1 else ""
        near = near_names(second, family) or f"; there are {', '.join(family)}"
        raise UsageError(f"no command {second or words[0]!r}{near}")
    near = near_names(words[0], {*names, *(name.partition(" ")[0] for name in names)})
    raise UsageError(f"no command {words[0]!r}{near or '; there are ' + ', '.join(names)}")


def _help() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name.ljust(width)}  {command.summary}" for command in COMMANDS]
    return "\n".join([
        "usage: treemem COMMAND [ARGUMENTS]",
        "",
        "Batches of trees, and the neural networks with memory that run on them.",
        "",
        "commands:",
        *lines,
        "",
        "treemem COMMAND --help says what a command takes, with examples; --version says which treemem this is.",
    ])  # fmt: skip


@contextlib.contextmanager
def _log_on_standard_error() -> Iterator[None]:
    """Messages of the library go to standard error, as they are, while the block lasts; those of the first process."""
    is_first = launched_processes().is_first
    logger = logging.getLogger("treemem")
    handler = logging.StreamHandler(sys.stderr) if is_first else logging.NullHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with contextlib.nullcontext() if is_first else contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _open_closed_descriptors() -> None:
    """Give closed standard streams to the null device, so that no file that is opened later takes their place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def _give_up_standard_output() -> None:
    """Keep Python from complaining, at its end, that what is left to write has no reader."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
