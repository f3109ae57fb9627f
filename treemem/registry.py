"""Names to classes that are imported only when asked for."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from treemem.errors import RecipeError, near_names

Found = TypeVar("Found")


class Registry(Generic[Found]):
    """Names to classes that are imported only when asked for.

    Args:
        what: what it holds, for messages.
        entry_points: group of entry points by which other packages add to it.
        targets: name to ``"module:attribute"``.
    """

    def __init__(self, what: str, entry_points: str, targets: Mapping[str, str]) -> None:
        self.what = what
        self.entry_points = entry_points
        self._targets: dict[str, str | Found] = dict(targets)
        self._own = frozenset(targets)

    def names(self) -> list[str]:
        """All names, those of installed packages included."""
        return sorted({*self._targets, *self.installed_names()})

    def installed_names(self) -> list[str]:
        """The names that other installed packages add."""
        return sorted({point.name for point in self._installed()} - set(self._targets))

    def registered(self) -> dict[str, str | Found]:
        """The names that were registered in this process, and what they stand for."""
        return {name: target for name, target in self._targets.items() if name not in self._own}

    def register(self, name: str, target: str | Found) -> None:
        """Add a class, or where to import it from (``"module:attribute"``), under a name.

        Raises:
            RecipeError: the name stands for something else.
        """
        if self._targets.setdefault(name, target) != target:
            raise RecipeError(f"there is a {self.what} {name!r} already; choose another name")

    def find(self, name: str) -> Found:
        """The class of that name.

        Raises:
            RecipeError: no such name; the message has the near ones. Or it is of an installed package whose module
                cannot be imported.
        """
        target = self._targets.get(name)
        if target is None:
            point = next((point for point in self._installed() if point.name == name), None)
            if point is None:
                names = self.names()
                near = near_names(str(name), names) or "."
                there = f"; there are {', '.join(names)}" if near == "." else ""
                own = f"If it is your own, import its file (--import FILE.py){there}"
                raise RecipeError(f"no {self.what} {name!r}{near} {own}")
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
        return tuple(importlib.metadata.entry_points(group=self.entry_points))


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports some names on first use: those whose modules import torch.

    Args:
        package: its name.
        modules: public name to the module of the package that defines it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return find
