"""Where a study finds its data and leaves its results; its data sets, each made once and kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.records import locked, write_text, writing
from treemem.runs.recipe import load_task_data
from treemem.runs.study_file import Study, names_folder, with_folder
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

_MADE = "made_from.json"


@dataclass(frozen=True)
class StudyPlaces:
    """Where a study finds its data and leaves its runs and results.

    Attributes:
        runs: folder for the runs and data sets of all tasks.
        results: folder of the records.
        page: the page of results; measurements write figures beside it.
        data: the user's data folder.
        files: the user's files by name.
    """

    runs: Path
    results: Path
    page: Path
    data: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)

    def data_sets(self, study: Study) -> DataSets:
        """Return the data sets of a study."""
        return DataSets(study, self.runs / study.folder.task.name / "data", self.data, self.files)


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
            of_recipe = {"options": study.base["data"], "task_options": study.base.get("task_options", {})}
            self._entries = {**self._entries, "data": of_recipe}
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
        forest = self.find(name)
        if forest is None:
            file = self._file(self._entries[name])
            raise RecipeError(f"the data set {name!r} needs a file of yours: give --files {file}=PATH")
        return forest

    def _kept(self, name: str, entry: Mapping[str, Any]) -> Forest:
        """Return a data set from the folder; make it if it is missing or has other options."""
        folder = self._folder / name
        with writing(folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / f"{name} (being made)"):  # several processes may run one study
            if self._is_kept(name, entry):
                return Forest.load(folder)
            forest = self._make(entry)
            with writing(folder):
                (folder / _MADE).unlink(missing_ok=True)
                forest.save(folder)
                write_text(folder / _MADE, self._made_from(entry))
        return forest

    def _made_from(self, entry: Mapping[str, Any]) -> str:
        return json.dumps({"task": self._study.folder.task.version, **self._described(entry)}, sort_keys=True)

    def _is_kept(self, name: str, entry: Mapping[str, Any]) -> bool:
        made = self._folder / name / _MADE
        return made.exists() and made.read_text(encoding="utf-8") == self._made_from(entry)

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
            if self._data is None and any(map(names_folder, values.values())):
                raise RecipeError(f"the study {self._study.name} needs --data, the folder of the published files")
            fields[field_name] = {name: with_folder(value, self._data) for name, value in values.items()}
        task, options = load_task_data(self._study.folder.task.name, (), fields)
        return task.make_data(options).forest


def hashes_at_hand(task: Task, find: Callable[[str], Forest | None]) -> Callable[[str], str | None]:
    """Return a function that gives the hash of a data set; None if it is not at hand, and for a split.

    Args:
        task: of the study.
        find: returns a data set by its name; None if it would have to be generated first.
    """

    @cache
    def hash_of(name: str) -> str | None:
        forest = None if name in SPLITS else find(name)
        return None if forest is None else task.examples(forest).digest()

    return hash_of
