"""What a command is, and how its arguments are read."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from treemem.errors import RecipeError, near_names

_OVERRIDE = re.compile(r"[A-Za-z_][\w.+, -]*=")
_OPTION = re.compile(r"--\w[\w-]*|-[A-Za-z]")
_WRONG_TYPE = re.compile(r'Parser key "(\w+)"(?: element \d+)?:\s*Expected a <class \'(\w+)\'>\. Got value: (.*)', re.S)
_KINDS = {"int": "a whole number", "float": "a number"}


class UsageError(RecipeError):
    """Arguments that a command does not have or take."""


class CommandParser(ArgumentParser):
    """A parser that raises its errors, with near names, and knows which options take no value.

    Attributes:
        takes_texts: whether its arguments may be texts of any beginning; what to do where one is a ``-`` is then told.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.takes_texts = False
        self.option_names: list[str] = []
        self.flags: set[str] = set()
        super().__init__(*args, **options)

    def add_argument(self, *names: Any, **options: Any) -> Any:
        """As in argparse."""
        self.option_names.extend(name for name in names if name.startswith("-"))
        if options.get("action") == "store_true":
            self.flags.update(names)
        return super().add_argument(*names, **options)

    def parsed(self, words: Sequence[str]) -> Namespace:
        """The options that ``words`` say.

        Raises:
            UsageError: words that are none.
        """
        try:
            return self.parse_args(list(words))
        except ArgumentError as error:
            raise UsageError(f"{self._told(str(error))}; see {self.prog} --help") from error

    def _told(self, problem: str) -> str:
        if wrong := _WRONG_TYPE.match(problem):
            name, kind, value = wrong.groups()
            return f"--{name.replace('_', '-')} takes {_KINDS.get(kind, kind)}, not {value.strip()!r}"
        if (unknown := problem.removeprefix("unrecognized arguments: ")) != problem:
            option = unknown.split()[0].partition("=")[0]
            if not option.startswith("-"):
                return f"unknown argument {unknown}"
            hint = "; before a text that begins with - write --" if self.takes_texts else ""
            return f"unknown argument {option}{near_names(option, self.option_names)}{hint}"
        return " ".join(problem.split())


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: one word or two.
        summary: what it does, in a line.
        usage: what may follow its name.
        description: what its help says below the summary.
        examples: command lines that work, one after the other, in a folder that is empty but for weights of published
            code.
        add_arguments: tells a parser what it takes.
        run: does it; what it returns is the exit code, None for 0. It imports what it needs itself, so that help is
            there at once.
        takes_overrides: whether ``FIELD=VALUE`` may stand anywhere among its arguments; they are then in ``set``.
        stopped: what to do after an interruption.
        data_parallel: whether processes that ``torchrun`` launched do it together.
        hands_on: whether its arguments are those of another program; they are then in ``arguments`` as they are.
    """

    name: str
    summary: str
    usage: str
    description: str
    examples: tuple[str, ...]
    add_arguments: Callable[[CommandParser], None]
    run: Callable[[Namespace], int | None]
    takes_overrides: bool = False
    stopped: str = ""
    data_parallel: bool = False
    hands_on: bool = False

    def parser(self) -> CommandParser:
        """The parser of its arguments."""
        program = f"treemem {self.name}"
        parser = CommandParser(
            prog=program,
            usage=f"{program} {self.usage}",
            description=f"{self.summary}\n\n{self.description}".rstrip(),
            epilog="\n".join(["examples:", *(f"  {example}" for example in self.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            exit_on_error=False,
            allow_abbrev=False,
        )
        self.add_arguments(parser)
        parser.add_argument("--debug", action="store_true", help="show where in the code an error came from")
        return parser

    def options(self, words: Sequence[str]) -> Namespace:
        """What the words after its name say.

        Raises:
            UsageError: words that are none.
        """
        if self.hands_on and not (words and words[0] in ("-h", "--help")):
            return Namespace(arguments=list(words[1:] if words[:1] == ["--"] else words), debug=False)
        parser = self.parser()
        return parser.parsed(_overrides_as_options(words, parser.flags) if self.takes_overrides else words)


def add_checkpoint(parser: CommandParser) -> None:
    """The argument ``CHECKPOINT``."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=str,
        help="folder of a run, name of a model that comes along, or hf://OWNER/NAME",
    )  # fmt: skip


def add_input_format(parser: CommandParser, of: str, more: str = "") -> None:
    """The option ``--format`` of the file that the argument ``of`` names; ``more`` are formats beside the usual."""
    parser.add_argument(
        "--format", type=str, metavar="FORMAT", help=f"of {of}: text, csv, jsonl{more} or parquet (by its name)"
    )


def add_device(parser: CommandParser) -> None:
    """The option ``--device``."""
    parser.add_argument(
        "--device", type=str, default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 ... (auto)"
    )


def add_batch_size(parser: CommandParser) -> None:
    """The option ``--batch-size``."""
    parser.add_argument("--batch-size", type=int, default=1024, metavar="N", help="examples that run together (1024)")


def check_place(path: Path, overwrite: bool, is_folder: bool = False) -> None:
    """Refuse a place to write to before work is done for it.

    Raises:
        RecipeError: it exists, or its folder does not.
    """
    if path.exists() and not overwrite and not (is_folder and path.is_dir() and not any(path.iterdir())):
        raise RecipeError(f"{path} exists; choose another name, or write over it with --overwrite")
    if is_folder and path.exists() and not path.is_dir():
        raise RecipeError(f"cannot write {path}: it is a file, and a folder is asked for")
    if not is_folder and path.is_dir():
        raise RecipeError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise RecipeError(f"cannot write {path}: there is no folder {path.parent}")


def add_overrides(parser: CommandParser, example: str) -> None:
    """The option ``--set``."""
    parser.add_argument(
        "--set", action="append", default=[], type=str, metavar="FIELD=VALUE",
        help=f"override a field, such as {example}; may be repeated",
    )  # fmt: skip


def _overrides_as_options(words: Sequence[str], flags: set[str]) -> list[str]:
    """The words before ``--``, each ``FIELD=VALUE`` turned into ``--set FIELD=VALUE``, and all others as they are.

    An option's value is none, and neither is the name of a file or folder that is there.
    """
    found: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for before, word in zip(["", *words], words[:end], strict=False):
        is_value = _OPTION.fullmatch(before) and before not in flags
        is_place = os.access(word, os.F_OK)  # of a text too long for a name it says no, where Path.exists raises
        found.extend(["--set", word] if _OVERRIDE.match(word) and not is_value and not is_place else [word])
    return [*found, *words[end:]]
