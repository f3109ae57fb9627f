"""The program ``treemem``: it runs a command and prints errors in one line."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from jsonargparse import ArgumentError, Namespace

import treemem
from treemem.cli import (
    bench,
    compare,
    convert,
    evaluate,
    explore,
    generate,
    label,
    merge,
    parse,
    predict,
    queue,
    reproduce,
    sweep,
    tasks,
    train,
    validate,
)
from treemem.cli.command import Command, CommandParser, UsageError, overrides_as_options
from treemem.data_parallel import joined_processes, launched_processes
from treemem.errors import TreememError, for_commands, near_names

COMMANDS: dict[str, Command] = {command.name: command for command in (
    tasks.COMMAND,
    parse.COMMAND,
    generate.COMMAND,
    label.COMMAND,
    validate.COMMAND,
    train.COMMAND,
    evaluate.COMMAND,
    predict.COMMAND,
    explore.COMMAND,
    compare.COMMAND,
    sweep.COMMAND,
    reproduce.COMMAND,
    queue.COMMAND,
    merge.COMMAND,
    convert.COMMAND,
    bench.COMMAND,
)}  # fmt: skip
_WRONG, _INTERRUPTED, _BROKEN_PIPE = 2, 130, 141
_UNKNOWN = re.compile(r"(?:unrecognized arguments: |invalid choice: ')([^\s'=]+)")
_TYPE = re.compile(r"<class '(\w+)'>")
_WORDS = {"int": "whole number", "float": "number", "str": "text"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code of the process.

    Args:
        arguments: the words after the program's name; by default the arguments of the process.

    Returns:
        0 for success; 2 for wrong input or a closed standard output; 3 if predict found an error in every record; 130
        after Ctrl-C; 141 if the reader of standard output went away.

    All processes of ``torchrun`` exit with the same code. Only the first one prints.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    before = words[: words.index("--")] if "--" in words else words
    is_debug = "--debug" in before
    before, modules = _without_imports([word for word in before if word != "--debug"])
    words = before + words[words.index("--") :] if "--" in words else before
    if sys.stderr is None:
        sys.stderr = _opened_to_nothing()
    if sys.stdout is None:
        print("error: standard output is closed; redirect it to a file or to /dev/null", file=sys.stderr)
        return _WRONG
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal has all characters of a table
    try:
        with _log_on_standard_error():
            joined_processes()
            for module in modules:
                _import_file(module)
            code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _print_interruption("")
        return _INTERRUPTED
    except (TreememError, OSError) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
            _give_up_standard_output()
            return _BROKEN_PIPE
        if is_debug:
            traceback.print_exc()
        _print_error(error)
        return _WRONG
    return code


def parse_words(words: Sequence[str]) -> tuple[Command, Namespace]:
    """Return the command that the words name, and its options.

    Raises:
        UsageError: the words are wrong. The message has similar names of commands and options.
        SystemExit: help or the version was printed.
    """
    words = list(words)
    command = COMMANDS.get(words[0])
    parsers = {name: one_command.parser() for name, one_command in COMMANDS.items()}
    if command and command.takes_overrides:
        words[1:] = overrides_as_options(words[1:], parsers[command.name])
    if command and command.hands_on and words[1:2] not in (["-h"], ["--help"], ["--"]):
        words.insert(1, "--")
    try:
        options = program_parser(parsers).parse_args(words)
    except ArgumentError as error:
        problem = _TYPE.sub(lambda word: _WORDS.get(word[1], word[1]), " ".join(str(error).split()))
        if command and "arguments are required" in problem:
            raise UsageError(
                f"an argument is missing; write treemem {command.name} {command.usage}, such as {command.examples[0]}"
            ) from error
        unknown = _UNKNOWN.search(problem)
        known = parsers[command.name].option_names if command else [*COMMANDS, "--version"]
        near = near_names(unknown[1], known) if unknown else ""
        program = f"treemem {command.name}" if command else "treemem"
        raise UsageError(f"{problem}{near or f'; see {program} --help'}") from error
    return COMMANDS[options.command], options[options.command]


def program_parser(parsers: Mapping[str, CommandParser]) -> CommandParser:
    """Return the parser of the whole command line, with the parsers of the commands."""
    parser = CommandParser(
        prog="treemem",
        version=treemem.__version__,
        usage="treemem COMMAND [ARGUMENTS]",
        description="Batches of trees, and neural networks with memory that run on them.",
        epilog=(
            "Anywhere among the arguments, --debug prints the traceback of an error, and --import FILE.py\n"
            "runs a Python file that registers own tasks or networks."
        ),
    )
    subcommands = parser.add_subcommands(title="commands", metavar="COMMAND", dest="command")
    for name, subparser in parsers.items():
        subcommands.add_subcommand(name, subparser, help=COMMANDS[name].summary)
    return parser


def _without_imports(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words without ``--import FILE``, and the files."""
    kept: list[str] = []
    files: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--import":
            files.append(next(remaining, ""))
        elif word.startswith("--import="):
            files.append(word.partition("=")[2])
        else:
            kept.append(word)
    return kept, files


def _import_file(name: str) -> None:
    """Import a user's module, which registers tasks and networks; other processes find it too."""
    path = Path(name).resolve()
    if path.suffix != ".py":
        raise UsageError(f"--import needs a file of Python, such as my_tasks.py, not {name!r}")
    if not path.is_file():
        raise UsageError(f"there is no file {name} to import")
    sys.path.insert(0, str(path.parent))
    try:
        module = importlib.import_module(path.stem)
    except TreememError:
        raise
    except Exception as error:  # whatever a user's module raises
        raise UsageError(f"cannot import {name}: {type(error).__name__}: {error}") from error
    if Path(module.__file__ or "").resolve() != path:
        raise UsageError(f"another module is called {path.stem!r}; rename {name}")


def _run(words: Sequence[str]) -> int:
    if not words:
        with contextlib.redirect_stdout(sys.stderr):
            return _run(["--help"]) or _WRONG
    try:
        command, options = parse_words(["--help"] if words[0] == "help" else words)
    except SystemExit:  # the help is printed
        return 0
    if launched_processes().count > 1 and not command.data_parallel:
        raise UsageError(f"treemem {command.name} runs in one process; call it without torchrun")
    try:
        return command.run(options) or 0
    except KeyboardInterrupt:
        _print_interruption(command.stopped)
        return _INTERRUPTED


def _print_error(error: Exception) -> None:
    """Print an error. The first process prints for all others with the same error."""
    processes = launched_processes()
    if processes.is_first:
        print(f"error: {for_commands(error)}", file=sys.stderr)
    if not processes.first_has_told() and not processes.is_first:
        print(f"error in process {processes.rank + 1}: {error}", file=sys.stderr)


def _print_interruption(stopped: str) -> None:
    if launched_processes().is_first:
        print(f"\nstopped{stopped and f'; {stopped}'}", file=sys.stderr)


@contextlib.contextmanager
def _log_on_standard_error() -> Iterator[None]:
    """Print the log messages of the first process on standard error, and hide the output of the others."""
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


def _opened_to_nothing() -> TextIO:
    """Return a standard error that discards everything, in place of a closed one.

    Its descriptor stays taken, also in processes that this one starts. Otherwise the next file to be opened, such as an
    output, would get the messages of C++ libraries.
    """
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.set_inheritable(descriptor, True)
    return os.fdopen(descriptor, "w")


def _give_up_standard_output() -> None:
    """Discard what is left to write, so that Python prints no error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
