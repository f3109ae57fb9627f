"""Recipes: a task, data, networks and training options in one YAML file, any field of which can be overridden."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import yaml

from treemem.errors import RecipeError, near_names
from treemem.model import weights_of
from treemem.networks import NETWORKS, NetworkConfig
from treemem.runs.options import TrainingOptions
from treemem.task import TASKS, Task, task_folder, task_folders
from treemem.trees.source_text import shorten

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_Parsed = TypeVar("_Parsed")
# in the words of jsonargparse
_NO_LIST = re.compile(r"Expected a <class 'list'>\. Got value: (.+)\Z")
_OF_NO_TYPE = re.compile(r"Expected an? <class '(\w+)'>\. Got value: (.*)\Z")
_OF_NONE_OF_TYPES = re.compile(
    r"Does not validate against any of the Union subtypes Subtypes: \[(.*?)\] Errors: .* Given value: (.*)\Z"
)
_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "NoneType": "null",
    "list": "a list", "tuple": "a list", "dict": "names and their values",
}  # fmt: skip


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
            type or range. It names the override that is to blame, else the file.
    """
    path = _recipe_path(os.fspath(source))
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecipeError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"the recipe {path} must be fields and their values, not {type(content).__name__}")
    return _parsed_with(overrides, content, parse_recipe, str(path))


def load_task_data(
    task: str, overrides: Sequence[str] = (), given: Mapping[str, Any] | None = None
) -> tuple[Task, Any]:
    """A task and options of its data, at their defaults but for what is given and for the overrides.

    Args:
        task: name of the task.
        overrides: ``data.FIELD=VALUE`` or ``task_options.FIELD=VALUE`` each.
        given: the fields ``data`` and ``task_options`` as far as they are known.

    Raises:
        RecipeError: no such task, an override of an unknown field, or with a value of the wrong type or range.
    """
    return _parsed_with(overrides, {**(given or {}), "task": task}, _parse_task_data, f"the task {task}")


def _parsed_with(
    overrides: Sequence[str], content: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], _Parsed], place: str
) -> _Parsed:
    """What ``content`` says with some fields set; an error names the override that is to blame, else ``place``."""
    contents = [_overridden(content, overrides[:count]) for count in range(len(overrides) + 1)]
    try:
        return parse(contents[-1])
    except RecipeError as error:
        number, problem = _blamed(contents, error, parse)
        place = f"the override {shorten(overrides[number - 1], 80)}" if number else place
        raise RecipeError(f"{place}: {problem}") from error


def _blamed(
    contents: Sequence[Mapping[str, Any]], error: RecipeError, parse: Callable[[Mapping[str, Any]], object]
) -> tuple[int, RecipeError]:
    """The number of the content that is wrong where the one before it was right, and what is wrong."""
    for number in range(len(contents) - 1, 0, -1):
        try:
            parse(contents[number - 1])
        except RecipeError as earlier:
            error = earlier
        else:
            return number, error
    return 0, error


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Every field of a recipe as plain data, those at their defaults included; :func:`parse_recipe` reads it back."""
    fields = dataclasses.asdict(recipe)
    return {**fields, "seeds": list(recipe.seeds)}


def format_recipe(recipe: Recipe) -> str:
    """A recipe as YAML with every field; :func:`load_recipe` reads an equal one from a file of it."""
    return yaml.safe_dump(recipe_fields(recipe), sort_keys=False, allow_unicode=True, width=120)


def _parse_task_data(content: Mapping[str, Any]) -> tuple[Task, Any]:
    _check_names(content, ["task", "task_options", "data"], "")
    task_class = TASKS.find(str(content["task"]))
    options = _typed_options(task_class, content.get("task_options") or {}, "task_options")
    data_class = task_class.data_options
    _check_names(content.get("data") or {}, [part.name for part in dataclasses.fields(data_class)], "data.")
    values = _typed({"task": content["task"], "data": content.get("data")}, data_class)
    task = _made(task_class, options, "task_options", task_class.name)
    return task, _made(data_class, values["data"], "data", "data")


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """A recipe from plain dictionaries, checked field by field.

    Raises:
        RecipeError: a field is unknown or missing, or has a value of the wrong type or range; so too the options of
            task and networks.
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
        if not isinstance(name, str):
            raise RecipeError(f"the network's name {name!r} is no text; write it in quotes")
        if name in ("", ".", "..") or set("/\\") & set(name):
            raise RecipeError(f"the network's name {name!r} is to name a folder; leave out slashes and lone dots")
        _check_names(fields, ["network", "options"], f"networks.{name}.")
    values = _typed(content, data_class)
    networks = {
        name: NetworkConfig(
            fields["network"],
            _typed_options(NETWORKS.find(fields["network"]), fields["options"], f"networks.{name}.options"),
        )
        for name, fields in values["networks"].items()
    }
    recipe = Recipe(
        values["task"],
        _typed_options(task_class, values["task_options"], "task_options"),
        _made(data_class, values["data"], "data", "data"),
        networks,
        _made(TrainingOptions, values["training"], "training", "training"),
        _checked_seeds(values["seeds"]),
    )
    task = recipe.make_task()
    for name, network in recipe.networks.items():
        try:
            weights_of(task, network)
        except RecipeError as error:
            raise RecipeError(f"networks.{name}.options: {error}") from error
    return recipe


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise RecipeError(f"seeds must be from 0 to 2^63 - 1, not {seed}")
    if len(set(seeds)) < len(seeds):
        raise RecipeError(f"seeds must differ, not {', '.join(map(str, seeds))}")
    return tuple(seeds)


def recipe_names() -> list[str]:
    """The recipes that come with the tasks, as ``TASK/RECIPE``."""
    return [
        f"{task}/{path.stem}"
        for task, folder in task_folders().items()
        for path in sorted(folder.glob("recipes/*.yaml"))
    ]


def _typed(content: Mapping[str, Any], data_class: type) -> dict[str, Any]:
    """The values as jsonargparse reads them: of the types that the dataclasses declare."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--task", type=str)
    parser.add_argument("--task_options", type=dict[str, Any], default={})
    parser.add_argument("--data", type=data_class, default=data_class())
    parser.add_argument("--networks", type=dict[str, NetworkConfig])
    parser.add_argument("--training", type=TrainingOptions, default=TrainingOptions())
    parser.add_argument("--seeds", type=list[int], default=[])
    return _parsed(parser, {name: value for name, value in content.items() if value is not None})


def _typed_options(constructor: Callable[..., Any], options: Mapping[str, Any], field_name: str) -> dict[str, Any]:
    """The options as jsonargparse reads them: of the types that the constructor's parameters declare."""
    from jsonargparse import ArgumentParser

    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(constructor).parameters.items()
        if name != "vocabulary" and parameter.kind not in several
    }
    _check_names(options, parameters, f"{field_name}.")
    types = _declared_types(constructor)
    parser = ArgumentParser(exit_on_error=False)
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty
        default = {} if required else {"default": parameter.default}
        parser.add_argument(f"--{name}", type=types.get(name, Any), required=required, **default)
    try:
        values = _parsed(parser, options)
    except RecipeError as error:
        raise RecipeError(f"{field_name}: {error}") from error
    return {name: values[name] for name in options}


def _declared_types(constructor: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters; none where one of them is written with a name that only type checkers see."""
    try:
        return get_type_hints(constructor.__init__ if isinstance(constructor, type) else constructor)  # type: ignore[misc]
    except NameError:
        return {}


def _parsed(parser: ArgumentParser, given: Mapping[str, Any]) -> dict[str, Any]:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_object(copy.deepcopy(dict(given))).as_dict()  # which writes into what it is given
    except (ArgumentError, TypeError, ValueError) as error:
        problem = " ".join(str(error).replace("Parser key ", "").split())
        raise RecipeError(_in_plain_words(problem)) from error


def _in_plain_words(problem: str) -> str:
    """What jsonargparse says of a value of another type than the declared one, by what the value may be."""
    problem = _NO_LIST.sub(r"must be a list, such as [\g<1>], not \g<1>", problem)
    problem = _OF_NO_TYPE.sub(lambda told: f"must be {_KINDS.get(told[1], told[1])}, not {told[2]}", problem)

    def alternatives(told: re.Match[str]) -> str:
        plain = [_KINDS.get(name, name) for name in re.findall(r"<class '(\w+)'>", told[1])]
        lists = [form.replace("tuple", "") for form in re.findall(r"tuple\[.*\]", told[1])]
        return f"must be {' or '.join(plain + lists)}, not {told[2]}"

    return _OF_NONE_OF_TYPES.sub(alternatives, problem)


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


def _overridden(content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Nested dictionaries with some fields set; ``content`` itself stays as it is."""
    result: dict[str, Any] = copy.deepcopy(dict(content))
    for override in overrides:
        path, equals, text = override.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            raise RecipeError(f"cannot override {override!r}; write FIELD=VALUE, such as training.epochs=3")
        place = result
        for part in parts[:-1]:
            inner = place.setdefault(part, {})
            if inner is None:
                inner = place[part] = {}
            if not isinstance(inner, dict):
                raise RecipeError(f"cannot override {path!r}: {part!r} has no fields")
            place = inner
        try:
            place[parts[-1]] = read_yaml(text)
        except RecipeError as error:
            raise RecipeError(f"cannot override {path!r}: {shorten(text)} is no YAML value ({error})") from error
    return result


class _DistinctFields(yaml.SafeLoader):
    """YAML in which no field is given twice; the second one would silently count."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """A mapping as it is written, before others are merged into it."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the field {shorten(key.value)} is given twice"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return node


def read_yaml(text: str) -> Any:
    """The plain data that a YAML text says.

    Raises:
        RecipeError: it is no YAML, gives a field twice or is nested too deeply.
    """
    try:
        return yaml.load(text, Loader=_DistinctFields)
    except RecursionError as error:
        raise RecipeError("its brackets are nested too deeply") from error
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RecipeError(" ".join(str(error).split())) from error


def _recipe_path(source: str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    task, _, name = source.partition("/")
    folder = task_folder(task) if name and task in TASKS.names() else None  # imports that task alone
    if folder is not None and (packaged := folder / "recipes" / f"{name}.yaml").is_file():
        return packaged
    names = recipe_names()
    near = near_names(source, names) or f"; there are {', '.join(names)}"
    raise RecipeError(f"no recipe {source!r}: neither a file nor one that comes with a task{near}")
