"""Names to classes that are imported only when asked for."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import pickle
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from treemem.errors import RecipeError, near_names

Found = TypeVar("Found")


class Registry(Generic[Found]):
    """Names to classes that are imported only when asked for.

    The library's own stand in folders of a package, each of which says in its ``__init__.py`` what it has; see
    :func:`folder_constants`.

    Args:
        what: what it holds, for messages.
        package: of the folders, and group of the entry points by which other packages add to it.
        constant: name to ``"module:attribute"``, relative to the folder.
    """

    def __init__(self, what: str, package: str, constant: str) -> None:
        self.what = what
        self.package = package
        self.constant = constant
        self._registered: dict[str, str | Found] = {}

    @cached_property
    def _own(self) -> dict[str, str]:
        """The library's names, and where to import from what they stand for."""
        return {
            name: f"{folder}.{target}"
            for folder, targets in folder_constants(self.package, self.constant)
            for name, target in targets.items()
        }

    def names(self) -> list[str]:
        """All names, those of installed packages included."""
        return sorted({*self._own, *self._registered, *self.installed_names()})

    def __contains__(self, name: object) -> bool:
        """Whether there is a class of that name. Installed packages are looked through only if nothing else has it."""
        return name in self._own or name in self._registered or name in self.installed_names()

    def installed_names(self) -> list[str]:
        """The names that other installed packages add."""
        return sorted({point.name for point in self._installed()} - {*self._own, *self._registered})

    def registered(self) -> dict[str, str | Found]:
        """The names that were registered in this process, and what they stand for."""
        return dict(self._registered)

    def importable(self) -> dict[str, str | Found]:
        """Those of :meth:`registered` that another process can import: no class of an interactive session."""
        found = {}
        is_script = hasattr(sys.modules["__main__"], "__file__")
        for name, target in self._registered.items():
            if getattr(target, "__module__", "") == "__main__" and not is_script:
                continue
            with contextlib.suppress(pickle.PicklingError, AttributeError):
                pickle.dumps(target)
                found[name] = target
        return found

    def register(self, name: str, target: str | Found) -> None:
        """Add a class, or where to import it from (``"module:attribute"``), under a name.

        Raises:
            RecipeError: the name stands for something else, or ``target`` is neither a class nor where one is.
        """
        if not (callable(target) or (isinstance(target, str) and ":" in target)):
            raise RecipeError(
                f"{name!r} cannot stand for {target!r:.60}; register a class, or where to import it from, such as "
                '"my_module:MyClass"'
            )
        if name in self._own or self._registered.setdefault(name, target) != target:
            raise RecipeError(f"there is a {self.what} {name!r} already; choose another name")

    def find(self, name: str) -> Found:
        """The class of that name.

        Raises:
            RecipeError: no such name; the message has the near ones. Or it is of an installed package whose module
                cannot be imported.
        """
        target = self._own.get(name) or self._registered.get(name)
        if target is None:
            point = next((point for point in self._installed() if point.name == name), None)
            if point is None:
                names = self.names()
                near = near_names(str(name), names) or "."
                there = f"; there are {', '.join(names)}" if near == "." else ""
                advice = f"If it is your own, import its file (--import FILE.py){there}"
                raise RecipeError(f"no {self.what} {name!r}{near} {advice}")
            try:
                return point.load()
            except Exception as error:  # whatever a module that is not ours raises while it is imported
                package = f" of the package {point.dist.name}" if point.dist else ""
                problem = f"cannot be imported from {point.value}: {type(error).__name__}: {error}"
                raise RecipeError(f"the {self.what} {name!r}{package} {problem}") from error
        if isinstance(target, str):
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        return target

    def _installed(self) -> Sequence[importlib.metadata.EntryPoint]:
        return tuple(importlib.metadata.entry_points(group=self.package))


def folder_constants(package: str, constant: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the folders within a package whose ``__init__.py`` defines a constant, each with its value, by name."""
    constants: list[tuple[str, Mapping[str, Any]]] = []
    module = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(module.__path__), key=lambda info: info.name):
        if info.ispkg:
            folder = f"{package}.{info.name}"
            value = vars(importlib.import_module(folder)).get(constant)
            constants += folder_constants(folder, constant) if value is None else [(folder, value)]
    return constants


def lazy_attributes(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports some names on first use: those whose modules import torch.

    Args:
        package: its name.
        names: that each module of the package defines.
    """
    modules = {name: module for module, defined in names.items() for name in defined}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return find
