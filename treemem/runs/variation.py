"""The fields of a recipe that a sweep varies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treemem.errors import RecipeError
from treemem.plain_yaml import load_yaml

if TYPE_CHECKING:
    import optuna

_DIGITS = 4  # of a drawn number; more if the range is narrow beside its numbers
_FORMS = "FIELD=A,B,C or FIELD=LOW:HIGH, with :log after it for a logarithmic scale"


@dataclass(frozen=True)
class Variation:
    """A field of a recipe and the values to draw from.

    Attributes:
        field: its name, such as ``training.batch_size``.
        choices: the values; empty for a range.
        low, high: the ends of the range, both included; integers if both are.
        log: draw uniformly on a logarithmic scale.
    """

    field: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @classmethod
    def parse(cls, text: str) -> Variation:
        """Read ``FIELD=A,B,C``, ``FIELD=LOW:HIGH`` or ``FIELD=LOW:HIGH:log``.

        Raises:
            RecipeError: another form, or a range whose ends are not in order.

        Example:
            >>> Variation.parse("training.batch_size=32,64").choices
            (32, 64)
        """
        wrong_form = RecipeError(f"cannot vary {text!r}; write {_FORMS}")
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not all(name.split(".")) or not values.strip():
            raise wrong_form
        parts = values.split(":")
        if len(parts) in (2, 3) and parts[2:] in ([], ["log"]):
            low, high = (_number(part) for part in parts[:2])
            if low is not None and high is not None:
                log = len(parts) == 3
                if low >= high or (log and low <= 0):
                    problem = "LOW must be above 0 for :log" if log and low < high else "LOW must be below HIGH"
                    raise RecipeError(f"cannot vary {text!r}: {problem}")
                return cls(name, (), low, high, log)
        if any(_is_range(part.split(":")) for part in values.split(",")):  # YAML reads it as a number to the base 60
            raise wrong_form
        try:
            choices = load_yaml(f"[{values}]")
        except RecipeError as error:
            raise wrong_form from error
        if any(isinstance(choice, dict) for choice in choices):  # from A: B
            raise wrong_form
        return cls(name, tuple(choices))

    def suggested(self, trial: optuna.Trial) -> Any:
        """Return the value that an Optuna trial suggests."""
        if self.choices:
            return self.choices[trial.suggest_categorical(self.field, range(len(self.choices)))]
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.field, self.low, self.high, log=self.log)
        value = trial.suggest_float(self.field, self.low, self.high, log=self.log)
        widths = max(abs(self.low), abs(self.high)) / (self.high - self.low)
        digits = _DIGITS + max(0, math.floor(math.log10(widths)))
        return min(max(float(f"{value:.{digits}g}"), float(self.low)), float(self.high))

    @property
    def parameters(self) -> list[int] | None:
        """All values of the Optuna parameter; None if it is continuous."""
        if self.choices:
            return list(range(len(self.choices)))
        return (
            list(range(self.low, self.high + 1)) if isinstance(self.low, int) and isinstance(self.high, int) else None
        )

    @property
    def examples(self) -> Sequence[Any]:
        """The choices, or both ends of the range."""
        return self.choices or (self.low, self.high)


def _is_range(parts: Sequence[str]) -> bool:
    return len(parts) > 1 and all(_number(part) is not None for part in parts[:2])


def _number(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
