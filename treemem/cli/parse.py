"""``treemem parse``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_form, add_overrides

if TYPE_CHECKING:
    from treemem.task import Task
    from treemem.trees.tree import Tree

_DEEPEST = 40


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="TASK TEXT", type=str, help="task and texts; - reads standard input"
    )
    parser.add_argument("--task", type=str, metavar="TASK", help="the task, if all arguments are texts")
    add_form(parser, "no task: all arguments are texts in this form, and - reads a file of them")
    add_overrides(parser, "task_options.form=nary")


def _run(options: Namespace) -> None:
    if options.form is not None:
        _print_forms(options)
        return
    from treemem.runs.recipe import load_task_data

    name, texts = (options.words[0], options.words[1:]) if options.task is None else (options.task, options.words)
    if not texts:
        raise UsageError(f"no text to parse; write treemem parse {name} TEXT, or - for standard input")
    task, _ = load_task_data(name, options.set)
    for place, (line, text) in enumerate(_numbered(texts)):
        print("\n" * bool(place) + _shown(task, text, line), flush=True)


def _print_forms(options: Namespace) -> None:
    from treemem.trees.formats.text_forms import parse_text
    from treemem.trees.formats.tree_files import read_trees

    if options.task is not None or options.set:
        raise UsageError("--form reads trees without a task; leave --task and --set out")
    is_first = True
    if len(options.words) == 1 and os.path.isfile(name := options.words[0]):  # noqa: PTH113
        raise UsageError(f"{name} is a file; write treemem parse --form {options.form} - < {name}")
    for text in options.words:
        for tree in read_trees("-", options.form) if text == "-" else [parse_text(text, options.form)]:
            print("\n" * (not is_first) + _drawn(tree), flush=True)
            is_first = False


def _numbered(texts: Sequence[str]) -> Iterator[tuple[int | None, str]]:
    """Yield the texts, with line numbers for lines of standard input. Blank lines are skipped.

    Raises:
        ParseError: a line that is not UTF-8.
    """
    from treemem.records import open_source, text_lines

    for text in texts:
        if text != "-":
            yield None, text
            continue
        with open_source("-") as stream:
            for number, line, error in text_lines(stream):
                if error is not None:
                    raise error.at(number)
                if line.strip():
                    yield number, line


def _shown(task: Task, text: str, line: int | None) -> str:
    from treemem.errors import ParseError, VocabularyError
    from treemem.trees.forest import Forest

    try:
        tree = task.parse(text)
        examples = task.examples(Forest.from_trees([tree]))
        examples.check_vocabulary(task.vocabulary)
    except (ParseError, VocabularyError) as error:
        raise error if line is None else error.at(line) from error
    tokens = [" ".join(words) for words in examples.forest.tokens(task.token_form).strings()]
    return "\n".join([_drawn(tree), *(f"tokens: {words}" for words in tokens)])


def _drawn(tree: Tree) -> str:
    from treemem.trees.formats.outline import format_outline

    return f"{format_outline(tree, _DEEPEST)}\nbrackets: {tree}\nsize: {tree.size}, height: {tree.height}"


COMMAND = Command(
    name="parse",
    summary="Print the tree of a text: a drawing, its brackets, size, height, and the tokens for sequence networks.",
    usage="TASK TEXT ... | --task TASK TEXT ... | --form FORM TEXT ... [options]",
    description=(
        "The text - reads lines of standard input. Write -- before texts that begin with -. A tab separates the two\n"
        "formulas of logical_inference."
    ),
    examples=(
        'treemem parse equation_verification "sin(x)^2 + cos(x)^2 = 1"',
        'treemem parse equation_verification -- "-x=-1*x"',
        "treemem parse --form newick \"(A,(B,'C d')e);\"",
        'treemem parse --task listops "[MAX 2 9 [MIN 4 7 ] 0 ]" --set task_options.form=nary',
    ),
    add_arguments=_add_arguments,
    run=_run,
)
