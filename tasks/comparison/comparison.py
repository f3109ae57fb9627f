"""A comparison at equal cost: every network trains for the same seconds of computing, after the same trials.

``studies/learned.yaml`` says with what. A part is a task. A row is a network; its records are
``learned-PART/ROW.jsonl``. Those of all trials are ``learned-PART/trials.jsonl``. ``treemem queue`` runs row after row.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from treemem.errors import CellError, RecipeError, near_names
from treemem.networks import NETWORKS, NetworkConfig, every_network
from treemem.plain_yaml import load_yaml
from treemem.records import write_records
from treemem.runs.data_sets import DataSets, StudyPlaces, hashes_at_hand
from treemem.runs.matched_width import matched_width
from treemem.runs.options import TrainingOptions
from treemem.runs.page_tables import Records, seed_of_record
from treemem.runs.recipe import Recipe, parse_recipe
from treemem.runs.run import StudyRun
from treemem.runs.study import is_complete, recorded_model, run_study
from treemem.runs.study_file import Study, StudyFolder
from treemem.runs.study_records import add_records, read_study
from treemem.runs.training_loop import DivergedError
from treemem.task import TASKS, Task
from treemem.tasks.comparison.beyond import divided, together
from treemem.tasks.induced_trees import found_trees, tree_scores
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

NAME = "comparison"
STUDY = "learned"
FOLDER = StudyFolder(NAME, Task, Path(__file__).parent, __package__ or "")  # type: ignore[type-abstract]
"""Of the study, whose parts name their own tasks."""
BEYOND = "beyond training"
"""The test examples of higher groups than any training example: deeper, longer, of more operations."""

_SENTENCES = 1000  # examples within and beyond training whose trees are scored
_SMALLEST = 4  # a hidden size at which numbers of heads and chunk sizes leave every multiple of 4 open
_TRIALS = "trials"
_OF_A_TRIAL = ("parameters", "epochs", "compute_seconds", "environment", "data")
_DATA = "data"
_SCORED = SPLITS[1:]


@dataclass(frozen=True)
class Trial:
    """An optimiser and a learning rate, and how good a short run with them was.

    Attributes:
        optimizer, rate: what was tried.
        accuracy: the best on validation; None: the loss was not finite.
    """

    optimizer: str
    rate: float
    accuracy: float | None = None


@dataclass(frozen=True)
class Part:
    """One task of the comparison.

    Attributes:
        name: of the part.
        task: name of the task.
        weights: the number that each network has within 10 %, the head's included.
        seeds: of training.
        optimizers: name of an optimiser to ``rates``, the learning rates to try, and further training options.
        trial: the training options of a trial.
        about: the question of the study, in a sentence.
        task_options, training: as in a recipe.
        data_set: the name of the data to train on, in the studies of the task.
        beyond: names of the data sets that are together the test beyond training. Empty: the test examples of higher
            groups than any training example.
        files: names of further data sets to score.
        forms: how sequence networks read trees; the first one counts in the summary. Empty: as the task says.
        options: name of a network to options of its rows, such as the published number of slots.
        wide: rows at their published size, each a ``network`` and its ``options``, beside those of equal weights.
        first: rows that run before the others.
        unscored: name of a row to the sets that would take it hours to score.
        own: names of registered networks that take part besides those of the library.
    """

    name: str
    task: str
    weights: int
    seeds: Sequence[int]
    optimizers: Mapping[str, Mapping[str, Any]]
    trial: Mapping[str, Any]
    about: str = ""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    data_set: str = STUDY
    beyond: Sequence[str] = ()
    files: Sequence[str] = ()
    forms: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wide: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first: Sequence[str] = ()
    unscored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The study and the part, ``learned-PART``, as the command and the folder of records have it."""
        return f"{STUDY}-{self.name}"

    @cached_property
    def networks(self) -> dict[str, NetworkConfig]:
        """The networks of equal weights by the name of their row, at a hidden size that does not matter."""
        networks = {}
        of_user = {name: NetworkConfig(name, {"hidden_size": _SMALLEST}) for name in self.own}
        for name, plain in {**every_network(_SMALLEST), **of_user}.items():
            network = plain.replace(**self.options.get(plain.network, {}))
            if self.forms and "form" in inspect.signature(network.constructor()).parameters:
                networks.update({f"{name}, {form}": network.replace(form=form) for form in self.forms})
            else:
                networks[name] = network
        return networks

    @cached_property
    def recipe(self) -> Recipe:
        """The part as a recipe, with each network at the size that matches ``weights``, or at its published size."""
        task = self.make_task()
        networks = {row: matched_width(task, network, self.weights) for row, network in self.networks.items()}
        networks |= {row: NetworkConfig(**fields) for row, fields in self.wide.items()}
        fields = {name: getattr(self, name) for name in ("task", "task_options", "training")}
        named = {row: dataclasses.asdict(network) for row, network in networks.items()}
        return parse_recipe({**fields, "networks": named, "seeds": list(self.seeds)})

    @property
    def order(self) -> list[str]:
        """All rows, in the order in which they run."""
        return list(dict.fromkeys([*self.first, *self.networks, *self.wide]))

    def make_task(self) -> Task:
        """Return the task with its options."""
        return TASKS.find(self.task)(**self.task_options)

    def rows_of(self, networks: Sequence[str]) -> list[str]:
        """Return the rows of networks, in every form, and the rows with such a name."""
        wanted = {name + suffix for name in networks for suffix in ("", *(f", {form}" for form in self.forms))}
        return [row for row in self.order if row in wanted]

    def data_sets(self, places: StudyPlaces) -> DataSets:
        """Return the data sets of the task."""
        return places.data_sets(Study(StudyFolder.find(self.task), self.title))

    def tests(self, sets: DataSets) -> tuple[Forest, Forest]:
        """Return the data to train on, and the test beyond training."""
        forest = sets[self.data_set]
        if self.beyond:
            return forest, Forest.concatenate([sets[name] for name in self.beyond])
        return divided(self.make_task(), forest)

    def options_of(self, optimizer: str, rate: float, seed: int, **changes: Any) -> TrainingOptions:
        """Return the options of a run."""
        further = {name: value for name, value in self.optimizers[optimizer].items() if name != "rates"}
        fields = {**further, **changes, "optimizer": optimizer, "learning_rate": rate, "seed": seed}
        return dataclasses.replace(self.recipe.training, **fields)

    def run_with(self, row: str, chosen: Trial, seed: int) -> StudyRun:
        """Return a run of a row for the whole budget."""
        name = f"{row}/{chosen.optimizer}-{chosen.rate:g}/seed-{seed}"
        return StudyRun(name, row, self.recipe.networks[row], self.options_of(chosen.optimizer, chosen.rate, seed))

    def trial_of(self, row: str, trial: Trial) -> StudyRun:
        """Return the short run of a trial."""
        training = self.options_of(trial.optimizer, trial.rate, self.seeds[0], **self.trial)
        return StudyRun(f"{row}/trial/{trial.optimizer}-{trial.rate:g}", row, self.recipe.networks[row], training)

    def next_trial(self, done: Sequence[Trial]) -> Trial | None:
        """Return what to try next; None if the trials of a row are done.

        First all rates of all optimisers. If the best of them is the lowest or the highest of its optimiser, one
        more beyond it.
        """
        known = {(trial.optimizer, trial.rate) for trial in done}
        planned = [Trial(name, rate) for name, options in self.optimizers.items() for rate in options["rates"]]
        for trial in planned:
            if (trial.optimizer, trial.rate) not in known:
                return trial
        best = best_trial(done)
        if best is None or len(done) > len(planned):
            return None
        rates = sorted(self.optimizers[best.optimizer]["rates"])
        step = rates[1] / rates[0]
        if best.rate == rates[0]:
            return Trial(best.optimizer, _rounded(best.rate / step))
        return Trial(best.optimizer, _rounded(best.rate * step)) if best.rate == rates[-1] else None

    def file_of(self, results: Path, row: str) -> Path:
        """Return the file of a row's records."""
        return results / self.title / f"{self.stem_of(row)}.jsonl"

    def trees_file_of(self, results: Path, row: str) -> Path:
        """Return the file of a row's induced trees."""
        return results / self.title / f"{self.stem_of(row)}-trees.jsonl"

    @staticmethod
    def stem_of(row: str) -> str:
        """Return the name of the file of a row's records, without its end."""
        return re.sub("[^a-z0-9+]+", "-", row.lower())

    def recorded_trials(self, results: Path, row: str) -> list[Trial]:
        """Return the recorded trials of a row."""
        return self.trials_of(read_study(results / self.title / f"{_TRIALS}.jsonl"), row)

    @staticmethod
    def trials_of(recorded: Records, row: str) -> list[Trial]:
        """Return the trials of a row among records."""
        return [
            Trial(record["optimizer"], record["learning_rate"], record["accuracy"])
            for record in recorded
            if record["row"] == row
        ]

    def records(self, results: Path, row: str) -> Records:
        """Return the records of a row's runs with the chosen rate, in the order of the seeds."""
        by_seed = {seed_of_record(record): record for record in read_study(self.file_of(results, row))}
        return [by_seed[seed] for seed in self.seeds if seed in by_seed]

    def is_done(self, row: str, places: StudyPlaces, hash_of: Callable[[str], str | None]) -> bool:
        """Return whether a row's runs and induced trees are recorded; of a row that cannot be trained, its trials.

        Args:
            row: of the comparison.
            places: as in :func:`run_row`.
            hash_of: returns the hash of the data, by name, that the records must be of; None: any.
        """
        trials, done = self.recorded_trials(places.results, row), self.records(places.results, row)
        if self.next_trial(trials) is not None:
            return False
        best = best_trial(trials)
        if best is None:
            return True
        if len(done) < len(self.seeds):
            return False
        sets, task = self.data_sets(places), self.make_task()
        parts = [*_SCORED, *self.scored(row, [name for name in self.files if sets.has(name)])]
        planned = [self.run_with(row, best, seed) for seed in self.seeds]
        if not all(is_complete(record, run, task, parts, hash_of) for record, run in zip(done, planned, strict=True)):
            return False
        return not self.without_trees(row, done, places)

    def without_trees(self, row: str, done: Records, places: StudyPlaces) -> Records:
        """Return the records of the runs of a row whose induced trees are not scored, and could be.

        A network that reads trees in several forms has no trees to compare: its tokens are not their leaves. A run
        that another machine made may be recorded without its folder.
        """
        induces = getattr(self.recipe.networks[row].constructor(), "can_induce_trees", False)
        if self.forms or not induces or not self.scores_beyond(row):
            return []
        trees = read_study(self.trees_file_of(places.results, row))
        scored = {weights for record in trees for weights in record["weights"].values()}
        folder = self.folder(places.runs)
        return [record for record in done if record["weights"] not in scored and (folder / record["run"]).exists()]

    def folder(self, runs: Path) -> Path:
        """Return the folder of the runs of the part within that for all runs."""
        return runs / NAME / self.title

    def scored(self, row: str, further: Sequence[str]) -> list[str]:
        """Return the names of the sets to score of a row: beyond training, and further ones."""
        return [name for name in (BEYOND, *further) if name not in self.unscored.get(row, ())]

    def scores_beyond(self, row: str) -> bool:
        """Return whether a row is scored beyond training."""
        return BEYOND not in self.unscored.get(row, ())


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the best accuracy, the first of equals; None if no loss stayed finite."""
    finite = [trial for trial in trials if trial.accuracy is not None]
    return max(finite, key=lambda trial: trial.accuracy or 0.0, default=None)


def _rounded(rate: float) -> float:
    return float(f"{rate:.6g}")


def comparison_parts(networks: Sequence[str] = ()) -> dict[str, Part]:
    """Return the parts of the study by their names, with the networks of the user among ``networks``."""
    fields = load_yaml((FOLDER.path / "studies" / f"{STUDY}.yaml").read_text(encoding="utf-8"))
    parts: dict[str, dict[str, Any]] = fields.pop("parts")
    registered = [name for name in networks if name in NETWORKS.registered()]
    return {name: Part(**{"name": name, "own": registered, **fields, **part}) for name, part in parts.items()}


def chosen_parts(names: Sequence[str], networks: Sequence[str] = ()) -> list[Part]:
    """Return the parts that ``learned`` or ``learned-PART`` name, with the networks of the user among ``networks``.

    Raises:
        RecipeError: there is no such study or part.
    """
    parts = comparison_parts(networks).values()
    known = [STUDY, *(part.title for part in parts)]
    for name in names:
        if name not in known:
            near = near_names(name, known) or f"; there are {', '.join(known)}"
            raise RecipeError(f"{NAME} has no study {name!r}{near}")
    return [part for part in parts if {STUDY, part.title} & {*names}]


def run_row(part: Part, row: str, places: StudyPlaces) -> None:
    """Run what is not recorded of a row: its trials, then all seeds with what was best, and the trees that it induces.

    Args:
        part: the task.
        row: of the comparison.
        places: of its data, runs and results; ``comparison/learned-PART`` is made in the folder for runs.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; a data set needs a file or folder that is not given.
    """
    sets, results = part.data_sets(places), places.results
    within, beyond = part.tests(sets)
    further = {name: sets[name] for name in part.files if sets.has(name)}
    tests = {BEYOND: beyond, **further}
    scored = {name: tests[name] for name in part.scored(row, list(further))}
    while (trial := part.next_trial(part.recorded_trials(results, row))) is not None:
        _record_trial(part, row, trial, within, places)
    best = best_trial(part.recorded_trials(results, row))
    if best is None:
        return
    file = part.file_of(results, row)
    for seed in part.seeds:
        run_study(
            part.make_task(),
            [part.run_with(row, best, seed)],
            {_DATA: within},
            folder=part.folder(places.runs),
            results=file,
            files=scored,
            splits=_SCORED,
        )
        _record_trees(part, row, within, beyond, places)


def hashes_of(part: Part, places: StudyPlaces) -> Callable[[str], str | None]:
    """Return a function that gives the hash of the data of a part, by the name that its records have.

    Args:
        part, places: as in :func:`run_row`.
    """

    def find(name: str) -> Forest | None:
        sets = part.data_sets(places)
        if name not in (_DATA, BEYOND):
            return sets.at_hand(name)
        if any(sets.at_hand(needed) is None for needed in (part.data_set, *part.beyond)):
            return None
        return dict(zip((_DATA, BEYOND), part.tests(sets), strict=True))[name]

    return hashes_at_hand(part.make_task(), find)


def _record_trial(part: Part, row: str, trial: Trial, within: Forest, places: StudyPlaces) -> None:
    """Train and record a trial. Only its accuracy on validation is kept."""
    run, folder = part.trial_of(row, trial), part.folder(places.runs)
    file = folder / f"{_TRIALS} {part.stem_of(row)}.jsonl"
    tried: dict[str, Any] = {"row": row, "optimizer": trial.optimizer, "learning_rate": trial.rate}
    fields: dict[str, Any] = {}
    try:
        (done,) = run_study(
            part.make_task(), [run], {_DATA: within}, folder=folder, results=file, splits=["validation"]
        )
        accuracy = done["scores"]["validation"]["accuracy"][-1]
        fields = {name: done[name] for name in _OF_A_TRIAL}
    except (DivergedError, CellError):
        accuracy = None
    place = places.results / part.title / f"{_TRIALS}.jsonl"
    add_records(place, [{**dict.fromkeys(_OF_A_TRIAL), **tried, **fields, "accuracy": accuracy}], by=[*tried])


def _record_trees(part: Part, row: str, within: Forest, beyond: Forest, places: StudyPlaces) -> None:
    """Score the trees of the runs of a row against gold trees, and those that are there together with each other."""
    done, file = part.records(places.results, row), part.trees_file_of(places.results, row)
    if not part.without_trees(row, done, places):
        return
    task = part.make_task()
    inside = task.examples(within)
    most = inside.group[inside.part("train")].max()
    per_example = len(within) // len(inside)
    tested = within[np.repeat(inside.split == SPLITS.index("test"), per_example)]
    some = together([tested[: _SENTENCES * per_example], beyond[: _SENTENCES * per_example]])
    all_tested = {**some.tree_data, "split": np.full(len(some), "test")}  # sets beyond training have no split
    examples = task.examples(some.with_data(node_data=some.node_data, tree_data=all_tested))
    folder = part.folder(places.runs)
    by_seed = {f"seed {seed_of_record(record)}": record for record in done}
    there = {seed: record for seed, record in by_seed.items() if (folder / record["run"]).exists()}
    induced = {seed: found_trees(recorded_model(folder, record), examples) for seed, record in there.items()}
    groups = tree_scores(induced, examples, lambda group: np.where(group > most, BEYOND, "test"))
    weights = {seed: record["weights"] for seed, record in by_seed.items()}
    for earlier in read_study(file):
        kept = {seed for seed, recorded in earlier["weights"].items() if weights.get(seed) == recorded}
        for group, known in zip(groups, earlier["groups"], strict=True):
            for average in ("corpus", "sentence"):
                scores = {name: f1 for name, f1 in known[average]["f1"].items() if name in kept}
                group[average]["f1"] = {**scores, **group[average]["f1"]}
    scored = {name: weights[name] for name in groups[0]["corpus"]["f1"]}
    write_records(file, [{"network": row, "weights": scored, "groups": groups}])
