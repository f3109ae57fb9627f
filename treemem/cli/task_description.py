"""Descriptions of tasks as text."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import docstring_parser

from treemem.checkpoint import pretrained_names
from treemem.explore.tables import markdown_table
from treemem.runs.recipe import recipe_names
from treemem.task import TASKS, Task
from treemem.type_words import type_words

_WIDTH = 100
_MORE = "treemem tasks describe TASK: its networks, options, fields of files and published figures."
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def task_list() -> str:
    """Return a few lines about every task, and about every other task that has a command of its own."""
    listed = ["\n".join(_listed(name)) for name in TASKS.names()]
    return "\n\n".join([*listed, *_with_own_commands(), _MORE])


def _with_own_commands() -> Iterator[str]:
    """Yield what modules ``treemem.tasks`` with a command do, and the comparison, which has studies only."""
    from treemem import tasks
    from treemem.tasks import comparison

    yield _filled(f"comparison: {_plain(comparison.__doc__ or '')}", "", "  ") + "\n  treemem reproduce comparison"
    root = Path(tasks.__file__).parent
    for path in sorted(root.rglob("__main__.py")):
        parts = path.parent.relative_to(root).parts
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name, module = "/".join(parts), ".".join(parts)
        yield _filled(f"{name}: {_plain(about)}", "", "  ") + f"\n  python -m treemem.tasks.{module} --help"


def describe_task(name: str) -> str:
    """Return the description of a task: options, data, networks, recipes, published figures.

    Raises:
        RecipeError: there is no task of that name.
    """
    task = TASKS.find(name)
    described = docstring_parser.parse(inspect.getdoc(task) or "")
    about = [text for text in (described.short_description, described.long_description) if text]
    parts = [
        f"{name}, version {task.version}",
        "\n\n".join(_paragraph(part) for text in about for part in text.split("\n\n")),
        _section("recipes", _recipes(name)),
        _section("trained models", [f"treemem evaluate {model}" for model in _packaged(name)]),
        _section("networks", [f"{label}: {_shown_network(config)}" for label, config in task.networks.items()]),
        _section("options of the task (task_options.NAME=VALUE)", _options(task)),
        _section("options of its data (data.NAME=VALUE)", _options(task.data_options)),
        _section("fields of its records, to read", _record_fields(task)),
        _section("a line of text, as written", ["<TAB>".join(task.text_columns)] if task.text_columns else []),
        _section(f"published figures{', in %' * task.monitor.percent}", _published(task) if task.published else []),
    ]
    return "\n\n".join(part for part in parts if part)


def _packaged(task: str) -> list[str]:
    return [name for name in pretrained_names() if name.partition("/")[0] == task]


def _listed(name: str) -> Iterator[str]:
    task = TASKS.find(name)
    described = docstring_parser.parse(inspect.getdoc(task) or "")
    yield _filled(f"{name}: {_plain(described.short_description or '')}", "", "  ")
    named = ("recipes", _recipes(name)), ("trained models", _packaged(name))
    for what, names in named:
        if names:
            yield _filled(f"{what}: {'; '.join(names)}", "  ", "    ")


def _recipes(task: str) -> list[str]:
    return [name for name in recipe_names() if name.partition("/")[0] == task]


def _shown_network(config: Any) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in config.options.items())
    return f"{config.network}({options})"


def _options(owner: Callable[..., Any]) -> list[str]:
    """Return a line for each option of a dataclass: its type, default and meaning."""
    meanings: dict[str, str] = {}
    for part_of in reversed(inspect.getmro(owner)):  # type: ignore[arg-type]
        for param in docstring_parser.parse((part_of.__doc__ and inspect.cleandoc(part_of.__doc__)) or "").params:
            for name in param.arg_name.split(","):
                meanings[name.strip()] = _plain(param.description or "")
    lines = []
    types = get_type_hints(owner)
    for part in dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ():
        if not part.repr:
            continue
        default = part.default if part.default is not dataclasses.MISSING else None
        if part.default_factory is not dataclasses.MISSING:
            default = part.default_factory()
        line = f"{part.name} ({type_words(types[part.name])}, default {json.dumps(default)})"
        lines.append(f"{line}: {meanings[part.name]}" if meanings.get(part.name) else line)
    return lines


def _record_fields(task: type[Task]) -> list[str]:
    split = {"split": "train, validation or test; may be left out"} if task.record_fields else {}
    return [f"{name}: {meaning}" for name, meaning in {**task.record_fields, **split}.items()]


def _published(task: type[Task]) -> list[str]:
    """Return a table with a row for each network and a column for each split and metric, and its sources."""
    columns = list(dict.fromkeys((figure.split, figure.metric) for figure in task.published))
    figures = {(figure.network, figure.split, figure.metric): figure for figure in task.published}
    rows = [["network", *(f"{split}: {metric}" for split, metric in columns)]]
    for network in dict.fromkeys(figure.network for figure in task.published):
        cells = [figures.get((network, *column)) for column in columns]
        rows.append(
            [network, *("" if cell is None else task.monitor.shown(cell.value, cell.deviation) for cell in cells)]
        )
    sources = dict.fromkeys(figure.source for figure in task.published)
    return [*markdown_table(rows).splitlines(), f"from {'; '.join(sources)}"]


def _section(heading: str, lines: list[str]) -> str:
    if not lines:
        return ""
    shown = [line if line.startswith("|") else _filled(line, "  ", "      ") for line in lines]
    return "\n".join([f"{heading}:", *shown])


def _paragraph(text: str) -> str:
    return _filled(_plain(text))


def _filled(text: str, first: str = "", later: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Return the text of a docstring without markup, on one line."""
    return " ".join(_ROLE.sub(r"\1", text).replace("``", "").split())
