"""``treemem tasks list`` and ``treemem tasks describe``."""

from __future__ import annotations

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser


def _no_arguments(parser: CommandParser) -> None:
    pass


def _add_task(parser: CommandParser) -> None:
    parser.add_argument("task", metavar="TASK", type=str, help="name of the task")


def _list(options: Namespace) -> None:
    from treemem.cli.task_description import task_list

    print(task_list())


def _describe(options: Namespace) -> None:
    from treemem.cli.task_description import describe_task

    print(describe_task(options.task))


LIST = Command(
    name="tasks list",
    summary="List the tasks, with their recipes and networks.",
    usage="",
    description="",
    examples=("treemem tasks list",),
    add_arguments=_no_arguments,
    run=_list,
)
DESCRIBE = Command(
    name="tasks describe",
    summary="Say what a task is: its data, networks, recipes, published figures, and what its files hold.",
    usage="TASK",
    description="",
    examples=("treemem tasks describe listops",),
    add_arguments=_add_task,
    run=_describe,
)
