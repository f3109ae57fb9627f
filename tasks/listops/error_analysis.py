"""Where a network errs: accuracy by length, depth and number of arguments, also with sharper pointers and more slots.

``python -m treemem.tasks.listops.error_analysis MODEL`` measures any trained model of the task.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.checkpoint import load
from treemem.errors import RecipeError, TreememError, for_commands
from treemem.explore.tables import markdown_table
from treemem.model import Model
from treemem.model_digest import weights_digest
from treemem.networks.parsers.ordered_memory.layer import OrderedMemory
from treemem.records import write_records
from treemem.runs.data_sets import DataSets
from treemem.runs.evaluate import evaluate
from treemem.runs.study import recorded_model
from treemem.runs.study_file import Study, StudyFolder
from treemem.runs.study_file_run import StudyResults
from treemem.runs.study_records import read_study
from treemem.tasks.listops.generation.evaluation import values_of
from treemem.tasks.listops.generation.generator import PUBLISHED_OPERATORS
from treemem.tasks.listops.task import ListOps, arguments_bin, length_bin, most_arguments, num_tokens
from treemem.trees.forest import Forest
from treemem.trees.formats.listops_arrays import TOKENS, expressions_of_forest, expressions_of_lines

SETS = ("200-300", "500-600", "900-1000", "10 arguments", "15 arguments")
"""Data sets of the studies: of different lengths, and of lists with more arguments than those of training."""
OF_ONE_LENGTH = ("depth 1-5", "depth 6-9", "depth 10-13", "depth 14-19")
"""Data sets of 200 to 300 tokens."""
_MOST_ARGUMENTS = 15
_LISTS = 200  # of each number of arguments
_BATCH = 64


def single_lists(seed: int = 2027) -> Forest:
    """Return random lists of digits, without lists in them: as many of each number of arguments, from 2 to 15."""
    generator = np.random.default_rng(seed)
    lines = [
        f"{generator.choice(PUBLISHED_OPERATORS)} {' '.join(map(str, generator.integers(10, size=count)))} ]"
        for count in range(2, _MOST_ARGUMENTS + 1)
        for _ in range(_LISTS)
    ]
    drawn = expressions_of_lines(lines)
    return drawn.forest("binary").with_data(tree_data={"label": values_of(drawn).astype(np.int8)})


def with_pointers(model: Model, sharpness: float, slots: int | None = None) -> Model:
    """Return a copy of a model whose Ordered Memory has its scores multiplied by ``sharpness``.

    With a larger factor the pointers are nearer to 0 and 1. The weights are otherwise those of the training.

    Args:
        model: of an Ordered Memory; of any network, if the other arguments are 1 and None.
        sharpness: the factor.
        slots: of the memory; None leaves them.

    Raises:
        RecipeError: the network has no pointers.
    """
    changed = copy.deepcopy(model)
    if sharpness == 1 and slots is None:
        return changed
    if not isinstance(changed.encoder, OrderedMemory):
        raise RecipeError(f"{model.network.network} has no pointers and slots; leave out sharpness and slots")
    if slots is not None:
        changed.encoder.slots, changed.encoder.evaluation_slots = slots, None
    for memory in (changed.encoder.forward_memory, changed.encoder.backward_memory):
        if memory is not None:
            with torch.no_grad():
                memory.score_map.weight.mul_(sharpness)
                memory.score_map.bias.mul_(sharpness)
    return changed


def error_groups(model: Model, sets: Mapping[str, Forest]) -> list[dict[str, Any]]:
    """Return how often a model is right on each data set and, over all of them, by length, depth and arguments.

    Returns:
        Records with ``way``, ``group``, ``examples`` and ``correct``. A way is ``"set"``, ``"length"``, ``"depth"``,
        ``"arguments"`` (the most of a list, in bins) or, for :func:`single_lists`, ``"arguments of a single list"``
        with the operator after it.
    """
    ways: dict[str, dict[Any, list[int]]] = {}

    def count(way: str, groups: NDArray[Any], correct: NDArray[np.bool_]) -> None:
        groups_of_way = ways.setdefault(way, {})
        for group in np.unique(groups):
            tally = groups_of_way.setdefault(group.item(), [0, 0])
            tally[0] += int((groups == group).sum())
            tally[1] += int(correct[groups == group].sum())

    for name, forest in sets.items():
        correct = _correct(model, forest)
        expressions = expressions_of_forest(forest)
        count("set", np.full(len(forest), name), correct)
        count("length", length_bin(num_tokens(forest)), correct)
        count("depth", expressions.depth(), correct)
        count("arguments", arguments_bin(most_arguments(expressions)), correct)
    lists = single_lists()
    drawn = expressions_of_forest(lists)
    operator = np.array(TOKENS)[drawn.token[drawn.begin[:-1]]]
    last = arguments_bin(most_arguments(drawn))
    correct = _correct(model, lists)
    for name in PUBLISHED_OPERATORS:
        count(f"arguments of a single list {name}", last[operator == name], correct[operator == name])
    return [
        {"way": way, "group": group, "examples": examples, "correct": correct}
        for way, groups in ways.items()
        for group, (examples, correct) in (groups.items() if way == "set" else sorted(groups.items()))
    ]


def _correct(model: Model, forest: Forest) -> NDArray[np.bool_]:
    evaluation = evaluate(model, forest, batch_size=_BATCH, progress=False)
    assert evaluation.correct is not None
    return evaluation.correct[np.argsort(evaluation.chosen)]


def error_record(
    name: str, model: Model, sets: Mapping[str, Forest], sharpness: float = 1.0, slots: int | None = None
) -> dict[str, Any]:
    """Return the record of a model with some sharpness and slots: its ``groups`` of :func:`error_groups`."""
    changed = with_pointers(model, sharpness, slots)
    return {
        "name": name,
        "sharpness": sharpness,
        "slots": getattr(changed.encoder, "slots", None),
        "weights": weights_digest(model),
        "groups": error_groups(changed, sets),
    }


def error_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, sharpness: float, slots: int
) -> Iterator[dict[str, Any]]:
    """Yield the records of all runs of a study; those of Ordered Memory also with sharper pointers and more slots."""
    known = {(record["name"], record["weights"]) for record in before}
    for record in done.records:
        model = None
        is_memory = record["network"]["network"] == "OrderedMemory"
        for name, factor, count in [(record["run"], 1.0, None), (f"{record['run']}, sharper", sharpness, slots)]:
            if (name, record["weights"]) in known or (factor != 1 and not is_memory):
                continue
            model = model or recorded_model(done.folder, record)
            yield error_record(
                name, model, {set_name: done.data[set_name] for set_name in (*SETS, *OF_ONE_LENGTH)}, factor, count
            )


def share(record: Mapping[str, Any], way: str, group: Any) -> float | None:
    """Return the share of correct answers of a group of a record; None without the group."""
    for entry in record["groups"]:
        if (entry["way"], entry["group"]) == (way, group):
            return float(entry["correct"] / entry["examples"])
    return None


def error_table(records: Sequence[Mapping[str, Any]], way: str, groups: Sequence[Any] | None = None) -> str:
    """Return a Markdown table of the accuracy of each record in percent, with a column for each group of a way."""
    shown = groups or list(
        dict.fromkeys(entry["group"] for r in records for entry in r["groups"] if entry["way"] == way)
    )
    lines = [["network", "slots", "sharpness", *map(str, shown)]]
    for record in records:
        shares = [share(record, way, group) for group in shown]
        about = ["", ""] if record["slots"] is None else [str(record["slots"]), f"{record['sharpness']:g}"]
        lines.append([record["name"], *about, *("" if value is None else f"{100 * value:.1f}" for value in shares)])
    return markdown_table(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a model and, if asked, record it. Return 2 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m treemem.tasks.listops.error_analysis", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="folder of a run or checkpoint")
    parser.add_argument("--name", help="of the model in the tables (its network)")
    parser.add_argument(
        "--sharpness", type=float, nargs="+", default=[1.0], help="factors of the scores of Ordered Memory (1)"
    )
    parser.add_argument("--slots", type=int, nargs="+", help="numbers of slots of Ordered Memory (its own)")
    parser.add_argument("--sets", nargs="+", default=[*SETS, *OF_ONE_LENGTH], help="data sets of the studies")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="where data sets are kept")
    parser.add_argument("--record", metavar="FILE", type=Path, help="add the records to this JSONL file")
    options = parser.parse_args(arguments)
    try:
        model = load(options.model)
        if not isinstance(model.task, ListOps):
            raise RecipeError(f"{options.model} is a model of {model.task.name}; give one of listops")
        folder = StudyFolder.find("listops")
        sets = DataSets(Study(folder, "error-analysis"), options.runs / "listops" / "data")
        forests = {name: sets[name] for name in options.sets}
        name = options.name or model.network.network
        settings = [(factor, slots) for slots in options.slots or [None] for factor in options.sharpness]
        records = [error_record(name, model, forests, *setting) for setting in settings]
        for way in dict.fromkeys(entry["way"] for entry in records[0]["groups"]):
            print(f"by {way}\n\n{error_table(records, way)}\n")
        if options.record is not None:
            keys = [(record["name"], record["sharpness"], record["slots"]) for record in records]
            others = [
                record
                for record in read_study(options.record)
                if (record["name"], record["sharpness"], record["slots"]) not in keys
            ]
            write_records(options.record, [*others, *records])
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
