"""``treemem merge``."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_shared, given_folder


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="FOLDER", type=str, help="folders of records, or of runs")
    parser.add_argument("-o", "--output", type=str, required=True, metavar="FOLDER", help="folder to add them to")
    add_shared(parser, "--format")


def _run(options: Namespace) -> None:
    from treemem.cli.train import print_results
    from treemem.runs.merging import holds_runs, merge_records, merge_runs
    from treemem.runs.network_folder import RECIPE, card_of, recorded_digest
    from treemem.runs.recipe import load_recipe

    output = Path(options.output)
    folders = [Path(given_folder("FOLDER", name) or name) for name in options.folders]
    if output.resolve() in [folder.resolve() for folder in folders]:
        raise UsageError(f"{output} is the output and needs not be named as a folder to merge; leave it out")
    are_runs = [holds_runs(folder) for folder in folders]
    if len({*are_runs}) > 1:
        other = folders[are_runs.index(not are_runs[0])]
        kinds = ("records of a study", "an output of treemem train")
        raise UsageError(f"{folders[0]} holds {kinds[are_runs[0]]} and {other} does not; merge one kind at a time")
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; name a folder")
    merged = merge_runs(folders, output) if are_runs[0] else merge_records(folders, output)
    if are_runs[0]:
        network = merged[0].place
        task = load_recipe(network / RECIPE).make_task()
        names = [part.place.name for part in merged]
        print_results(task, output, names, card_of(network), recorded_digest(network), options.format)
    for part in merged:
        print(f"{part.place}: {part.added} added, {part.equal} were there")


COMMAND = Command(
    name="merge",
    summary="Merge records of studies, or outputs of training, that jobs wrote into folders of their own.",
    usage="FOLDER ... -o FOLDER [options]",
    description=(
        "Equal records are kept once. Nothing is written if two records of a run differ, or if outputs were trained\n"
        "on other data or with other options. The folders stay as they are. Jobs that share a folder need no merge."
    ),
    examples=("treemem merge runs/lists -o runs/all-lists",),
    add_arguments=_add_arguments,
    run=_run,
    stopped="run the same command to continue",
)
