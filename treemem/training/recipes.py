"""Recipes: a task, data, networks and training options in one YAML file, any field of which can be overridden."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from treemem.errors import RecipeError, near_names
from treemem.task import NETWORKS, TASKS, NetworkConfig, Task
from treemem.training.options import TrainingOptions


@dataclass(frozen=True)
class Recipe:
    """Everything that a run depends on.

    Attributes:
        task: name of the task.
        task_options: arguments of the task.
        data: options of the task's data, of its own ``data_options`` class.
        networks: the networks to train, by the names that results give them.
        training: how to train each.
        seeds: train each network once for each of these, in place of ``training.seed``; empty: once.
    """

    task: str
    task_options: dict[str, Any]
    data: Any
    networks: dict[str, NetworkConfig]
    training: TrainingOptions = field(default_factory=TrainingOptions)
    seeds: tuple[int, ...] = ()

    def make_task(self) -> Task:
        """The task with its options."""
        return _made(TASKS.find(self.task), self.task_options, "task_options", self.task)

    def with_networks(self, names: Sequence[str] | None) -> Recipe:
        """The same recipe for some networks only, of its own or of the task's; itself for None.

        Raises:
            RecipeError: a name that neither knows.
        """
        if names is None:
            return self
        known = {**self.make_task().networks, **self.networks}
        for name in names:
            if name not in known:
                raise RecipeError(f"no network {name!r}{near_names(name, known)}; there are {', '.join(known)}")
        return dataclasses.replace(self, networks={name: known[name] for name in names})


def load_recipe(source: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        source: a YAML file, or ``TASK/RECIPE`` for one that comes with a task, such as ``equation_verification/small``.
        overrides: ``FIELD=VALUE`` each, with dots between the parts of the field: ``training.epochs=3``.

    Raises:
        RecipeError: there is no such recipe; a field is unknown (with the near names) or has a value of the wrong
            type or range.
    """
    path = _recipe_path(os.fspath(source))
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"the recipe {path} must be fields and their values, not {type(content).__name__}")
    for override in overrides:
        _override(content, override)
    try:
        return parse_recipe(content)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """A recipe from plain dictionaries, checked field by field.

    Raises:
        RecipeError: a field is unknown or missing, or has a value of the wrong type or range.
    """
    _check_names(content, [part.name for part in dataclasses.fields(Recipe)], "")
    for name in ("task", "networks"):
        if not content.get(name):
            raise RecipeError(f"the field {name!r} is missing")
    task_class = TASKS.find(str(content["task"]))
    data_class = task_class.data_options
    for name, options_class in (("training", TrainingOptions), ("data", data_class)):
        _check_names(content.get(name) or {}, [part.name for part in dataclasses.fields(options_class)], f"{name}.")
    networks = content["networks"]
    if not isinstance(networks, Mapping):
        raise RecipeError("networks must be names, each with the fields network and options")
    for name, fields in networks.items():
        if name in ("", ".", "..") or set("/\\") & set(str(name)):
            raise RecipeError(f"the network's name {name!r} is to name a folder; leave out slashes and lone dots")
        _check_names(fields, ["network", "options"], f"networks.{name}.")
    values = _typed(content, data_class)
    recipe = Recipe(
        values["task"],
        values["task_options"],
        _made(data_class, values["data"], "data", "data"),
        {str(name): NetworkConfig(**fields) for name, fields in values["networks"].items()},
        _made(TrainingOptions, values["training"], "training", "training"),
        tuple(values["seeds"]),
    )
    for name, network in recipe.networks.items():
        known = [each for each in inspect.signature(NETWORKS.find(network.network)).parameters if each != "vocabulary"]
        _check_names(network.options, known, f"networks.{name}.options.")
    recipe.make_task()
    return recipe


def recipe_names() -> list[str]:
    """The recipes that come with the tasks, as ``TASK/RECIPE``."""
    return [f"{task}/{path.stem}" for task in TASKS.names() for path in sorted(_recipe_folder(task).glob("*.yaml"))]


def _typed(content: Mapping[str, Any], data_class: type) -> dict[str, Any]:
    """The values as jsonargparse reads them: of the types that the dataclasses declare."""
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--task", type=str)
    parser.add_argument("--task_options", type=dict[str, Any], default={})
    parser.add_argument("--data", type=data_class, default=data_class())
    parser.add_argument("--networks", type=dict[str, NetworkConfig])
    parser.add_argument("--training", type=TrainingOptions, default=TrainingOptions())
    parser.add_argument("--seeds", type=list[int], default=[])
    given = {name: value for name, value in content.items() if value is not None}
    try:
        return parser.parse_object(given).as_dict()
    except (ArgumentError, TypeError, ValueError) as error:
        raise RecipeError(" ".join(str(error).replace("Parser key ", "").split())) from error


def _check_names(fields: Any, known: Iterable[str], prefix: str) -> None:
    names = list(known)
    if not isinstance(fields, Mapping):
        raise RecipeError(f"{prefix.rstrip('.') or 'a recipe'} must be fields and their values, not {fields!r}")
    for name in fields:
        if name not in names:
            near = near_names(str(name), names) or f"; there are {', '.join(names)}"
            raise RecipeError(f"no field {f'{prefix}{name}'!r}{near}")


def _made(target: Any, options: Mapping[str, Any], what: str, name: str) -> Any:
    try:
        return target(**options)
    except TypeError as error:
        known = list(inspect.signature(target).parameters)
        unknown = next((each for each in options if each not in known), None)
        problem = str(error) if unknown is None else f"no option {unknown!r}{near_names(unknown, known)}"
        raise RecipeError(f"{what} of {name}: {problem}") from error


def _override(content: dict[str, Any], override: str) -> None:
    """Set one field of nested dictionaries."""
    path, equals, text = override.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts):
        raise RecipeError(f"cannot override {override!r}; write FIELD=VALUE, such as training.epochs=3")
    place: dict[str, Any] = content
    for part in parts[:-1]:
        inner = place.setdefault(part, {})
        if inner is None:
            inner = place[part] = {}
        if not isinstance(inner, dict):
            raise RecipeError(f"cannot override {path!r}: {part!r} has no fields")
        place = inner
    try:
        place[parts[-1]] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"cannot override {path!r}: {text!r} is no YAML value") from error


def _recipe_path(source: str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    task, _, name = source.partition("/")
    if path.suffix not in (".yaml", ".yml") and name and task in TASKS.names():
        packaged = _recipe_folder(task) / f"{name}.yaml"
        if packaged.is_file():
            return packaged
    names = recipe_names()
    near = near_names(source, names) or f"; there are {', '.join(names)}"
    raise RecipeError(f"no recipe {source!r}: neither a file nor one that comes with a task{near}")


def _recipe_folder(task: str) -> Path:
    return Path(inspect.getfile(TASKS.find(task))).parent / "recipes"
