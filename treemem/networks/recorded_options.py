"""Layers that know the options they were made with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from treemem.checked_options import checked_arguments
from treemem.errors import RecipeError, near_names

Value = TypeVar("Value")


class RecordedOptions:
    """A mixin that checks the arguments of the constructor by their types and records them, defaults included.

    Attributes:
        options: ``type(layer)(vocabulary=vocabulary, **layer.options)`` makes a layer like this one. Plain data: lists
            in place of tuples.
    """

    options: dict[str, Any]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, without: Sequence[str] = (), **options: Any) -> None:
        """Say the signature of the constructor: what it names, and what it hands to the base class by ``**kwargs``.

        ``inspect`` looks for it in ``__new__`` up to Python 3.11.3.

        Args:
            without: parameters that are not options, or that this class does not have.
            options: of further base classes.
        """
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _checking(cls, cls.__init__)  # type: ignore[method-assign]
        _, *parameters = inspect.signature(cls.__init__).parameters.values()
        named = {item.name: item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}
        if len(named) < len(parameters):
            handed_on = cls.__signature__.parameters
            by_name = {name: item.replace(kind=item.KEYWORD_ONLY) for name, item in handed_on.items()}
            named |= {name: item for name, item in (by_name if named else handed_on).items() if name not in named}
        cls.__signature__ = inspect.Signature([item for name, item in named.items() if name not in without])

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check and record the arguments that there are; copying and unpickling give none."""
        layer = super().__new__(cls)
        signature = cls.__signature__
        for name in kwargs:
            if name not in signature.parameters:
                raise RecipeError(f"{cls.__name__} has no option {name!r}{near_names(name, signature.parameters)}")
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "vocabulary"}
        given = checked_arguments(cls, given)
        object.__setattr__(layer, "options", {name: _plain(value) for name, value in given.items()})
        return layer

    def extra_repr(self) -> str:
        """The options, for printing."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class SettableOption(Generic[Value]):
    """An option that may be set at any time; its value stands in the layer's ``options``.

    Args:
        check: returns a value if it is valid, and raises :class:`RecipeError` if not.
    """

    def __init__(self, check: Callable[[str, Any], Value]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: RecordedOptions | None, owner: type) -> Any:
        return self if layer is None else layer.options[self._name]

    def __set__(self, layer: RecordedOptions, value: Value) -> None:
        layer.options[self._name] = self._check(self._name, value)


def _checking(owner: type, constructor: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of a class, which gets its arguments as the types say that this class declares."""
    signature = inspect.signature(constructor)

    @functools.wraps(constructor)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind_partial(self, *args, **kwargs)
        bound.arguments.update(checked_arguments(owner, bound.arguments))
        constructor(*bound.args, **bound.kwargs)

    return checked


def _plain(value: object) -> object:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
