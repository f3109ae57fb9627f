"""A comparison: every network of the library on a task, at about the same number of weights.

``treemem reproduce comparison STUDY`` runs the parts of a study file; ``STUDY-PART`` runs one of them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from treemem.errors import CellError, RecipeError, TreememError, near_names
from treemem.networks import NETWORKS, NetworkConfig, every_network
from treemem.plain_yaml import load_yaml
from treemem.records import locked, write_records, writing
from treemem.runs.matched_width import matched_width
from treemem.runs.page_tables import Records, scores_on, seed_of_record
from treemem.runs.recipe import Recipe, parse_recipe
from treemem.runs.study import StudyRun, read_study, recorded_model, run_study
from treemem.runs.study_file import StudyFolder, tell_nothing_trained
from treemem.runs.trainer import DivergedError
from treemem.task import TASKS, Task
from treemem.tasks.comparison.speed import speed_records
from treemem.tasks.induced_trees import found_trees, tree_scores
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

NAME = "comparison"
FOLDER = StudyFolder(NAME, Task, Path(__file__).parent, __package__ or "")  # type: ignore[type-abstract]
"""Of the studies, whose parts name their own tasks."""
BEYOND = "beyond training"
"""The test examples of higher groups than any training example: deeper, longer, of more operations."""

_SENTENCES = 1000  # examples within and beyond training whose trees are scored
_SMALLEST = 4  # a hidden size at which numbers of heads and chunk sizes leave every multiple of 4 open


@dataclass(frozen=True)
class Part:
    """One task of a comparison.

    Attributes:
        study, name: the file, and the part in it.
        task: name of the task.
        weights: the number that each network has within 10 %, the head's included.
        rates: learning rates. The first seed is trained with each; the best validation accuracy chooses one for the
            network.
        seeds: of training.
        about: the question of the study, in a sentence.
        data, task_options, training: as in a recipe. ``{data}`` in an option stands for the user's data folder.
        without: networks that are left out.
        own: names of registered networks that take part besides those of the library.
        forms: how sequence networks read trees; the last one counts in the summary. Empty: as the task says.
    """

    study: str
    name: str
    task: str
    weights: int
    rates: Sequence[float]
    seeds: Sequence[int]
    data: Mapping[str, Any]
    about: str = ""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    without: Sequence[str] = ()
    own: Sequence[str] = ()
    forms: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The study and the part, ``STUDY-PART``, as the command and the files of records have it."""
        return f"{self.study}-{self.name}"

    @property
    def rows(self) -> dict[str, NetworkConfig]:
        """The networks by the name of their row, at a hidden size that does not matter."""
        found = {}
        own = {name: NetworkConfig(name, {"hidden_size": _SMALLEST}) for name in self.own}
        for name, network in {**every_network(_SMALLEST), **own}.items():
            reads_tokens = "form" in inspect.signature(network.constructor()).parameters
            if name in self.without:
                continue
            if reads_tokens and self.forms:
                found.update({f"{name}, {form}": network.replace(form=form) for form in self.forms})
            else:
                found[name] = network
        return found

    def rows_of(self, networks: Sequence[str]) -> list[str]:
        """Return the rows of networks, in every form."""
        wanted = {name + suffix for name in networks for suffix in ("", *(f", {form}" for form in self.forms))}
        return [row for row in self.rows if row in wanted]

    @cached_property
    def recipe(self) -> Recipe:
        """The part as a recipe, with each network at the hidden size that matches ``weights``."""
        task = TASKS.find(self.task)(**self.task_options)
        matched = {row: matched_width(task, network, self.weights) for row, network in self.rows.items()}
        fields = {name: getattr(self, name) for name in ("task", "task_options", "data", "training")}
        networks = {row: dataclasses.asdict(network) for row, network in matched.items()}
        return parse_recipe({**fields, "networks": networks, "seeds": list(self.seeds)})

    def run(self, row: str, rate: float, seed: int) -> StudyRun:
        """Return a run of a row."""
        training = dataclasses.replace(self.recipe.training, learning_rate=rate, seed=seed)
        return StudyRun(f"{row}/rate-{rate:g}/seed-{seed}", row, self.recipe.networks[row], training)

    def trials(self, row: str) -> list[StudyRun]:
        """Return the runs that choose the learning rate of a row."""
        return [self.run(row, rate, self.seeds[0]) for rate in self.rates]

    def chosen_rates(self, records: Records) -> dict[str, float]:
        """Return the rate with the best validation accuracy for each row whose trials are all recorded."""
        found: dict[str, dict[float, float]] = {}
        for record in records:
            if seed_of_record(record) == self.seeds[0]:
                accuracy = scores_on(record, "validation")[-1].accuracy
                found.setdefault(record["row"], {})[record["training"]["learning_rate"]] = accuracy
        complete = {row: known for row, known in found.items() if {*self.rates} <= known.keys()}
        return {row: max(self.rates, key=known.__getitem__) for row, known in complete.items()}

    def finished(self, records: Records) -> dict[str, Records]:
        """Return the runs at the chosen rate of each row that has all seeds and scores; other networks come last."""
        rates = self.chosen_rates(records)
        found: dict[str, Records] = {}
        for row in dict.fromkeys([*self.rows, *(record["row"] for record in records)]):
            own = {
                seed_of_record(record): record
                for record in records
                if record["row"] == row
                and record["training"]["learning_rate"] == rates.get(row)
                and {"validation", "test", BEYOND} <= record["scores"].keys()
            }
            if {*self.seeds} <= own.keys():
                found[row] = [own[seed] for seed in self.seeds]
        return found


def parts_of(study: str) -> list[Part]:
    """Return the parts of a study.

    Raises:
        RecipeError: there is no such study, or a part has an unknown field.
    """
    if study not in FOLDER.studies:
        known = FOLDER.studies
        raise RecipeError(f"{NAME} has no study {study!r}{near_names(study, known) or f'; there are {known}'}")
    fields = load_yaml((FOLDER.path / "studies" / f"{study}.yaml").read_text(encoding="utf-8"))
    parts: dict[str, dict[str, Any]] = fields.pop("parts")
    return [Part(**{"study": study, "name": name, **fields, **own}) for name, own in parts.items()]


def chosen_parts(names: Sequence[str], networks: Sequence[str] = ()) -> list[Part]:
    """Return the parts of studies ``STUDY``, and single parts ``STUDY-PART``, with these networks among others.

    Args:
        names: of studies and parts.
        networks: names of rows, or of registered networks, which are made with a ``hidden_size``.

    Raises:
        RecipeError: there is no such study, part or network.
    """
    every = {part.title: part for study in FOLDER.studies for part in parts_of(study)}
    unknown = [name for name in names if name not in every and name not in FOLDER.studies]
    if unknown:
        known = [*FOLDER.studies, *every]
        near = near_names(unknown[0], known) or f"; there are {', '.join(known)}"
        raise RecipeError(f"{NAME} has no study {unknown[0]!r}{near}")
    own = [name for name in networks if name not in every_network(_SMALLEST)]
    for name in own:
        NETWORKS.find(name)
    chosen = [part for name in names for part in ([every[name]] if name in every else parts_of(name))]
    return [
        dataclasses.replace(part, own=own, without=[name for name in part.without if name not in networks])
        for part in chosen
    ]


def run_part(
    part: Part,
    *,
    runs: Path,
    results: Path,
    data: Path | None = None,
    processes: int = 1,
    networks: Sequence[str] = (),
) -> None:
    """Run everything of a part that is not recorded yet: speeds, for each row the trials and then all seeds, and trees.

    Args:
        part: what to run.
        runs: folder for runs; ``comparison/STUDY-PART`` is made in it.
        results: folder of the records, ``STUDY-PART.jsonl``, ``STUDY-PART-speed.jsonl`` and ``STUDY-PART-trees.jsonl``.
        data: the user's data folder.
        processes: runs at a time.
        networks: names of those to run; none: all.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; the part needs a data folder.
        TreememError: an error of a run, after all other rows are done.
    """
    folder, file = runs / NAME / part.title, results / f"{part.title}.jsonl"
    task = part.recipe.make_task()
    within, beyond = divided(task, task.make_data(_options_of(part, data)).forest)
    rows = part.rows_of(networks) if networks else list(part.rows)
    speeds = results / f"{part.title}-speed.jsonl"
    with writing(results):
        results.mkdir(parents=True, exist_ok=True)
    with locked(speeds.with_suffix("")):  # one measures at a time, and keeps the rows of another
        known = {record["row"] for record in read_study(speeds)}
        if not known.issuperset(rows):  # all anew, because speeds of one command can be compared
            recorded = {record["row"]: NetworkConfig(**record["network"]) for record in read_study(file)}
            every = {**recorded, **part.recipe.networks}
            measuring = {row: network for row, network in every.items() if row in known.union(rows)}
            write_records(speeds, speed_records(task, measuring, within, part.recipe.training, folder / "speed"))
    run = partial(run_study, task, forests={"data": within}, folder=folder, results=file, processes=processes)
    failed: list[TreememError] = []
    before = read_study(file)
    for row in rows:
        try:
            rate = part.chosen_rates(run(part.trials(row), splits=["validation"]))[row]
            chosen = [part.run(row, rate, seed) for seed in part.seeds]
            done = run(chosen, splits=["validation", "test"], files={BEYOND: beyond})
        except (DivergedError, CellError) as error:
            failed.append(error)
            continue
        measure_trees(part, row, done, folder, results / f"{part.title}-trees.jsonl", within, beyond)
    if failed:
        raise failed[0]
    if read_study(file) == before:
        tell_nothing_trained(file, len(before))


def together(forests: Sequence[Forest]) -> Forest:
    """Return the trees of several forests, with the data that all of them have."""
    shared = [name for name in forests[0].tree_data if all(name in each.tree_data for each in forests)]
    return Forest.concatenate(
        [
            each.with_data(node_data=each.node_data, tree_data={name: each.tree_data[name] for name in shared})
            for each in forests
        ]
    )


def measure_trees(
    part: Part, row: str, done: Records, folder: Path, results: Path, within: Forest, beyond: Forest
) -> None:
    """Record how the trees of a row's runs agree with gold trees and with each other.

    Nothing is recorded if the network induces no trees, or reads trees in several forms, whose tokens are not their
    leaves; if that is recorded already; or if a run's folder is gone.

    Args:
        part, row: what ran.
        done: the records of its runs.
        folder: of the runs.
        results: the file of records.
        within, beyond: the data; see :func:`divided`.
    """
    gone = not all((folder / record["run"]).exists() for record in done)
    if gone or not lacks_trees(part, row, done, results):
        return
    weights = {f"seed {seed_of_record(record)}": record["weights"] for record in done}
    task = part.recipe.make_task()
    inside = task.examples(within)
    most = inside.group[inside.part("train")].max()
    per_example = len(within) // len(inside)
    tested = within[np.repeat(inside.split == SPLITS.index("test"), per_example)]
    some = together([tested[: _SENTENCES * per_example], beyond[: _SENTENCES * per_example]])
    examples = task.examples(some)
    found = {f"seed {seed_of_record(each)}": found_trees(recorded_model(folder, each), examples) for each in done}
    groups = tree_scores(found, examples, lambda group: np.where(group > most, BEYOND, "test"))
    with locked(results.with_suffix("")):
        others = [each for each in read_study(results) if each["network"] != row]
        write_records(results, [*others, {"network": row, "weights": weights, "groups": groups}])


def lacks_trees(part: Part, row: str, done: Records, results: Path) -> bool:
    """Return whether :func:`measure_trees` has something to record of a row, if the folders of its runs are there."""
    if part.forms or not getattr(part.recipe.networks[row].constructor(), "can_induce_trees", False):
        return False
    weights = {f"seed {seed_of_record(record)}": record["weights"] for record in done}
    return not any(each["network"] == row and each["weights"] == weights for each in read_study(results))


def _options_of(part: Part, data: Path | None) -> Any:
    """Return the options of the part's data with the user's folder."""
    options = part.recipe.data
    if "{data}" not in str(options):
        return options
    if data is None:
        raise RecipeError(f"the part {part.title} needs --data, the folder of the published files")
    named = {name: value for name, value in vars(options).items() if isinstance(value, str)}
    return dataclasses.replace(options, **{name: value.format(data=data) for name, value in named.items()})


def divided(task: Task, forest: Forest) -> tuple[Forest, Forest]:
    """Return data without, and with only, the test examples of higher groups than any training example.

    If that leaves no test example, every second validation example becomes one.

    Raises:
        RecipeError: there is no test example of a higher group.
    """
    examples = task.examples(forest)
    train, validation, test = (examples.part(name) for name in SPLITS)
    most = examples.group[train].max()
    is_beyond = np.zeros(len(examples), bool)
    is_beyond[test] = examples.group[test] > most
    if not is_beyond.any():
        raise RecipeError(f"a comparison needs test examples beyond the {task.group} {most} of training")
    split = np.array(SPLITS)[examples.split]
    if is_beyond[test].all():
        split[validation[1::2]] = "test"
    per_example = len(forest) // len(examples)
    forest = forest.with_data(tree_data={**forest.tree_data, "split": np.repeat(split, per_example)})
    of_tree = np.repeat(is_beyond, per_example)
    return forest[~of_tree], forest[of_tree]
