"""``treemem evaluate``."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from treemem.cli.command import (
    Command,
    CommandParser,
    UsageError,
    add_input_format,
    add_on_error,
    add_overrides,
    add_shared,
)
from treemem.errors import RecipeError

if TYPE_CHECKING:
    from treemem.data.examples import TaskData
    from treemem.metrics.calibration import Reliability
    from treemem.metrics.class_report import ClassReport
    from treemem.metrics.score import Score
    from treemem.model import Model
    from treemem.runs.evaluate import Evaluation
    from treemem.task import Task

_logger = logging.getLogger(__name__)
_SPLITS = ("train", "validation", "test", "all")


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "checkpoint")
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        type=str,
        help="file of labelled examples (the data of the run, or generated)",
    )
    add_overrides(parser, "data.size=200, of the generated data")
    parser.add_argument(
        "--split", choices=_SPLITS, metavar="SPLIT", help="train, validation, test or all (all for a file, else test)"
    )
    add_input_format(parser, "DATA")
    add_on_error(parser, "leave it out and list it in the file of --json")
    parser.add_argument("--reliability", action="store_true", help="print the accuracy by confidence")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="score the answers above this probability of the second class or of a label (the model's, or 0.5)",
    )
    parser.add_argument("--json", type=str, metavar="FILE", help="write the scores to this JSON file")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_shared(parser, "--device", "--batch-size", "--cuda-graphs")


def _run(options: Namespace) -> None:
    from treemem.checkpoint import load
    from treemem.explore import accuracy_table, overall_table
    from treemem.metrics.calibration import reliability
    from treemem.predict.file_prediction import check_labels
    from treemem.records import check_writable, write_text
    from treemem.runs.accelerator import find_device
    from treemem.runs.evaluate import evaluate
    from treemem.runs.recipe_run import network_folder_of

    of_data = [override for override in options.set if not override.startswith("task_options.")]
    if options.data is not None and of_data:
        raise UsageError(f"--set changes generated data; leave out {of_data[0]} or DATA")
    if options.data is None and options.on_error is not None:
        raise UsageError("--on-error is for the rows of DATA; name a file, or leave it out")
    split = options.split or ("all" if options.data is not None else "test")
    if options.json is not None:
        check_writable(options.json, overwrite=options.overwrite)
    model = load(options.checkpoint, device=find_device(options.device, "--device"))
    folder = network_folder_of(options.checkpoint)
    model.task, data = _task_and_data(model, folder, options)
    forest = data.forest
    if options.data is not None and options.on_error != "skip":
        check_labels(model, forest, options.data, options.format)
    evaluation = evaluate(
        model,
        forest,
        split=None if split == "all" else split,
        batch_size=options.batch_size,
        cuda_graphs=options.cuda_graphs,
        threshold=options.threshold,
        title=options.checkpoint,
    )
    name = _name_of(model) if folder is None else folder.name
    task = model.task
    table = accuracy_table(
        {name: evaluation.scores}, group=task.group, monitor=task.monitor, group_name=task.group_name
    )
    print(table)
    if options.data is not None and data.card:
        print(f"\n{data.card}", end="")
    score = evaluation.overall
    if score.precision is not None:
        print(f"\nprecision {score.precision:.2%}, recall {score.recall:.2%}, F1 {score.f1:.2%}")
    if evaluation.report is not None:
        _print_report(name, evaluation.scores, evaluation.report)
    elif "mae" in score.metrics:
        print(f"\nall:\n\n{overall_table({name: evaluation.scores})}")
    if not options.reliability and options.json is None:
        return
    from treemem.task import ClassificationTask

    calibration = None
    if isinstance(model.task, ClassificationTask):
        labels = model.task.examples(forest).targets["label"][evaluation.chosen]
        calibration = reliability(evaluation.predicted, labels)
    if options.reliability:
        if calibration is None:
            raise UsageError(f"--reliability needs a classification task, and {model.task.name} is not one")
        print(f"\n{calibration.as_markdown()}\nexpected calibration error {calibration.expected_calibration_error:.4f}")
    if options.json is not None:
        content = _as_json(model, name, evaluation, calibration, options, split, data.bad_rows)
        write_text(options.json, json.dumps(content, indent=1, ensure_ascii=False) + "\n", overwrite=options.overwrite)


def _print_report(name: str, scores: list[Score], report: ClassReport) -> None:
    """Print the metrics over all examples and those of each class or label, and the confusion matrix."""
    from treemem.explore import markdown_table, overall_table

    print(f"\nall, %:\n\n{overall_table({name: scores})}\n\n{markdown_table(report.rows())}")
    if confusion := report.confusion_rows():
        print(f"\n{markdown_table(confusion)}")
    if report.threshold is not None:
        kind = f"{report.names[1]!r} is" if report.confusion is not None else "a label is"
        print(f"\n{kind} predicted above the probability {report.threshold:.4g}")


def _name_of(model: Model) -> str:
    """Return the task's name for the network, or its class."""
    return next((name for name, row in model.task.networks.items() if row == model.network), model.network.network)


def _task_and_data(model: Model, folder: Path | None, options: Namespace) -> tuple[Task, TaskData]:
    """Return the task of the model with its options, and the examples of the file, of the run or generated ones.

    Raises:
        RecipeError: an option that scoring may not change, or a run without the recipe that says what its data are.
    """
    from treemem.data.examples import TaskData
    from treemem.runs.network_folder import RECIPE, read_recipe, recorded_digest
    from treemem.runs.recipe import load_recipe, load_task_data, parse_override

    given: dict[str, Any] = {"task_options": model.task.options}
    of_files = {f"task_options.{name}" for name in model.task.file_options}
    places = [override for override in options.set if parse_override(override)[0] in of_files]
    recipe = None
    if folder is not None and options.data is None:
        if not (folder / RECIPE).is_file():
            raise RecipeError(
                f"{folder} has no {RECIPE}, which says what data the model was trained on; `treemem train` writes it "
                "when the training begins. Run the same training command, or name a file of examples"
            )
        try:
            recipe = load_recipe(folder / RECIPE, places)
        except RecipeError as error:
            path = ((read_recipe(folder) or {}).get("task_options") or {}).get("path")
            if places or not isinstance(path, str) or Path(path).exists():
                raise
            remedy = "if the data have moved, name their place with --set task_options.path=PLACE"
            raise RecipeError(f"{error}; {remedy}") from error
    if recipe is not None and recipe.task == model.task.name:
        _logger.info("scoring the data of the run")
        given |= {
            "data": dataclasses.asdict(recipe.data),
            "task_options": {**recipe.task_options, **model.task.options},
        }
    elif options.data is None:
        _logger.info("no run of this model is here; the task generates the data")
    task, data_options = load_task_data(model.task.name, options.set, given)
    for option, value in model.task.options.items():
        if option not in task.scoring_options and task.options[option] != value:
            free = " and ".join(sorted(task.scoring_options)) or "none"
            raise RecipeError(
                f"task_options.{option} is {task.options[option]!r}, and the model was trained with {value!r}; "
                f"evaluation can change these options: {free}"
            )
    if options.data is not None:
        if options.on_error == "skip":
            return task, task.read_good_examples(options.data, model.vocabulary, format=options.format)
        return task, TaskData(task.read_examples(options.data, format=options.format), "")
    made = task.make_data(data_options)
    if folder is not None and recipe is not None and len(places) == len(options.set):
        digest = recorded_digest(folder)
        if digest and digest != task.examples(made.forest).digest():
            raise RecipeError(
                f"the data of {folder} are not those of its training any more: a file or what makes them has changed. "
                "Name the file as DATA to score it as it is now, or restore it"
            )
    return task, made


def _as_json(
    model: Model,
    name: str,
    evaluation: Evaluation,
    calibration: Reliability | None,
    options: Namespace,
    split: str,
    bad_rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    from treemem.metrics.score import score_row

    return {
        "checkpoint": options.checkpoint,
        "task": model.task.name,
        "task_version": model.task.version,
        "data": options.data,
        "split": split,
        "bad_rows": list(bad_rows),
        "scores": [score_row(name, score, model.task.group) for score in evaluation.scores],
        "classes": evaluation.report and evaluation.report.as_record(),
        "reliability": calibration
        and {
            "expected_calibration_error": calibration.expected_calibration_error,
            "bins": [dataclasses.asdict(interval) for interval in calibration.bins if interval.examples],
        },
    }


COMMAND = Command(
    name="evaluate",
    summary="Score a trained model on labelled examples, by group.",
    usage="CHECKPOINT [DATA] [FIELD=VALUE ...] [options]",
    description=(
        "Without DATA, the examples are those of the model's run. If there is no run, the task generates them.\n"
        "FIELD=VALUE changes these data."
    ),
    examples=(
        "treemem evaluate equation_verification equations.jsonl --split test --json scores.json",
        "treemem evaluate equation_verification --set data.size=200",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
