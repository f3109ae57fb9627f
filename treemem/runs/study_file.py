"""Studies as YAML files: networks x seeds x variants x data sets, and further data sets to score."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError, near_names
from treemem.networks import NetworkTable
from treemem.plain_yaml import load_yaml
from treemem.records import locked, replacing, write_records, writing
from treemem.runs.recipe import Recipe, load_recipe, load_task_data, parse_recipe, recipe_fields
from treemem.runs.study import StudyRun, of_one_form, read_study, run_study
from treemem.task import TASKS, Task, task_folder
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

_logger = logging.getLogger(__name__)

_SHARED = "shared.yaml"  # what the studies of a folder have in common
_VARIED = ("networks", "seeds", "training", "task_options", "network_options", "data")
_MADE = "made_from.json"


@dataclass(frozen=True)
class StudyFolder:
    """The studies of a task or of a part of one: ``studies/*.yaml`` and the template of their page.

    Attributes:
        name: ``TASK``, or ``TASK/PART`` for a part in a folder of its own.
        task: the class of the task.
        path: the folder with ``studies`` and ``results.md.j2``.
        package: of the functions that the files name.
    """

    name: str
    task: type[Task]
    path: Path
    package: str

    @classmethod
    def find(cls, name: str) -> StudyFolder:
        """Return the folder of ``TASK`` or ``TASK/PART``.

        Raises:
            RecipeError: there is no such task, or it has no studies.
        """
        task_name, _, part = name.partition("/")
        task, folder = TASKS.find(task_name), task_folder(task_name)
        package = task.__module__.rpartition(".")[0]
        if folder is None or not (folder / part / "studies").is_dir():
            raise RecipeError(f"there are no studies in the folder of {name}; name a task that has a folder 'studies'")
        return cls(name, task, folder / part, package)

    @property
    def studies(self) -> list[str]:
        """The names of the studies."""
        return [path.stem for path in sorted((self.path / "studies").glob("*.yaml")) if path.name != _SHARED]

    @property
    def page(self) -> str:
        """The name of the page of results without suffix, and of the folder of its records."""
        return str(self.shared.get("page", self.name))

    @property
    def shared(self) -> dict[str, Any]:
        """What ``studies/shared.yaml`` says: ``page``, and the ``data`` sets by name."""
        path = self.path / "studies" / _SHARED
        return _read(path, ("page", "data")) if path.exists() else {}

    def study(self, name: str) -> Study:
        """Return a study by its name.

        Raises:
            RecipeError: there is no such study, or its file is wrong.
        """
        if name not in self.studies:
            near = near_names(name, self.studies) or f"; there are {', '.join(self.studies)}"
            raise RecipeError(f"{self.name} has no study {name!r}{near}")
        path = self.path / "studies" / f"{name}.yaml"
        fields = _read(path, [each.name for each in dataclasses.fields(Study)][2:])
        return Study(self, name, **fields)

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function ``"module:name"``; the module is relative to the task's package, or a full name."""
        module, _, name = target.partition(":")
        full = module if module.startswith("treemem.") or not self.package else f"{self.package}.{module}"
        found: Callable[..., Any] = getattr(importlib.import_module(full), name)
        return found


@dataclass(frozen=True)
class Study:
    """A study as its file describes it.

    Attributes:
        folder, name: of the file.
        about: its question, in a sentence.
        recipe: gives networks, seeds, training, task options and data that are not given here.
        networks: names of the task's networks, or a mapping from names to options.
        seeds: of training.
        training, task_options, network_options: options of all runs that are not at their defaults.
        variants: name to changes: any of ``networks`` (a selection), ``seeds``, ``training``, ``task_options``,
            ``network_options`` and ``data``.
        data: the name of the data set to train on.
        splits: the splits to score. A study that makes choices scores no test split.
        files: further data sets to score. Data sets from a user's file are scored if the file is given.
        row: name of a row of a table; may contain ``{network}`` and ``{variant}``.
        run: name of a run; may contain ``{study}``, ``{row}`` and ``{seed}`` too.
        measurements: name of a file of records to the ``function`` (``"module:name"``) that makes them, with arguments.
            It takes a :class:`StudyResults` and the earlier records, and yields records. A record replaces the earlier
            one with the same first field.
    """

    folder: StudyFolder
    name: str
    about: str = ""
    recipe: str | None = None
    networks: Sequence[str] | Mapping[str, Mapping[str, Any]] = ()
    seeds: Sequence[int] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    network_options: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data: str = "data"
    splits: Sequence[str] = SPLITS
    files: Sequence[str] = ()
    row: str = ""
    run: str = "{study}/{row}/seed-{seed}"
    measurements: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def base(self) -> dict[str, Any]:
        """The fields of the recipe, or of the task alone, that variants change."""
        if self.recipe is not None:
            return recipe_fields(self._recipe)
        return {"task": self.folder.task.name}

    @property
    def _recipe(self) -> Recipe:
        return load_recipe(f"{self.folder.task.name}/{self.recipe}")

    @property
    def _networks(self) -> NetworkTable:
        """The networks with the options that the file gives them."""
        known = NetworkTable(self.folder.task.networks if self.recipe is None else self._recipe.networks)
        names = self.networks or (known if self.recipe is not None else ())
        options = self.networks if isinstance(self.networks, Mapping) else {}
        return NetworkTable({name: known[name].replace(**(options.get(name) or {})) for name in names})

    def runs(self, data_folder: Path | None = None) -> list[StudyRun]:
        """Return the runs, seed by seed, so that the first seed's table is complete first.

        Args:
            data_folder: of the user, for ``{data}`` in task options; without it, these options are left out.

        Raises:
            RecipeError: the file has a wrong field or value.
        """
        if not self.networks and self.recipe is None:
            return []
        found: list[tuple[int, StudyRun]] = []
        row = self.row or ("{network}, {variant}" if self.variants else "{network}")
        for variant, changes in (self.variants or {"": {}}).items():
            try:
                recipe = parse_recipe(self._varied(changes, data_folder))
            except RecipeError as error:
                raise RecipeError(f"the study {self.name}, variant {variant!r}: {error}") from error
            task = recipe.make_task()
            for place, seed in enumerate(recipe.seeds or (recipe.training.seed,)):
                for network, config in recipe.networks.items():
                    names = {"network": network, "variant": variant, "study": self.name, "seed": seed}
                    names["row"] = self._filled("row", row, names)
                    training = dataclasses.replace(recipe.training, seed=seed)
                    data = changes.get("data", self.data)
                    name = self._filled("run", self.run, names)
                    run = StudyRun(name, str(names["row"]), config, training, data, task)
                    found.append((place, run))
        return [run for _, run in sorted(found, key=lambda each: each[0])]

    def _filled(self, field_name: str, text: str, names: Mapping[str, Any]) -> str:
        try:
            return text.format(**names)
        except (KeyError, ValueError, IndexError) as error:
            known = ", ".join(f"{{{name}}}" for name in names)
            raise RecipeError(f"the study {self.name}: {field_name}: {text!r} may contain {known}") from error

    def _varied(self, changes: Mapping[str, Any], data_folder: Path | None) -> dict[str, Any]:
        """Return the fields of a variant's recipe."""
        _check_fields(changes, _VARIED, "a variant")
        content, known = copy.deepcopy(self.base), self._networks
        content.pop("data", None)
        options = {**self.network_options, **changes.get("network_options", {})}
        kept = {name: known[name].replace(**options) for name in changes.get("networks", known)}
        content["networks"] = {name: dataclasses.asdict(network) for name, network in kept.items()}
        for name in ("training", "task_options"):
            content[name] = {**content.get(name, {}), **getattr(self, name), **changes.get(name, {})}
        content["task_options"] = {
            name: _with_folder(value, data_folder)
            for name, value in content["task_options"].items()
            if data_folder is not None or not _names_folder(value)
        }
        content["seeds"] = list(changes.get("seeds", self.seeds or content.get("seeds", ())))
        return content


class DataSets:
    """The data sets of a study by name, each made once and kept in a folder.

    A file describes a data set by ``options`` of the task's data, and ``task_options`` if the task is not at its
    defaults, or by ``make``, a function of the task's package. The first argument of the function is the data set
    ``from`` or the path of the user's file ``file``, if the entry names one of them; other fields are arguments. In
    both options, ``{data}`` stands for the user's data folder.

    Args:
        study: whose data sets.
        folder: where they are kept.
        data: the user's data folder.
        files: the user's files by name.
    """

    def __init__(self, study: Study, folder: Path, data: Path | None = None, files: Mapping[str, Path] | None = None):
        self.files = dict(files or {})
        self._study, self._folder, self._data = study, folder, data
        self._entries: dict[str, Any] = study.folder.shared.get("data", {})
        if study.recipe is not None:
            own = {"options": study.base["data"], "task_options": study.base.get("task_options", {})}
            self._entries = {**self._entries, "data": own}
        self._made: dict[str, Forest] = {}

    def find(self, name: str) -> Forest | None:
        """Return a data set; None if it needs a file that the user does not give.

        Raises:
            RecipeError: there is no such data set, or it needs the user's data folder.
        """
        if not self.has(name):
            return None
        entry = self._entries[name]
        if name not in self._made:
            self._made[name] = self._make(entry) if self._is_users(entry) else self._kept(name, entry)
        return self._made[name]

    def at_hand(self, name: str) -> Forest | None:
        """Return a data set that the user has or that is kept in the folder; None if it would have to be generated."""
        if not self.has(name):
            return None
        entry = self._entries[name]
        if self._is_users(entry):
            lacks_folder = self._data is None and "{data}" in str(self._described(entry))
            return None if lacks_folder else self._make(entry)
        return Forest.load(self._folder / name) if self._is_kept(name, entry) else None

    def has(self, name: str) -> bool:
        """Return whether :meth:`find` finds a data set; without making it.

        Raises:
            RecipeError: there is no such data set.
        """
        if name not in self._entries:
            raise RecipeError(f"no data set {name!r}; there are {', '.join(self._entries)}")
        return self._file(self._entries[name]) in (None, *self.files)

    def _is_users(self, entry: Mapping[str, Any]) -> bool:
        return self._file(entry) is not None or "{data}" in str(self._described(entry))

    def _file(self, entry: Mapping[str, Any]) -> str | None:
        """Return the name of the user's file that a data set is made of, if there is one."""
        return self._file(self._entries[entry["from"]]) if "from" in entry else entry.get("file")

    def __getitem__(self, name: str) -> Forest:
        found = self.find(name)
        if found is None:
            file = self._file(self._entries[name])
            raise RecipeError(f"the data set {name!r} needs a file of yours: give --files {file}=PATH")
        return found

    def _kept(self, name: str, entry: Mapping[str, Any]) -> Forest:
        """Return a data set from the folder; make it if it is missing or has other options."""
        folder = self._folder / name
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / f"{name} (being made)"):  # several processes may run one study
            return self._made_once(name, entry)

    def _made_from(self, entry: Mapping[str, Any]) -> str:
        return json.dumps({"task": self._study.folder.task.version, **self._described(entry)}, sort_keys=True)

    def _is_kept(self, name: str, entry: Mapping[str, Any]) -> bool:
        made = self._folder / name / _MADE
        return made.exists() and made.read_text(encoding="utf-8") == self._made_from(entry)

    def _made_once(self, name: str, entry: Mapping[str, Any]) -> Forest:
        folder = self._folder / name
        if self._is_kept(name, entry):
            return Forest.load(folder)
        forest = self._make(entry)
        with writing(folder):
            (folder / _MADE).unlink(missing_ok=True)
            forest.save(folder)
            with replacing(folder / _MADE) as temporary:
                temporary.write_text(self._made_from(entry), encoding="utf-8")
        return forest

    def _described(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        base = {"from": self._described(self._entries[entry["from"]])} if "from" in entry else {}
        return {**entry, **base}

    def _make(self, entry: Mapping[str, Any]) -> Forest:
        if "make" in entry:
            arguments = {key: value for key, value in entry.items() if key not in ("make", "from", "file")}
            given: list[Any] = []
            if "file" in entry:
                given = [self.files[entry["file"]]]
            elif "from" in entry:
                given = [self[entry["from"]]]
            made: Forest = self._study.folder.function(entry["make"])(*given, **arguments)
            return made
        fields: dict[str, Any] = {}
        for field_name, values in (("data", entry["options"]), ("task_options", entry.get("task_options", {}))):
            if self._data is None and any(map(_names_folder, values.values())):
                raise RecipeError(f"the study {self._study.name} needs --data, the folder of the published files")
            fields[field_name] = {name: _with_folder(value, self._data) for name, value in values.items()}
        task, options = load_task_data(self._study.folder.task.name, (), fields)
        return task.make_data(options).forest


def _names_folder(value: Any) -> bool:
    return isinstance(value, str) and "{data}" in value


def _with_folder(value: Any, data: Path | None) -> Any:
    """Return the value of an option with the user's data folder in place of ``{data}``."""
    return value.format(data=data) if _names_folder(value) else value


@dataclass(frozen=True)
class StudyResults:
    """What a measurement reads.

    Attributes:
        study: the study.
        runs: its runs.
        records: of the runs.
        data: its data sets.
        files: the further data sets that were scored.
        folder: of the runs.
        results: folder of the records.
        page: the page of results.
    """

    study: Study
    runs: Sequence[StudyRun]
    records: list[dict[str, Any]]
    data: DataSets
    files: Mapping[str, Forest]
    folder: Path
    results: Path
    page: Path

    @property
    def task(self) -> Task:
        """The task of the first run, or the task at its defaults."""
        return (self.runs[0].task if self.runs else None) or self.study.folder.task()


def run_study_file(
    study: Study,
    *,
    runs: Path,
    results: Path,
    page: Path,
    data: Path | None = None,
    files: Mapping[str, Path] | None = None,
    processes: int = 1,
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Run everything of a study that is not recorded yet. Return all records of its runs.

    Args:
        study: what to run.
        runs: folder for runs and data sets; a folder of the task's name is made in it.
        results: folder of the records: ``STUDY.jsonl``, and a file for each measurement.
        page: the page of results; measurements write figures beside it.
        data: the user's data folder.
        files: the user's files by name.
        processes: runs at a time.
        only: names of the runs to do now, without the measurements of the study. None: all.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; a data set needs a file or folder that is not given.
    """
    planned, folder = study.runs(data), runs / study.folder.task.name
    known = {entry["file"] for entry in study.folder.shared.get("data", {}).values() if "file" in entry}
    unknown = [name for name in files or {} if name not in known]
    if unknown:
        raise RecipeError(f"no file is called {unknown[0]!r}; there are {', '.join(sorted(known)) or 'none'}")
    sets = DataSets(study, folder / "data", data, files)
    further = {name: forest for name in study.files if (forest := sets.find(name)) is not None}
    records: list[dict[str, Any]] = []
    if planned:
        task = planned[0].task or study.folder.task()
        forests = {name: sets[name] for name in {run.data: None for run in planned}}
        recorded = {record["run"]: record for record in read_study(results / f"{study.name}.jsonl", ["run"])}
        records = run_study(
            task,
            planned,
            forests,
            folder=folder,
            results=results / f"{study.name}.jsonl",
            files=further,
            splits=study.splits,
            processes=processes,
            only=only,
        )
    if only is not None:
        return records
    if all(recorded.get(record["run"]) == record for record in records):
        tell_nothing_trained(results / f"{study.name}.jsonl", len(records))
    done = StudyResults(study, planned, records, sets, further, folder, results, page)
    for name, fields in study.measurements.items():
        _measure(done, results / f"{name}.jsonl", fields)
    return records


def tell_nothing_trained(results: Path, count: int) -> None:
    """Log that all of so many runs were recorded before."""
    _logger.info(
        "%s: %d of %d runs are recorded, so nothing is trained. To train them again, give new folders by --results and "
        "--runs", results, count, count,
    )  # fmt: skip


def _measure(done: StudyResults, path: Path, fields: Mapping[str, Any]) -> None:
    """Write the records of a measurement as they come."""
    arguments = {key: value for key, value in fields.items() if key != "function"}
    before = read_study(path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    found: Iterator[dict[str, Any]] = done.study.folder.function(fields["function"])(done, before, **arguments)
    for record in found:
        with locked(path.with_suffix("")):  # the lock of the file itself is for its writer
            records = {next(iter(each.values())): each for each in [*read_study(path), record]}
            write_records(path, of_one_form(list(records.values())))


def _read(path: Path, known: Sequence[str]) -> dict[str, Any]:
    try:
        fields = load_yaml(path.read_text(encoding="utf-8"))
        _check_fields(fields, known, "a study")
    except (OSError, UnicodeDecodeError, RecipeError) as error:
        raise RecipeError(f"cannot read {path}: {error}") from error
    return dict(fields)


def _check_fields(fields: Any, known: Sequence[str], what: str) -> None:
    if not isinstance(fields, Mapping):
        raise RecipeError(f"{what} is fields and their values, not {fields!r:.60}")
    unknown = [name for name in fields if name not in known]
    if unknown:
        near = near_names(str(unknown[0]), known) or f"; there are {', '.join(known)}"
        raise RecipeError(f"{what} has no field {unknown[0]!r}{near}")
