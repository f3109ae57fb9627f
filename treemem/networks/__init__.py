"""Networks by name: the registry, and a network with its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from treemem.errors import RecipeError, near_names, quoted
from treemem.registry import Registry
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

    def constructor(self, own: Mapping[str, Callable[..., nn.Module]] | None = None) -> Callable[..., nn.Module]:
        """What makes the network; ``own`` are classes by name that count before the registered ones.

        Raises:
            RecipeError: a name that is not registered.
        """
        return (own or {}).get(self.network) or NETWORKS.find(self.network)

    def build(
        self,
        vocabulary: Vocabulary,
        own: Mapping[str, Callable[..., nn.Module]] | None = None,
        *,
        form: TokenForm | None = None,
    ) -> nn.Module:
        """The network with fresh weights.

        Args:
            vocabulary: the labels that it knows.
            own: classes by name that count before the registered ones.
            form: how it reads trees as tokens, where it does so and its options do not say.

        Raises:
            RecipeError: a name that is not registered, or an option that the network does not have or take.
        """
        network_class = self.constructor(own)
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


NETWORKS: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    "treemem.networks",
    {
        name: f"treemem.nn:{name}"
        for name in (
            "TreeRNN",
            "TreeLSTM",
            "ChildSumTreeLSTM",
            "TreeCell",
            "StackTreeRNN",
            "StackTreeLSTM",
            "RNN",
            "LSTM",
            "MemoryRNN",
            "OrderedMemory",
            "ONLSTM",
            "Transformer",
            "UniversalTransformer",
            "EfficientBeamTreeGRC",
            "BeamTreeGRC",
            "GumbelTreeLSTM",
            "CRvNN",
            "DIORA",
            "SPINN",
            "DisjointTreeLSTM",
            "RRNet",
            "SequenceToSequence",
            "LanguageModel",
            "PRPN",
            "WordByWordAttention",
            "AttentiveReader",
            "ImpatientReader",
            "DeepLSTMReader",
        )
    },
)


def every_network(hidden_size: int) -> dict[str, NetworkConfig]:
    """Return all networks under the names of the tables, as a task offers those it does not configure.

    After those of the library come those of installed packages, under the names of their entry points.

    The options are the defaults, but for a Universal Transformer that normalises first (it stays at chance otherwise),
    and for numbers of heads and chunk sizes that divide ``hidden_size``.
    """
    size = {"hidden_size": hidden_size}
    stack = {**size, "stack_size": 5}
    heads = {**size, "num_heads": next(count for count in (8, 5, 4, 2, 1) if hidden_size % count == 0)}
    chunk_size = next(count for count in (10, 8, 5, 4, 2, 1) if hidden_size % count == 0)
    return {
        "Tree-RNN": NetworkConfig("TreeRNN", size),
        "Tree-RNN+stack": NetworkConfig("StackTreeRNN", {**stack, "no_op": False}),
        "Tree-RNN+stack+no-op": NetworkConfig("StackTreeRNN", {**stack, "no_op": True}),
        "Tree-LSTM": NetworkConfig("TreeLSTM", size),
        "Tree-LSTM+stack": NetworkConfig("StackTreeLSTM", {**stack, "normalize": False, "no_op": False}),
        "Tree-LSTM+stack+normalize": NetworkConfig("StackTreeLSTM", {**stack, "normalize": True, "no_op": False}),
        "Tree-LSTM+stack+normalize+no-op": NetworkConfig("StackTreeLSTM", {**stack, "normalize": True, "no_op": True}),
        "Child-Sum Tree-LSTM": NetworkConfig("ChildSumTreeLSTM", size),
        "TreeCell": NetworkConfig("TreeCell", size),
        "Ordered Memory": NetworkConfig("OrderedMemory", size),
        "Ordered Memory, Tree-RNN cell": NetworkConfig("OrderedMemory", {**size, "cell": "rnn"}),
        "ON-LSTM": NetworkConfig("ONLSTM", {**size, "chunk_size": chunk_size, "num_layers": 1}),
        "EBT-GRC": NetworkConfig("EfficientBeamTreeGRC", size),
        "BT-GRC": NetworkConfig("BeamTreeGRC", size),
        "BT-GRC, OneSoft": NetworkConfig("BeamTreeGRC", {**size, "top_k": "onesoft"}),
        "Gumbel Tree-LSTM": NetworkConfig("GumbelTreeLSTM", size),
        "CRvNN": NetworkConfig("CRvNN", size),
        "DIORA": NetworkConfig("DIORA", size),
        "SPINN": NetworkConfig("SPINN", size),
        "SPINN, gold transitions": NetworkConfig("SPINN", {**size, "transitions": "gold", "tracker_size": 0}),
        "RL-SPINN": NetworkConfig("SPINN", {**size, "transitions": "reinforced"}),
        "Disjoint Tree-LSTM": NetworkConfig("DisjointTreeLSTM", size),
        "RRNet": NetworkConfig("RRNet", size),
        "RNN": NetworkConfig("RNN", size),
        "LSTM": NetworkConfig("LSTM", size),
        "Transformer": NetworkConfig("Transformer", {**heads, "num_layers": 4}),
        "Universal Transformer": NetworkConfig("UniversalTransformer", {**heads, "num_steps": 6, "norm_first": True}),
        **{name: NetworkConfig(name, size) for name in NETWORKS.installed_names()},
    }
