"""``treemem tasks list`` and ``treemem tasks describe``."""

from __future__ import annotations

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("action", choices=["list", "describe"], help="list all tasks, or describe one")
    parser.add_argument("task", nargs="?", metavar="TASK", type=str, help="the task to describe")


def _run(options: Namespace) -> None:
    from treemem.cli.task_description import describe_task, task_list

    if (options.action == "describe") != (options.task is not None):
        raise UsageError("write treemem tasks list, or treemem tasks describe TASK")
    print(describe_task(options.task) if options.task else task_list())


COMMAND = Command(
    name="tasks",
    summary="List the tasks with their recipes and trained models, or describe one.",
    usage="list | describe TASK",
    description="The description has the data, networks, recipes, published figures and file formats of the task.",
    examples=("treemem tasks list", "treemem tasks describe listops"),
    add_arguments=_add_arguments,
    run=_run,
)
