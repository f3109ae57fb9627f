"""Recipes: a task, its data, networks and training options in a YAML file."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from treemem.errors import RecipeError, near_names
from treemem.model import weights_of
from treemem.networks import NETWORKS, NetworkConfig, NetworkTable
from treemem.plain_yaml import dump_yaml, load_yaml
from treemem.runs.options import TrainingOptions
from treemem.task import TASKS, Task, task_folder, task_folders
from treemem.trees.formats.source_text import shorten
from treemem.type_words import type_words

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_logger = logging.getLogger(__name__)
_Parsed = TypeVar("_Parsed")
_LONGEST_SHOWN = 100
_BUILT: set[tuple[Any, ...]] = set()
"""Tasks with their options, and networks with theirs, whose models could be made in this process."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a run depends on.

    Attributes:
        task: name of the task.
        task_options: arguments of the task.
        data: options of the data, an instance of the task's ``data_options`` class.
        networks: the networks to train, by name.
        training: options of the training of each network.
        seeds: train each network once from each of these; empty: once, from ``training.seed``.
    """

    task: str
    task_options: dict[str, Any]
    data: Any
    networks: dict[str, NetworkConfig]
    training: TrainingOptions = field(default_factory=TrainingOptions)
    seeds: tuple[int, ...] = ()

    def make_task(self) -> Task:
        """Return the task with its options."""
        return TASKS.find(self.task)(**self.task_options)

    def with_networks(self, names: Sequence[str] | None) -> Recipe:
        """Return the recipe with only these networks, of its own or of the task's; itself for None.

        Raises:
            RecipeError: there is no such network.
        """
        if names is None:
            return self
        known = NetworkTable({**self.make_task().networks, **self.networks})
        return dataclasses.replace(self, networks={name: known[name] for name in names})

    def named_by_changes(self, before: Recipe) -> Recipe:
        """Return the recipe with another name for each network that is not as in ``before``.

        Then no table shows the name and figures of a published network beside the scores of another one. ``Tree-LSTM``
        with another size becomes ``Tree-LSTM, hidden_size 16``. With ``network=TreeCell`` it becomes ``TreeCell``,
        followed by the options that differ from those of the task's ``TreeCell``.
        """
        known = {**self.make_task().networks, **before.networks}
        networks = {_changed_name(name, network, known): network for name, network in self.networks.items()}
        return dataclasses.replace(self, networks=networks)


def _changed_name(name: str, network: NetworkConfig, known: Mapping[str, NetworkConfig]) -> str:
    base = name if network.network == known.get(name, network).network else network.network
    before = known.get(base, network if base == name else NetworkConfig(base, {}))
    old = before.options if before.network == network.network else {}
    changed = {option: value for option, value in network.options.items() if value != old.get(option, ...)}
    removed = [f"no {option}" for option in old if option not in network.options]
    described = [*(f"{option} {value}" for option, value in changed.items()), *removed]
    return ", ".join([base, *described]).replace("/", "-")


def load_recipe(source: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        source: a YAML file, or ``TASK/RECIPE`` for a packaged one, such as ``equation_verification/small``.
        overrides: ``FIELD=VALUE`` each, such as ``training.epochs=3``.

    Raises:
        RecipeError: there is no such recipe, or a field is unknown, missing or has a wrong value.
    """
    path = _recipe_path(os.fspath(source))
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecipeError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    if not isinstance(content, dict):
        kind = "empty" if content is None else type(content).__name__
        raise RecipeError(f"the recipe {path} is {kind}; it must be fields and their values")
    content = _with_overridden_networks(_without_longer_curriculum(content, overrides), overrides)
    return _parsed(parse_recipe, content, overrides, os.fspath(source))


def _with_overridden_networks(content: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a recipe with the networks of its task whose options are overridden, if it does not list them."""
    networks, task = content.get("networks"), content.get("task")
    if not isinstance(networks, dict) or task not in TASKS:
        return content
    known = TASKS.find(str(task)).networks
    paths = [parse_override(override)[0].split(".") for override in overrides]
    named = [path[1] for path in paths if path[0] == "networks" and len(path) > 2]
    added = {name: dataclasses.asdict(known[name]) for name in named if name in known and name not in networks}
    return {**content, "networks": {**networks, **added}}


def _without_longer_curriculum(content: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a recipe without its curriculum, if an override of the epochs leaves too few for it."""
    given = dict(map(parse_override, overrides))
    training = content.get("training")
    if not isinstance(training, dict):
        return content
    stages = training.get("curriculum")
    epochs = given.get("training.epochs")
    if not isinstance(epochs, int) or not isinstance(stages, list) or "training.curriculum" in given:
        return content
    needed = 1 + sum(count for _, count in stages)
    if epochs >= needed:
        return content
    _logger.warning("the curriculum of the recipe takes %d epochs; with %d it is left out", needed, epochs)
    return {**content, "training": {**training, "curriculum": 0}}


def load_task_data(
    task: str, overrides: Sequence[str] = (), given: Mapping[str, Any] | None = None
) -> tuple[Task, Any]:
    """Return a task and the options of its data.

    Args:
        task: name of the task.
        overrides: ``data.FIELD=VALUE`` or ``task_options.FIELD=VALUE`` each.
        given: the fields ``data`` and ``task_options`` to start from, instead of the defaults.

    Raises:
        RecipeError: there is no such task, or a field is unknown or has a wrong value.
    """
    return _parsed(_parse_task_data, {**(given or {}), "task": task}, overrides, task)


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """Return the recipe of plain dictionaries.

    Raises:
        RecipeError: a field or an option of the task or networks is unknown, missing or has a wrong value.
    """
    _check_names(content, [part.name for part in dataclasses.fields(Recipe)], "")
    for name in ("task", "networks"):
        if not content.get(name):
            raise RecipeError(f"the field {name!r} is missing")
    task_options, data = _parse_task_fields(content)
    training = TrainingOptions(**read_options(TrainingOptions, content.get("training"), "training"))
    networks = content["networks"]
    if not isinstance(networks, Mapping):
        raise RecipeError("networks must be names, each with the fields network and options")
    for name, fields in networks.items():
        if isinstance(fields, Mapping) and set(fields) <= {"options"}:
            near = near_names(str(name), [other for other in networks if other != name])
            raise RecipeError(f"networks.{name} has no field 'network'{near}")
    networks = {name: _parse_network(name, fields) for name, fields in networks.items()}
    seeds = _parse_seeds(content.get("seeds") or [])
    recipe = Recipe(content["task"], task_options, data, networks, training, seeds)
    task = recipe.make_task()
    _ = task.vocabulary  # what is wrong with the task is told before the networks
    for name, network in networks.items():
        key = type(task), repr(task_options), network.constructor(), repr(network.options)
        if key in _BUILT:
            continue
        try:
            weights_of(task, network)
        except RecipeError as error:
            raise RecipeError(f"networks.{name}.options: {error}") from error
        _BUILT.add(key)
    return recipe


def _parse_task_data(content: Mapping[str, Any]) -> tuple[Task, Any]:
    _check_names(content, ["task", "task_options", "data"], "")
    options, data = _parse_task_fields(content)
    return TASKS.find(content["task"])(**options), data


def _parse_task_fields(content: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the options of the task and of its data."""
    task_class = TASKS.find(str(content["task"]))
    data_class = task_class.data_options
    given, former = content.get("data"), getattr(data_class, "former", {})
    if isinstance(given, Mapping):
        given = {name: value for name, value in given.items() if name not in former or str(former[name]) != str(value)}
    data = data_class(**read_options(data_class, given, "data"))
    return read_options(task_class, content.get("task_options"), "task_options"), data


def _parse_network(name: object, fields: object) -> NetworkConfig:
    if not isinstance(name, str):
        raise RecipeError(f"the network's name {name!r} is not a text; write it in quotes")
    if name in ("", ".", "..") or set("/\\") & set(name):
        raise RecipeError(f"the network's name {name!r} must be able to name a folder; leave out slashes and lone dots")
    config = NetworkConfig(**read_options(NetworkConfig, fields, f"networks.{name}"))
    constructor = NETWORKS.find(config.network)
    return NetworkConfig(config.network, read_options(constructor, config.options, f"networks.{name}.options"))


def _parse_seeds(given: Any) -> tuple[int, ...]:
    seeds = _read_value(list[int], given, "seeds")
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise RecipeError(f"seeds must be from 0 to 2^63 - 1, not {seed}")
    if len(set(seeds)) < len(seeds):
        raise RecipeError(f"seeds must differ, not {', '.join(map(str, seeds))[:_LONGEST_SHOWN]}")
    return tuple(seeds)


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Return all fields of a recipe as plain data for :func:`parse_recipe`."""
    return {**dataclasses.asdict(recipe), "seeds": list(recipe.seeds)}


def format_recipe(recipe: Recipe) -> str:
    """Return a recipe as YAML with all fields, for :func:`load_recipe`."""
    return dump_yaml(recipe_fields(recipe))


def recipe_names() -> list[str]:
    """Return the names of the packaged recipes, ``TASK/RECIPE``."""
    return [
        f"{task}/{path.stem}"
        for task, folder in task_folders().items()
        for path in sorted(folder.glob("recipes/*.yaml"))
    ]


def read_options(constructor: Callable[..., Any], given: Any, place: str) -> dict[str, Any]:
    """Return options in the types that a constructor declares.

    Args:
        constructor: a class or function. Its parameter ``vocabulary`` is not an option.
        given: values by name; None for no options.
        place: the field that holds the options, for messages.

    Raises:
        RecipeError: an option is unknown, missing or of another type.
    """
    given = {} if given is None else given
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(constructor).parameters.items()
        if name != "vocabulary" and parameter.kind not in several
    }
    _check_names(given, parameters, place)
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise RecipeError(f"{place}.{name} is missing")
    types = _declared_types(constructor)
    return {name: _read_value(types.get(name, Any), value, f"{place}.{name}") for name, value in given.items()}


def _declared_types(constructor: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters; nothing if a type cannot be resolved.

    A choice that a layer checks where it is set is left out: its values may have former names.
    """
    try:
        if not isinstance(constructor, type):
            return get_type_hints(constructor)
        constructors = [vars(base)["__init__"] for base in constructor.__mro__[-2::-1] if "__init__" in vars(base)]
        types = {name: hint for function in constructors for name, hint in get_type_hints(function).items()}
    except NameError:
        return {}
    return {
        name: hint
        for name, hint in types.items()
        if get_origin(hint) is not Literal or not hasattr(inspect.getattr_static(constructor, name, None), "__set__")
    }


def _read_value(declared: Any, value: Any, place: str) -> Any:
    """Return a value in its declared type: ``"1e-2"`` as a number, the version 2 as a text, a list as a tuple."""
    from jsonargparse import ArgumentError

    if type(value) is int and declared in (str, str | None):
        value = str(value)
    try:
        if value is None and declared is not Any and type(None) not in get_args(declared):  # jsonargparse takes it
            raise ValueError
        return _parser_of(declared).parse_object({"value": copy.deepcopy(value)}).value
    except (ArgumentError, TypeError, ValueError) as error:
        shown = shorten(str(value), _LONGEST_SHOWN)
        as_list = f"; write [{value!s:.50}]" if _is_item(declared, value) else ""
        raise RecipeError(f"{place} must be {type_words(declared)}, not {shown}{as_list}") from error


def _is_item(declared: Any, value: Any) -> bool:
    """Return whether a list with this one value is of the declared type."""
    from jsonargparse import ArgumentError

    if not isinstance(value, (str, int, float)):
        return False
    try:
        _parser_of(declared).parse_object({"value": [value]})
    except (ArgumentError, TypeError, ValueError):
        return False
    return True


@cache
def _parser_of(declared: Any) -> ArgumentParser:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=declared)
    return parser


def _check_names(fields: Any, known: Iterable[str], place: str) -> None:
    """Check that a mapping has only known names."""
    names = list(known)
    if not isinstance(fields, Mapping):
        raise RecipeError(f"{place or 'a recipe'} must be fields and their values, not {shorten(str(fields))}")
    for name in fields:
        if name not in names:
            near = near_names(str(name), names) or f"; there are {', '.join(names)}"
            if not place and str(name) in {option.name for option in dataclasses.fields(TrainingOptions)}:
                near = f"; did you mean training.{name}?"
            raise RecipeError(f"no field {shorten(f'{place}.{name}' if place else str(name), _LONGEST_SHOWN)}{near}")


def _parsed(
    parse: Callable[[Mapping[str, Any]], _Parsed], content: Mapping[str, Any], overrides: Sequence[str], place: str
) -> _Parsed:
    """Parse a content with overrides. Errors name the place and the overrides."""
    if overrides:
        place = f"{place} with {' '.join(overrides)}"
    try:
        return parse(_overridden(content, overrides))
    except RecipeError as error:
        place = place if len(place) <= 2 * _LONGEST_SHOWN else f"{place[: 2 * _LONGEST_SHOWN]}..."
        raise RecipeError(f"{place}: {error}") from error


def _overridden(content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of nested dictionaries with some fields set."""
    result: dict[str, Any] = copy.deepcopy(dict(content))
    for override in overrides:
        path, value = parse_override(override)
        place = result
        *parts, last = path.split(".")
        for part in parts:
            inner = place.get(part)
            if inner is None:
                inner = place[part] = {}
            if not isinstance(inner, dict):
                raise RecipeError(f"cannot override {path!r}: {part!r} has no fields")
            place = inner
        place[last] = value
    return result


def parse_override(override: str) -> tuple[str, Any]:
    """Return the field and the YAML value of ``FIELD=VALUE``.

    Raises:
        RecipeError: it has another form.
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise RecipeError(f"cannot override {shorten(override)}; write FIELD=VALUE, such as training.epochs=3")
    try:
        return path, load_yaml(text)
    except RecipeError as error:
        raise RecipeError(f"cannot override {path!r}: {shorten(text)} is not a YAML value ({error})") from error


def _recipe_path(source: str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    task, _, name = source.partition("/")
    folder = task_folder(task) if name and task in TASKS else None  # imports that task alone
    if folder is not None and (packaged := folder / "recipes" / f"{name}.yaml").is_file():
        return packaged
    names = recipe_names()
    files = [str(file) for file in sorted(path.parent.glob("*.yaml"))]
    ends = [name.partition("/")[2] for name in names]
    same_end = [name for name, end in zip(names, ends, strict=True) if get_close_matches(source, [end])]
    near = near_names(source, [*names, *files]) or f"; there are {', '.join(same_end or names)}"
    raise RecipeError(f"no recipe {source!r}: it is neither a file nor the name of a packaged recipe{near}")
