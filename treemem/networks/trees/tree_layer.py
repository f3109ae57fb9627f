"""The base class of the library's tree layers: a cell for each arity, and leaves by their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from treemem.engines.activation import ActivationName
from treemem.engines.downward import Direction
from treemem.engines.propagate import Engine, checked_engine
from treemem.errors import RecipeError
from treemem.networks.recorded_options import RecordedOptions, SettableOption
from treemem.networks.trees.leaf_encoder import LeafEncoder, LeafForm
from treemem.networks.trees.parameter_sets import ParameterSets, SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.tree_network import TreeNetwork
from treemem.schedule.schedule import Schedule
from treemem.trees.vocabulary import Vocabulary


class TreeOptions(TypedDict, total=False):
    """The options of :class:`TreeLayer`."""

    input_size: int | None
    embedding_size: int | None
    node_features: bool
    leaf: LeafForm
    number_activation: ActivationName
    dropout: float
    engine: Engine


class ArityOptions(TreeOptions, total=False):
    """And those of layers with parameters for each arity."""

    arities: Sequence[int] | None
    shared_kinds: bool
    max_arity: int


class TreeLayer(RecordedOptions, TreeNetwork, without=("new_cell", "new_down", "direction", "sets")):
    """The base class of the library's tree layers.

    Without features, leaves are embeddings with the cell's ``hidden_size``, or, with ``embedding_size``, compute the
    cell from embeddings of that width. If inner nodes with different labels share parameters, each of them reads the
    embedding of its label, beside its children's states, in place of features. They share parameters with
    ``kinds="arity"`` in the vocabulary, with ``shared_kinds=True``, and in :class:`ChildSumTreeLSTM`.

    Args:
        new_cell: makes the cell.
        hidden_size: width of ``h``.
        vocabulary, leaf, number_activation, engine, direction: see :class:`TreeNetwork`.
        new_down: makes the cell of the downward pass, if there is one, from ``hidden_size``, ``sets`` and ``dropout``.
        sets: which kinds share parameters; by default as ``arities``, ``shared_kinds`` and ``max_arity`` say.
        input_size: width of the features of leaves.
        embedding_size: width of the vectors of labels; a leaf then computes the cell from its vector, as from features.
            None: the vector of a leaf's label is its ``h``, as in the code published with Arabshahi et al. 2020.
        node_features: inner nodes read their features too, beside their children's states. If False, only leaves do.
        arities: the arities that have parameters in a layer without a vocabulary; by default only 2.
        shared_kinds: all kinds of the same arity share their parameters.
        dropout: dropout probability at inner nodes; the layer says of what.
        max_arity: the largest number of children; a node with more raises :class:`GraphError`.

    Attributes:
        hidden_size: width of the encodings.
        options: ``type(layer)(vocabulary=vocabulary, **layer.options)`` makes a layer like this one.
    """

    engine: SettableOption[Engine] = SettableOption(lambda _, engine: checked_engine(engine))

    def __init__(
        self,
        new_cell: Callable[[Any, CellOptions], SplitTreeCell],
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        new_down: Callable[[int, SetsByArity, float], SplitTreeCell] | None = None,
        direction: Direction = "up",
        sets: ParameterSets | None = None,
        *,
        input_size: int | None = None,
        embedding_size: int | None = None,
        node_features: bool = True,
        arities: Sequence[int] | None = None,
        shared_kinds: bool = False,
        leaf: LeafForm = "embedding",
        number_activation: ActivationName = "sigmoid",
        dropout: float = 0.0,
        max_arity: int = 32,
        engine: Engine = "auto",
    ) -> None:
        by_arity = SetsByArity(vocabulary, arities, shared_kinds, max_arity)
        if embedding_size is not None and input_size is not None:
            raise RecipeError("embedding_size and input_size: leaves read either vectors of their labels or features")
        cell = new_cell(sets or by_arity, CellOptions(hidden_size, input_size, node_features, dropout, embedding_size))
        goes_down = new_down is not None and direction != "up"
        if vocabulary is None and input_size is None:
            raise RecipeError(f"{type(self).__name__} needs a vocabulary, or input_size for features at the leaves")
        of_labels = cell.hidden_size if embedding_size is None else embedding_size
        super().__init__(
            cell,
            vocabulary=vocabulary,
            embedding_size=of_labels if input_size is None else None,
            input_size=input_size,
            node_features=cell.node_input_size is not None,
            leaf=leaf,
            number_activation=number_activation,
            down=new_down(hidden_size, by_arity, dropout) if goes_down else None,  # type: ignore[misc]
            direction=direction,
            engine=engine,
        )
        if cell.reads_labels and input_size is not None:
            assert vocabulary is not None
            self.node_features = False
            self.leaves = LeafEncoder(vocabulary, cell.hidden_size, leaf, number_activation, functions=True)
            self._keep_functions()
        self.hidden_size: int = cell.hidden_size * (2 if direction == "both" else 1)
        self._sets = cell.sets

    def check(self, schedule: Schedule) -> None:
        """Make sure that every node has parameters.

        Raises:
            GraphError: an arity without; the message names it and the node.
        """
        if isinstance(self._sets, SetsByArity):
            self._sets.check(schedule, type(self).__name__)
