"""Studies as YAML files: networks x seeds x variants x data sets, and further data sets to score."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError, near_names
from treemem.networks import NetworkTable
from treemem.plain_yaml import load_yaml
from treemem.runs.recipe import Recipe, load_recipe, parse_recipe, recipe_fields
from treemem.runs.run import StudyRun
from treemem.task import TASKS, Task, task_folder
from treemem.trees.formats.record_reader import SPLITS

_logger = logging.getLogger(__name__)

_SHARED = "shared.yaml"  # what the studies of a folder have in common
_VARIED = ("networks", "seeds", "training", "task_options", "network_options", "data")


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
        if not (folder / part / "results.md.j2").is_file():
            raise RecipeError(f"{folder / part} has studies and no results.md.j2, the template of their page; add it")
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
        fields = _read(path, [part.name for part in dataclasses.fields(Study)][2:])
        return Study(self, name, **fields)

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function ``"module:name"``; the module is relative to the task's package, or a full name."""
        module, _, name = target.partition(":")
        full = module if module.startswith("treemem.") or not self.package else f"{self.package}.{module}"
        function: Callable[..., Any] = getattr(importlib.import_module(full), name)
        return function


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
            one with the same first field. With ``by_run: true`` the queue measures each run when it is recorded, and
            does not wait for the others.
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

    @cached_property
    def base(self) -> dict[str, Any]:
        """The fields of the recipe, or of the task alone, that variants change."""
        if self.recipe is not None:
            return recipe_fields(self._recipe)
        return {"task": self.folder.task.name}

    @cached_property
    def _recipe(self) -> Recipe:
        return load_recipe(f"{self.folder.task.name}/{self.recipe}")

    @cached_property
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
        placed: list[tuple[int, StudyRun]] = []
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
                    placed.append((place, run))
        return [run for _, run in sorted(placed, key=lambda pair: pair[0])]

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
            name: with_folder(value, data_folder)
            for name, value in content["task_options"].items()
            if data_folder is not None or not names_folder(value)
        }
        content["seeds"] = list(changes.get("seeds", self.seeds or content.get("seeds", ())))
        return content


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


def names_folder(value: Any) -> bool:
    """Return whether the value of an option stands for something in the user's data folder."""
    return isinstance(value, str) and "{data}" in value


def with_folder(value: Any, data: Path | None) -> Any:
    """Return the value of an option with the user's data folder in place of ``{data}``."""
    return value.format(data=data) if names_folder(value) else value
