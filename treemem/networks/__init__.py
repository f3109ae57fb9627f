"""Networks by name: the registry, and a network with its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from treemem.errors import RecipeError, near_names, quoted
from treemem.registry import Registry, folder_constants
from treemem.trees.tokens import TokenForm

if TYPE_CHECKING:
    from treemem.trees.vocabulary import Vocabulary


@dataclass(frozen=True)
class NetworkConfig:
    """A network as a recipe or a checkpoint names it.

    Attributes:
        network: its name in the registry ``NETWORKS``.
        options: arguments of its constructor, besides the vocabulary.
    """

    network: str
    options: dict[str, Any] = field(default_factory=dict)

    def replace(self, **options: Any) -> NetworkConfig:
        """The same network with some options changed."""
        return NetworkConfig(self.network, {**self.options, **options})

    def constructor(self, more: Mapping[str, Callable[..., nn.Module]] | None = None) -> Callable[..., nn.Module]:
        """What makes the network; ``more`` are classes by name that count before the registered ones.

        Raises:
            RecipeError: a name that is not registered.
        """
        return (more or {}).get(self.network) or NETWORKS.find(self.network)

    def build(
        self,
        vocabulary: Vocabulary,
        more: Mapping[str, Callable[..., nn.Module]] | None = None,
        *,
        form: TokenForm | None = None,
    ) -> nn.Module:
        """The network with fresh weights.

        Args:
            vocabulary: the labels that it knows.
            more: classes by name that count before the registered ones.
            form: how it reads trees as tokens, where it does so and its options do not say.

        Raises:
            RecipeError: a name that is not registered, or an option that the network does not have or take.
        """
        network_class = self.constructor(more)
        known = [name for name in inspect.signature(network_class).parameters if name != "vocabulary"]
        for name in self.options:
            if name not in known:
                raise RecipeError(
                    f"{self.network} has no option {name!r}{near_names(name, known)}; it has {', '.join(known)}"
                )
        options = {"form": form, **self.options} if form is not None and "form" in known else self.options
        try:
            return network_class(vocabulary=vocabulary, **options)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            problem = str(error).partition("\n")[0]  # torch adds where in its own code
            raise RecipeError(f"{self.network} cannot be made with {self.options}: {problem}") from error


class NetworkTable(dict[str, NetworkConfig]):
    """Networks by name. An unknown name is a ``RecipeError`` that names those that are there."""

    def __missing__(self, name: str) -> NetworkConfig:
        hint = near_names(name, self) or f"; there are {quoted(self, most=20)}"
        if "," in name:
            hint = f"; separate names by spaces, not by commas{hint}"
        raise RecipeError(f"no network {name!r}{hint}")


NETWORKS: Registry[Callable[..., nn.Module]] = Registry("network", "treemem.networks", "NETWORKS")
_WINGS = ("trees", "parsers", "sequences", "memories", "pairs")


def every_network(hidden_size: int) -> dict[str, NetworkConfig]:
    """Return all networks under the names of the tables, as a task offers those it does not configure.

    They are the ``ROWS`` of the networks' folders: a name to the network, with options that are not at their defaults.
    An option with several values gets the first one that divides ``hidden_size``. After the networks of the library
    come those of installed packages, under the names of their entry points.
    """
    rows: dict[str, str | tuple[str, dict[str, Any]]] = {}
    for wing in _WINGS:
        of_wing = dict(row for _, table in folder_constants(f"{__name__}.{wing}", "ROWS") for row in table.items())
        rows |= {name: of_wing[name] for name in sorted(of_wing)}
    rows |= {name: name for name in NETWORKS.installed_names()}
    pairs = {name: (row, {}) if isinstance(row, str) else row for name, row in rows.items()}
    return {name: NetworkConfig(network, _at(hidden_size, options)) for name, (network, options) in pairs.items()}


def _at(hidden_size: int, options: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {
        name: next(divisor for divisor in value if hidden_size % divisor == 0) if isinstance(value, tuple) else value
        for name, value in options.items()
    }
    return {"hidden_size": hidden_size, **chosen}
