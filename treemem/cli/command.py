"""What a command is, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from treemem.errors import RecipeError

_OVERRIDE = re.compile(r"[A-Za-z_][\w.+, -]*=")


class UsageError(RecipeError):
    """Arguments that a command does not have or take."""


class CommandParser(ArgumentParser):
    """jsonargparse's parser. It raises its errors and prints the text of its help as it is."""

    def __init__(self, **options: Any) -> None:
        plain = argparse.RawDescriptionHelpFormatter
        super().__init__(exit_on_error=False, allow_abbrev=False, formatter_class=plain, **options)

    def print_help(self, file: Any = None) -> None:
        """Print the help. A closed pipe raises BrokenPipeError, which argparse would swallow."""
        print(self.format_help(), end="", file=file)

    @property
    def option_names(self) -> list[str]:
        """The names of its options, such as ``--output``."""
        return list(self._option_string_actions)

    def takes_value(self, word: str) -> bool:
        """Return whether a word is an option of one or more values."""
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs != 0


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: one word or two.
        summary: what it does, in a line.
        usage: what may follow its name.
        description: what its help says below the summary.
        examples: command lines that work, one after the other, in a folder that holds nothing but published weights.
        add_arguments: tells a parser what the command takes.
        run: runs it and returns the exit code, None for 0. It imports what it needs itself, so that help is fast.
        takes_overrides: whether ``FIELD=VALUE`` may stand anywhere among its arguments. They are then in ``set``.
        stopped: what to do after Ctrl-C.
        data_parallel: whether it runs in the processes that ``torchrun`` launches.
        hands_on: whether it hands its arguments on to another program, unread. They are then in ``arguments``.
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
        """Return the parser of its arguments."""
        parser = CommandParser(
            usage=f"treemem {self.name} {self.usage}",
            description=f"{self.summary}\n\n{self.description}".rstrip(),
            epilog="\n".join(["examples:", *(f"  {example}" for example in self.examples)]),
        )
        self.add_arguments(parser)
        return parser


def add_recipe(parser: CommandParser) -> None:
    """Add the argument ``RECIPE``."""
    parser.add_argument("recipe", metavar="RECIPE", type=str, help="TASK/RECIPE of a packaged recipe, or a YAML file")


def add_checkpoint(parser: CommandParser) -> None:
    """Add the argument ``CHECKPOINT``."""
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        type=str,
        help="folder of a run, name of a packaged model, or hf://OWNER/NAME",
    )


def add_input_format(parser: CommandParser, of: str, more: str = "") -> None:
    """Add the option ``--format`` of the file that the argument ``of`` names. ``more`` are further formats."""
    parser.add_argument(
        "--format", type=str, metavar="FORMAT", help=f"of {of}: text, csv, jsonl{more} or parquet (by its name)"
    )


def add_device(parser: CommandParser) -> None:
    """Add the option ``--device``."""
    parser.add_argument(
        "--device", type=str, default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 ... (auto)"
    )


def add_batch_size(parser: CommandParser) -> None:
    """Add the option ``--batch-size``."""
    parser.add_argument("--batch-size", type=int, default=1024, metavar="N", help="examples that run together (1024)")


def add_overrides(parser: CommandParser, example: str) -> None:
    """Add the option ``--set``."""
    parser.add_argument(
        "--set", action="append", default=[], type=str, metavar="FIELD=VALUE",
        help=f"override a field, such as {example}; may be repeated",
    )  # fmt: skip


def overrides_as_options(words: Sequence[str], parser: CommandParser) -> list[str]:
    """Return the words with ``--set`` before each ``FIELD=VALUE`` that stands before ``--``.

    The value of an option is not such a field, nor is the name of a file or folder that exists.
    """
    found: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for before, word in zip(["", *words], words[:end], strict=False):
        is_place = os.access(word, os.F_OK)  # False for a text too long for a name, where Path.exists raises
        is_field = _OVERRIDE.match(word) and not parser.takes_value(before) and not is_place
        found.extend(["--set", word] if is_field else [word])
    return [*found, *words[end:]]
