"""What a tree layer returns: the states of every node and the encoding of every tree."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treemem.engines.propagate import NodeStates
from treemem.errors import CellError, GraphError, quoted
from treemem.networks.encoder_output import EncoderOutput


class TreeStates(EncoderOutput):
    """The states of a batch.

    ``states.h``, ``states.c`` and ``states.S`` (those that the layer has) are ``[nodes, ...]``, in node order, and so
    is ``states["name"]`` for any name. With ``keep="roots"`` there is only ``root``.

    Args:
        node_states: the states and where each node's are.
        trees_per_example: how many trees make an example.
        output: name of the state that encodes a tree.
        only_roots: whether the states are those of the roots, and no other node's are there.
        trace: what each node's step did, by name, ``[nodes, ...]``; empty unless it was asked for. The network's class
            says what the names mean.

    Attributes:
        names: of the states.
        rows: the states as they were computed, ``[rows, ...]``; with shared subtrees several nodes have one row.
    """

    def __init__(
        self,
        node_states: NodeStates,
        trees_per_example: int = 1,
        output: str = "h",
        only_roots: bool = False,
        trace: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.rows: Mapping[str, torch.Tensor] = node_states.states
        self.names = tuple(node_states.states)
        self.auxiliary_losses = {}
        self.trace = dict(trace or {})
        self.state = None
        self._row_of_node = node_states.row_of_node
        self._row_of_root = node_states.row_of_root
        self._trees_per_example = trees_per_example
        self._output = output
        self._only_roots = only_roots
        self._gathered: dict[str, torch.Tensor] = {}

    @property
    def root(self) -> torch.Tensor:  # type: ignore[override]
        """The encoding of every tree, ``[examples, trees_per_example, hidden_size]``.

        Raises:
            CellError: the cell makes no state of the name that the network's ``output`` says.
        """
        if self._output not in self.rows:
            raise CellError(f"output={self._output!r} names no state; there are {quoted(self.names)}")
        encoding = self.rows[self._output].index_select(0, self._row_of_root)
        num_examples = len(encoding) // self._trees_per_example
        return encoding.reshape(num_examples, self._trees_per_example, *encoding.shape[1:])

    @property
    def outputs(self) -> torch.Tensor:  # type: ignore[override]
        """The state that encodes the subtree of each node, ``[nodes, hidden_size]``."""
        return self[self._output]

    def __getitem__(self, name: str) -> torch.Tensor:
        """The state called ``name`` of every node, in node order, ``[nodes, ...]``.

        Raises:
            CellError: there is none of that name.
        """
        if name not in self.rows:
            raise CellError(f"there is no state {name!r}; there are {quoted(self.names)}")
        if self._only_roots:
            raise GraphError("only the encodings were kept; run the layer with keep='all' for the states of every node")
        rows, kept = self.rows[name], self._gathered.get(name)
        if kept is None:
            kept = rows.index_select(0, self._row_of_node)
            if kept.requires_grad == rows.requires_grad and kept.is_inference() == rows.is_inference():
                self._gathered[name] = kept  # else it was asked for without gradients, and may be asked for with them
        return kept

    def __getattr__(self, name: str) -> torch.Tensor:
        if not name.startswith("_") and name in self.__dict__.get("rows", ()):
            return self[name]
        raise AttributeError(f"there is no state {name!r}; there are {quoted(self.__dict__.get('names', ()))}")

    def __repr__(self) -> str:
        what = f"{len(self._row_of_root)} roots" if self._only_roots else f"{len(self._row_of_node)} nodes"
        return f"<TreeStates {', '.join(self.names)} of {what}>"
