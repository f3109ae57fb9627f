"""The description of a command, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from treemem.errors import RecipeError

_OVERRIDE = re.compile(r"[A-Za-z_][\w.+, -]*=")


class UsageError(RecipeError):
    """Wrong arguments of a command."""


class CommandParser(ArgumentParser):
    """The parser of jsonargparse, which raises its errors and keeps the line breaks of its help."""

    def __init__(self, **options: Any) -> None:
        plain = argparse.RawDescriptionHelpFormatter
        super().__init__(exit_on_error=False, allow_abbrev=False, formatter_class=plain, **options)

    def print_help(self, file: Any = None) -> None:
        """Print the help. A closed pipe raises BrokenPipeError, which argparse would swallow."""
        print(self.format_help(), end="", file=file)

    @property
    def option_names(self) -> list[str]:
        """Names of the options, such as ``--output``."""
        return list(self._option_string_actions)

    def takes_value(self, word: str) -> bool:
        """Return whether a word is an option with a value."""
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs != 0


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: one word.
        summary: what it does, in one line.
        usage: its arguments, as help shows them after the name.
        description: the text of its help below the summary.
        examples: command lines that run, one after the other, in an empty folder.
        add_arguments: adds its arguments to a parser.
        run: runs it and returns the exit code, None for 0. It imports what it needs, so that help is fast.
        takes_overrides: whether ``FIELD=VALUE`` may stand anywhere among its arguments. These are then in ``set``.
        stopped: what to do after Ctrl-C.
        data_parallel: whether it runs in the processes of ``torchrun``.
        hands_on: whether it passes its arguments, unread, to another program. They are then in ``arguments``.
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


_SHARED: dict[str, dict[str, Any]] = {
    "recipe": {"metavar": "RECIPE", "type": str, "help": "TASK/RECIPE of a packaged recipe, or a YAML file"},
    "checkpoint": {
        "metavar": "CHECKPOINT",
        "type": str,
        "help": "folder of a run, name of a packaged model, or hf://OWNER/NAME",
    },
    "--format": {
        "choices": ["markdown", "latex"],
        "default": "markdown",
        "help": "of the tables: markdown, or latex with booktabs (markdown)",
    },
    "--device": {"type": str, "default": "auto", "metavar": "DEVICE", "help": "auto, cpu, cuda, cuda:1 ... (auto)"},
    "--cuda-graphs": {"action": "store_true", "help": "run batches as CUDA graphs"},
    "--batch-size": {"type": PositiveInt, "default": 1024, "metavar": "N", "help": "examples of a batch (1024)"},
}


def add_shared(parser: CommandParser, *names: str) -> None:
    """Add arguments that several commands share, such as ``recipe``, ``checkpoint`` or ``--device``."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def add_explanation(parser: CommandParser) -> None:
    """Add the options ``--explain`` and ``--explain-answer``."""
    methods = "occlusion, gradient_times_input or integrated_gradients"
    parser.add_argument("--explain", type=str, metavar="METHOD", help=f"explain the answers: {methods}")
    parser.add_argument(
        "--explain-answer", type=str, metavar="ANSWER", help="the answer to explain (the predicted one)"
    )


def add_input_format(parser: CommandParser, of: str, more: str = "") -> None:
    """Add the option ``--format`` for the file of the argument ``of``. ``more`` names further formats."""
    parser.add_argument(
        "--format", type=str, metavar="FORMAT", help=f"format of {of}: text, csv, jsonl{more} or parquet (by its name)"
    )


def add_on_error(parser: CommandParser, skip: str) -> None:
    """Add the option ``--on-error``. ``skip`` says what becomes of a bad row of a table that is left out."""
    parser.add_argument(
        "--on-error",
        choices=("stop", "skip"),
        metavar="stop|skip",
        help=f"at a bad row of a table: stop, or {skip} (stop)",
    )


class _FormOption(argparse.Action):
    """A form of texts. ``help`` prints all forms."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values == "help":
            from treemem.trees.formats.forms import described_forms

            print(described_forms())
            raise SystemExit(0)
        setattr(namespace, self.dest, values)


def add_form(parser: CommandParser, help: str) -> None:
    """Add the option ``--form``, the form of trees in texts."""
    parser.add_argument("--form", action=_FormOption, metavar="FORM", help=f"{help}; --form help lists all forms")


def add_output(parser: CommandParser, metavar: str, help: str, *, required: bool = True) -> None:
    """Add the options ``--output`` and ``--overwrite``."""
    parser.add_argument("-o", "--output", type=str, required=required, metavar=metavar, help=help)
    parser.add_argument("--overwrite", action="store_true", help="start over and replace what exists there")


def add_overrides(parser: CommandParser, example: str) -> None:
    """Add the option ``--set``."""
    parser.add_argument(
        "--set", action="append", default=[], type=str, metavar="FIELD=VALUE",
        help=f"override a field, such as {example}; may be repeated",
    )  # fmt: skip


def given_folder(name: str, folder: str | None) -> Path | None:
    """Return the folder that an option names, or None.

    Raises:
        UsageError: there is no such folder.
    """
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"{name} {folder}: there is no such folder")
    return None if folder is None else Path(folder)


def overrides_as_options(words: Sequence[str], parser: CommandParser) -> list[str]:
    """Return the words with ``--set`` before each ``FIELD=VALUE`` that stands before ``--``.

    Values of options and names of existing files or folders are no overrides.
    """
    marked: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for before, word in zip(["", *words], words[:end], strict=False):
        is_place = os.access(word, os.F_OK)  # Path.exists raises for a very long text
        is_field = _OVERRIDE.match(word) and not parser.takes_value(before) and not is_place
        marked.extend(["--set", word] if is_field else [word])
    return [*marked, *words[end:]]
