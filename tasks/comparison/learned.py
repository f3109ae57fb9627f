"""A comparison at equal cost: every network trains for the same seconds of computing, after the same trials.

``learned.yaml`` says with what. A row is a network; its records are ``learned-PART/ROW.jsonl``. Those of all
trials are ``learned-PART/trials.jsonl``. ``treemem queue`` runs row after row.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from treemem.errors import CellError
from treemem.networks import NetworkConfig
from treemem.plain_yaml import load_yaml
from treemem.records import locked, write_records, writing
from treemem.runs.options import TrainingOptions
from treemem.runs.page_tables import Records, seed_of_record
from treemem.runs.recipe import Recipe
from treemem.runs.study import StudyRun, of_one_form, read_study, run_study
from treemem.runs.study_file import DataSets, Study, StudyFolder, tell_nothing_trained
from treemem.runs.trainer import DivergedError
from treemem.task import TASKS
from treemem.tasks.comparison.comparison import BEYOND, FOLDER, Part, divided, lacks_trees, measure_trees
from treemem.tasks.recorded_data import DataHashes
from treemem.trees.forest import Forest

STUDY = "learned"
_TRIALS = "trials"
_OF_A_TRIAL = ("parameters", "epochs", "compute_seconds", "environment", "data")
_DATA = "data"


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
class LearnedPart(Part):
    """One task of the comparison.

    Attributes:
        data_set: the name of the data to train on, in the studies of the task.
        beyond: names of the data sets that are together the test beyond training. Empty: the test examples of higher
            groups than any training example.
        files: names of further data sets to score.
        optimizers: name of an optimiser to ``rates``, the learning rates to try, and further training options.
        trial: the training options of a trial.
        options: name of a network to options of its rows, such as the published number of slots.
        wide: rows at their published size, each a ``network`` and its ``options``, beside those of equal weights.
        first: rows that run before the others.
        unscored: name of a row to the sets that would take it hours to score.
    """

    data_set: str = STUDY
    beyond: Sequence[str] = ()
    files: Sequence[str] = ()
    optimizers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wide: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first: Sequence[str] = ()
    unscored: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, NetworkConfig]:
        """The networks by the name of their row, with their options."""
        return {row: each.replace(**self.options.get(each.network, {})) for row, each in super().rows.items()}

    @cached_property
    def recipe(self) -> Recipe:
        """The part as a recipe, with each network at the size that matches ``weights``, or at its published size."""
        matched = super().recipe
        wide = {row: NetworkConfig(**fields) for row, fields in self.wide.items()}
        return dataclasses.replace(matched, networks={**matched.networks, **wide})

    @property
    def order(self) -> list[str]:
        """All rows, in the order in which they run."""
        return list(dict.fromkeys([*self.first, *self.recipe.networks]))

    def rows_of(self, networks: Sequence[str]) -> list[str]:
        """Return the rows of networks, in every form, and the rows with such a name."""
        wanted = {*networks, *super().rows_of(networks)}
        return [row for row in self.order if row in wanted]

    def options_of(self, optimizer: str, rate: float, seed: int, **changes: Any) -> TrainingOptions:
        """Return the options of a run."""
        own = {name: value for name, value in self.optimizers[optimizer].items() if name != "rates"}
        fields = {**own, **changes, "optimizer": optimizer, "learning_rate": rate, "seed": seed}
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
        known = {(each.optimizer, each.rate) for each in done}
        planned = [Trial(name, rate) for name, own in self.optimizers.items() for rate in own["rates"]]
        for trial in planned:
            if (trial.optimizer, trial.rate) not in known:
                return trial
        if len(done) > len(planned):
            return None
        best = best_trial(done)
        if best is None:
            return None
        rates = sorted(self.optimizers[best.optimizer]["rates"])
        step = rates[1] / rates[0]
        if best.rate == rates[0]:
            return Trial(best.optimizer, _rounded(best.rate / step))
        return Trial(best.optimizer, _rounded(best.rate * step)) if best.rate == rates[-1] else None

    def file_of(self, results: Path, row: str) -> Path:
        """Return the file of a row's records."""
        return results / self.title / f"{self.stem_of(row)}.jsonl"

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
            Trial(each["optimizer"], each["learning_rate"], each["accuracy"]) for each in recorded if each["row"] == row
        ]

    def records(self, results: Path, row: str) -> Records:
        """Return the records of a row's runs with the chosen rate, in the order of the seeds."""
        found = {seed_of_record(each): each for each in read_study(self.file_of(results, row))}
        return [found[seed] for seed in self.seeds if seed in found]

    def trees_file_of(self, results: Path, row: str) -> Path:
        """Return the file of a row's induced trees."""
        return results / self.title / f"{self.stem_of(row)}-trees.jsonl"

    def is_done(
        self, results: Path, row: str, hashes: DataHashes | None = None, files: Mapping[str, Path] | None = None
    ) -> bool:
        """Return whether a row's runs and induced trees are recorded; of a row that cannot be trained, its trials.

        Args:
            results: folder of the records.
            row: of the comparison.
            hashes: of the data that the records must be of; None: any.
            files: the user's files by name, whose data sets must be scored.
        """
        trials, done = self.recorded_trials(results, row), self.records(results, row)
        if self.next_trial(trials) is not None:
            return False
        best = best_trial(trials)
        if best is None:
            return True
        if len(done) < len(self.seeds):
            return False
        if hashes is not None:
            sets = DataSets(Study(StudyFolder.find(self.task), self.title), Path(), None, files)
            scored = self.scored(row, [name for name in self.files if sets.has(name)])
            planned = {seed: self.run_with(row, best, seed) for seed in self.seeds}
            if not all(hashes.are_recorded(each, planned[seed_of_record(each)], scored) for each in done):
                return False
        return not (self.scores_beyond(row) and lacks_trees(self, row, done, self.trees_file_of(results, row)))

    def scored(self, row: str, further: Sequence[str]) -> list[str]:
        """Return the names of the sets to score of a row: beyond training, and further ones."""
        return [name for name in (BEYOND, *further) if name not in self.unscored.get(row, ())]

    def scores_beyond(self, row: str) -> bool:
        """Return whether a row is scored beyond training."""
        return BEYOND not in self.unscored.get(row, ())


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the best accuracy, the first of equals; None if no loss stayed finite."""
    finite = [each for each in trials if each.accuracy is not None]
    return max(finite, key=lambda each: each.accuracy or 0.0, default=None)


def _rounded(rate: float) -> float:
    return float(f"{rate:.6g}")


def learned_parts() -> dict[str, LearnedPart]:
    """Return the parts of the study by their names."""
    fields = load_yaml(FOLDER.path.joinpath(f"{STUDY}.yaml").read_text(encoding="utf-8"))
    parts: dict[str, dict[str, Any]] = fields.pop("parts")
    return {
        name: LearnedPart(**{"study": STUDY, "name": name, "data": {}, "rates": (), **fields, **own})
        for name, own in parts.items()
    }


def chosen_learned_parts(names: Sequence[str]) -> list[LearnedPart]:
    """Return the parts that ``learned`` or ``learned-PART`` name; names of other studies have no effect."""
    return [part for part in learned_parts().values() if {STUDY, part.title} & {*names}]


def run_row(
    part: LearnedPart,
    row: str,
    *,
    runs: Path,
    results: Path,
    data: Path | None = None,
    files: Mapping[str, Path] | None = None,
) -> None:
    """Run what is not recorded of a row: its trials, then all seeds with what was best, and the trees that it induces.

    Args:
        part: the task.
        row: of the comparison.
        runs: folder for runs; ``comparison/learned-PART`` is made in it.
        results: folder of the records.
        data: the user's data folder.
        files: the user's files by name.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; a data set needs a file or folder that is not given.
    """
    folder = runs / FOLDER.name / part.title
    sets = DataSets(Study(StudyFolder.find(part.task), part.title), runs / part.task / _DATA, data, files)
    task = TASKS.find(part.task)(**part.task_options)
    within, beyond = _tests(part, sets)
    further = {name: sets[name] for name in part.files if sets.has(name)}
    tests = {BEYOND: beyond, **further}
    scored = {name: tests[name] for name in part.scored(row, list(further))}
    while (trial := part.next_trial(part.recorded_trials(results, row))) is not None:
        _record_trial(part, row, trial, within, folder, results)
    best = best_trial(part.recorded_trials(results, row))
    if best is None:
        return
    file = part.file_of(results, row)
    planned = [part.run_with(row, best, seed) for seed in part.seeds]
    before = part.records(results, row)
    done = run_study(
        task, planned, {_DATA: within}, folder=folder, results=file, files=scored, splits=["validation", "test"]
    )
    if part.scores_beyond(row):
        measure_trees(part, row, done, folder, part.trees_file_of(results, row), within, beyond)
    if done == before:
        tell_nothing_trained(file, len(done))


def hashes_of(
    part: LearnedPart, runs: Path, data: Path | None = None, files: Mapping[str, Path] | None = None
) -> DataHashes:
    """Return the hashes of the data of a part, by the names that its records have.

    Args:
        part: the task.
        runs: folder for runs.
        data: the user's data folder.
        files: the user's files by name.
    """

    def find(name: str) -> Forest | None:
        sets = DataSets(Study(StudyFolder.find(part.task), part.title), runs / part.task / _DATA, data, files)
        if name not in (_DATA, BEYOND):
            return sets.at_hand(name)
        if any(sets.at_hand(each) is None for each in (part.data_set, *part.beyond)):
            return None
        return dict(zip((_DATA, BEYOND), _tests(part, sets), strict=True))[name]

    return DataHashes(TASKS.find(part.task)(**part.task_options), find)


def _tests(part: LearnedPart, sets: DataSets) -> tuple[Forest, Forest]:
    """Return the data to train on, and the test beyond training."""
    forest = sets[part.data_set]
    if part.beyond:
        return forest, Forest.concatenate([sets[name] for name in part.beyond])
    return divided(TASKS.find(part.task)(**part.task_options), forest)


def _record_trial(part: LearnedPart, row: str, trial: Trial, within: Forest, folder: Path, results: Path) -> None:
    """Train and record a trial. Only its accuracy on validation is kept."""
    task = TASKS.find(part.task)(**part.task_options)
    run = part.trial_of(row, trial)
    file = folder / f"{_TRIALS} {part.file_of(results, row).stem}.jsonl"
    tried: dict[str, Any] = {"row": row, "optimizer": trial.optimizer, "learning_rate": trial.rate}
    fields: dict[str, Any] = {}
    try:
        (done,) = run_study(task, [run], {_DATA: within}, folder=folder, results=file, splits=["validation"])
        accuracy = done["scores"]["validation"]["accuracy"][-1]
        fields = {name: done[name] for name in _OF_A_TRIAL}
    except (DivergedError, CellError):
        accuracy = None
    place = results / part.title / f"{_TRIALS}.jsonl"
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.with_suffix("")):  # the lock of the file itself is for its writer
        known = [each for each in read_study(place) if any(each[name] != value for name, value in tried.items())]
        new = {**dict.fromkeys(_OF_A_TRIAL), **tried, **fields, "accuracy": accuracy}
        write_records(place, of_one_form([*known, new]))
