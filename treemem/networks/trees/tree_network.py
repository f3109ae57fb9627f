"""A cell as a layer: trees in, states out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args, overload

import torch

from treemem.checked_options import checked_choice, checked_count
from treemem.data.as_batch import as_batch, is_graph
from treemem.engines.activation import ActivationName, checked_activation
from treemem.engines.cell import Cell, Features, GivenRows, State, check_cell, feature_rows
from treemem.engines.cuda.trees_in_bucket import TreesInBucket
from treemem.engines.downward import Direction, DownwardCell, propagate_both
from treemem.engines.propagate import Engine, NodeStates, checked_engine, propagate, run_rows
from treemem.engines.step_trace import trace_steps
from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.networks.encoder import Encoder, VectorChange, checked_features, without_compile
from treemem.networks.trees.leaf_encoder import LeafEncoder, LeafForm
from treemem.networks.trees.parameter_sets import check_vocabulary
from treemem.networks.trees.partitioned_run import root_states
from treemem.networks.trees.split_tree_cell import node_size
from treemem.networks.trees.tree_states import TreeStates
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    import dgl
    from torch_geometric.data import Data

_GATES = ("push", "pop", "no_op", "forget", "children", "input", "update", "output", "readout")
_PER_CHILD = {"forget": ("children",), "children": ("children",)}


class TreeNetwork(Encoder, torch.nn.Module):
    """A layer that runs a cell over trees, from the leaves to the roots, and optionally a second cell back down.

    Equal subtrees are computed once, so all their occurrences share one dropout mask. The input of ``cell.leaf`` are
    the node's features (with ``input_size``), the embedding of its label (with ``embedding_size``), or otherwise an
    empty tensor ``[m, 0]``. Inner nodes have the same input with ``node_features``. With ``embedding_size``, they also
    have it without ``node_features`` if a kind of the vocabulary has several labels (``kinds="arity"``), because the
    cell cannot tell these labels from the kind.

    Args:
        cell: the cell; :class:`treemem.ops.Cell` describes its methods.
        vocabulary: the labels.
        embedding_size: width of the embeddings of labels.
        input_size: width of the features; every call then needs ``feat``.
        node_features: inner nodes read their features, or the embeddings of their labels, too. If False, only leaves
            do, with the exception above.
        leaf: how symbols become vectors; see :class:`treemem.nn.LeafEncoder`.
        number_activation: activation function of the number encoder.
        output: name of the state that encodes a tree.
        down: the cell of the pass from the roots to the leaves; :class:`treemem.ops.DownwardCell` describes its
            methods. It reads the ``output`` of each node in the upward pass. It computes each node separately, also in
            equal subtrees.
        direction: ``"up"``: only the upward pass, without ``down``. ``"down"``: the states are those of the downward
            pass. ``"both"``: ``output`` is the concatenation of both passes, so encodings are twice as wide; the states
            of the passes are named ``up_...`` and ``down_...``.
        engine: ``"auto"``, ``"native"``, ``"cuda"``, ``"autograd"`` or ``"naive"``; see :func:`treemem.ops.propagate`.
            All give the same numbers.

    Raises:
        RecipeError: an unknown engine, leaf form or direction; a direction that does not fit ``down``; a size that is
            not a whole number; both sizes at once; or a ``node_features`` that is not a flag.

    Example:
        >>> class Sum(torch.nn.Module):
        ...     def leaf(self, x, kind):
        ...         return {"h": x}
        ...     def forward(self, children, x, kind):
        ...         return {"h": x + children["h"].sum(1)}
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "y"], [("f", 2)])
        >>> network = TreeNetwork(Sum(), vocabulary=vocabulary, embedding_size=8, node_features=True)
        >>> batch = TreeBatch.from_trees([Tree("f", [Tree("x"), Tree("y")])], vocabulary)
        >>> network(batch).root.shape
        torch.Size([1, 1, 8])
    """

    def __init__(
        self,
        cell: Cell,
        *,
        vocabulary: Vocabulary | None = None,
        embedding_size: int | None = None,
        input_size: int | None = None,
        node_features: bool = False,
        leaf: LeafForm = "embedding",
        number_activation: ActivationName = "sigmoid",
        output: str = "h",
        down: DownwardCell | Cell | None = None,
        direction: Direction = "up",
        engine: Engine = "auto",
    ) -> None:
        super().__init__()
        checked_choice("direction", direction, get_args(Direction))
        if (direction == "up") != (down is None):
            raise RecipeError(f"direction={direction!r} " + ("needs down" if down is None else "has no use for down"))
        if embedding_size is not None and vocabulary is None:
            raise RecipeError("embedding_size needs a vocabulary: the labels that have vectors")
        if embedding_size is not None and input_size is not None:
            raise RecipeError("embedding_size and input_size: leaves read either vectors of their labels or features")
        check_vocabulary(vocabulary)
        for name, size in (("embedding_size", embedding_size), ("input_size", input_size)):
            if size is not None:
                checked_count(name, size, least=0)
        checked_choice("leaf", leaf, get_args(LeafForm))
        checked_activation(number_activation)
        node_size(input_size, node_features)
        self.cell = cell
        self.down = down
        self.direction = direction
        self.vocabulary = vocabulary
        self.input_size = input_size
        self.node_features = node_features and input_size is not None
        self.output = output
        self.engine = engine
        self.feature_map: torch.nn.Module | None = None
        self.leaves: LeafEncoder | None = None
        if vocabulary is not None and embedding_size is not None:
            functions = node_features or any(len(labels) > 1 for labels in vocabulary.labels_of_kind)
            self.leaves = LeafEncoder(vocabulary, embedding_size, leaf, number_activation, functions)

    @property
    def engine(self) -> Engine:
        """How the layer runs; may be set at any time."""
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = checked_engine(engine)

    def read_features(self, width: int) -> None:
        if self.leaves is None or self.input_size is not None:
            super().read_features(width)
        self.input_size = checked_count("width", width)
        self.feature_map = torch.nn.Linear(width, self.leaves.embedding.embedding_dim)  # type: ignore[union-attr]
        self._keep_functions()

    def _keep_functions(self) -> None:
        """Drop what encodes leaves, which read features; keep the vectors of labels for inner nodes that read them."""
        if self.leaves is not None and self.leaves.reads_functions:
            self.leaves.number = None
        else:
            self.leaves = None

    sort_key = "height"

    @property
    def supports_shared_subtrees(self) -> bool:
        """Whether the network goes up only and reads no features, on an engine other than ``"naive"``."""
        return self.down is None and self.input_size is None and self.engine != "naive"

    @property
    def reads_vectors(self) -> bool:
        """Whether leaves read the vectors of their labels, or features."""
        return self.leaves is not None or self.input_size is not None

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        """The axes of the gates, in the order in which they are shown."""
        return {name: ("nodes", *_PER_CHILD.get(name, ()), "hidden") for name in _GATES}

    def reset_parameters(self) -> None:
        """Draw new weights, in the cell too where it has ``reset_parameters``."""
        for module in self.children():
            if callable(getattr(module, "reset_parameters", None)):
                module.reset_parameters()  # type: ignore[operator]

    @overload
    def forward(
        self,
        batch: TreeBatch | TreesInBucket,
        feat: torch.Tensor | None = None,
        *,
        keep: Literal["all", "roots"] = "all",
        rows_at_once: int = 32_768,
        trace: bool = False,
        change_vectors: VectorChange | None = None,
    ) -> TreeStates: ...

    @overload
    def forward(self, batch: dgl.DGLGraph | Data | torch.Tensor, feat: torch.Tensor | None = None) -> torch.Tensor: ...

    @without_compile
    def forward(
        self,
        batch: TreeBatch | TreesInBucket | dgl.DGLGraph | Data | torch.Tensor,
        feat: torch.Tensor | None = None,
        *,
        keep: Literal["all", "roots"] = "all",
        rows_at_once: int = 32_768,
        trace: bool = False,
        change_vectors: VectorChange | None = None,
    ) -> TreeStates | torch.Tensor:
        """Run the cell over every node.

        Args:
            batch: trees, or what :func:`treemem.as_batch` makes a batch of, such as a ``DGLGraph``, a ``Data`` of
                PyG, or, as layers of PyG take them, the features, and then ``edge_index`` in place of ``feat``. For
                trees in a bucket see :meth:`in_bucket`.
            feat: features, one row a node in node order, ``[nodes, input_size]``; by default the batch's own.
            keep: ``"roots"``: return only the encodings of the trees. Trees of more than ``rows_at_once`` inner rows
                are run part by part, and the backward pass runs each part again. This needs the memory of one part,
                and gives the same numbers and gradients, on an engine other than ``"naive"``.
            rows_at_once: inner rows of a part.
            trace: whether to fill the result's ``trace`` with the gates of each node's upward step, without gradients.
                Your own cell defines them in ``trace`` (see :func:`treemem.engines.step_trace.trace_steps`).
            change_vectors: what nodes read in place of the vectors of their labels, or of their features. It is called
                for the leaves, and for the inner nodes if they read vectors.

        Returns:
            For a batch the states of every node and the encoding of every tree; for a graph the tensor ``h`` in its
            node order, ``[nodes, hidden_size]``, as modules of ``dgl.nn`` return it.

        A layer to which the order of children matters warns (:class:`treemem.errors.ChildOrderWarning`) if the edges of
        a graph have no field ``position``.

        Raises:
            GraphError: a graph that is no forest, features that do not fit, or nodes that the cell cannot take.
            VocabularyError: labels of another vocabulary.
            CellError: a cell whose states are not what the protocol says.
            RecipeError: parts of less than a row, or roots only of a graph or from an engine that keeps all states, or
                a trace of a graph or of roots only.
        """
        if isinstance(batch, TreesInBucket):
            return self.in_bucket(batch)
        checked_choice("keep", keep, ("all", "roots"))
        gives_tensor = is_graph(batch)
        if trace and (gives_tensor or keep == "roots"):
            raise RecipeError("trace=True needs a TreeBatch and keep='all': it tells what the step of every node did")
        if gives_tensor and keep == "roots":
            raise RecipeError("keep='roots' needs a TreeBatch: of a graph the states of every node come back")
        ordered_for = self if getattr(self.cell, "ordered", False) else None
        trees = as_batch(batch, self.vocabulary, feat, ordered_for=ordered_for, any_number_of_trees=gives_tensor)
        if not isinstance(trees, TreeBatch):
            raise GraphError(f"{type(self).__name__} reads trees, not a {type(trees).__name__}; give it a TreeBatch")
        if keep == "roots":
            return self._run_parts(trees, rows_at_once)
        states = self._run(trees, trace=trace, change_vectors=change_vectors)
        return states[self.output] if gives_tensor else states

    @property
    def why_not_in_bucket(self) -> str | None:
        """Why :meth:`in_bucket` does not serve this network; None if it does."""
        if self.down is not None:
            return "the way down is made for each batch"
        return "the engine 'naive' passes messages by DGL" if self.engine == "naive" else None

    @without_compile
    def in_bucket(self, trees: TreesInBucket) -> TreeStates:
        """Run over trees that :class:`treemem.ops.CapturedStep` hands to a step.

        What runs depends on the bucket alone. Outputs are those of :meth:`forward`, followed by those of added examples
        and nodes, which are copies of the first ones. In a CUDA graph the layer runs on the engine ``"cuda"``, also if
        its engine is ``"auto"``. Weights of labels that a batch does not have get a gradient of 0, never None.

        Args:
            trees: which the step gets in the place of a :class:`treemem.TreeBatch`.

        Raises:
            RecipeError: the network cannot; says why.
            GraphError, VocabularyError, CellError: as :meth:`forward`.
        """
        if self.why_not_in_bucket is not None:
            raise RecipeError(f"{type(self).__name__} cannot run trees in buckets: {self.why_not_in_bucket}")
        check_cell(self.cell)
        self._check_labels(trees)
        schedule = trees.schedule
        self._check_leaves(schedule.to("cpu"))
        self.check(schedule.to("cpu"))
        inputs = self._inputs(schedule, trees.feat, next(self.parameters(), trees.feat))
        states = run_rows(self.cell, schedule, *inputs, engine=self.engine)  # type: ignore[arg-type]
        node_states = NodeStates(states, schedule.row_of_node, schedule.row_of_root)
        return TreeStates(node_states, trees.trees_per_example, self.output)

    def run_from(self, batch: TreeBatch, given: State) -> TreeStates:
        """Run over the remaining rows of a batch (:func:`treemem.schedule.remaining.remaining_rows`).

        Args:
            batch: the remaining rows and the given ones.
            given: the states of the given rows, ``[given rows, ...]``; empty where there are none.
        """
        return self._run(batch, given)

    def _run(
        self,
        batch: TreeBatch,
        given: State | None = None,
        *,
        trace: bool = False,
        change_vectors: VectorChange | None = None,
    ) -> TreeStates:
        self._check_labels(batch)
        like = next(self.parameters(), batch.feat)
        batch = self._beside(like, batch)
        self.check(batch.schedule)
        leaf_inputs, inner_inputs = self._inputs(batch.schedule, batch.feat, like)
        if change_vectors is not None:
            of_leaves, of_inner = batch.schedule.to("cpu").node_of_row.tensor_split([batch.schedule.num_leaf_rows])
            leaf_inputs, inner_inputs = change_vectors(leaf_inputs, of_leaves), feature_rows(inner_inputs)
            inner_inputs = None if inner_inputs is None else change_vectors(inner_inputs, of_inner)
        cell: Cell = self.cell
        if given:
            num_given = batch.schedule.num_leaf_rows - len(leaf_inputs)
            leaf_inputs = torch.cat([leaf_inputs, leaf_inputs.new_zeros(num_given, leaf_inputs.shape[1])])
            cell = GivenRows(cell, given)
        states = propagate(cell, batch, leaf_inputs, inner_inputs, engine=self.engine)
        traced = trace_steps(cell, batch.schedule, states, leaf_inputs, feature_rows(inner_inputs)) if trace else None
        if self.down is not None:
            states = propagate_both(self.down, batch, states, self.output, self.direction, engine=self.engine)
        return TreeStates(states, batch.trees_per_example, self.output, trace=traced)

    def _beside(self, like: torch.Tensor | None, batch: TreeBatch) -> TreeBatch:
        """The batch where ``like`` is; what is wrong with its leaves is told before, which waits for nothing."""
        if like is None or like.device == batch.device:
            return batch
        self._check_leaves(batch.schedule)
        return batch.to(like.device)

    def _check_leaves(self, schedule: Schedule) -> None:
        if self.leaves is not None:
            if self.input_size is None:
                self.leaves.check(schedule)
            if self.leaves.reads_functions:
                self.leaves.check_functions(schedule)

    def _run_parts(self, batch: TreeBatch, rows_at_once: int) -> TreeStates:
        checked_count("rows_at_once", rows_at_once)
        if self.down is not None:
            raise RecipeError("a layer that goes down reads the states of every node; it has no keep='roots'")
        if self.engine == "naive":
            raise RecipeError("the engine 'naive' keeps all states; set it to 'auto' to keep roots only")
        feat = batch.feat
        batch = self._beside(next(self.parameters(), feat), batch)

        def run(schedule: Schedule, given: State) -> State:
            return dict(self._run(TreeBatch(schedule, batch.vocabulary, feat=feat), given).rows)

        def learned() -> Iterator[torch.Tensor]:
            yield from self.parameters()
            if feat is not None:
                yield feat

        states = root_states(run, batch.schedule, rows_at_once, learned)
        places = torch.arange(batch.num_trees, device=batch.device)
        kept = NodeStates(states, places[:0], places)
        return TreeStates(kept, batch.trees_per_example, self.output, only_roots=True)

    def check(self, schedule: Schedule) -> None:
        """Make sure that the cell can take every node of ``schedule``; layers of a fixed set of kinds override it.

        Raises:
            GraphError: it cannot; the message names the node.
        """

    def _check_labels(self, batch: TreeBatch | TreesInBucket) -> None:
        if self.vocabulary is None or batch.vocabulary is self.vocabulary:
            return
        if batch.vocabulary is None:
            raise VocabularyError(
                "the layer has a vocabulary, and the batch has no labels. Make the batch with the vocabulary; for "
                "features without labels, make the layer with input_size and without a vocabulary"
            )
        if batch.vocabulary != self.vocabulary:
            raise VocabularyError("the batch was made with another vocabulary than the layer's")

    def _inputs(
        self, schedule: Schedule, feat: torch.Tensor | None, like: torch.Tensor | None
    ) -> tuple[torch.Tensor, Features]:
        """What leaf rows and inner rows read, in row order."""
        num_leaves = len(schedule.symbol)
        reads_labels = self.leaves is not None and self.leaves.reads_functions
        of_labels = self.leaves.labels_of_functions(schedule) if reads_labels else None  # type: ignore[union-attr]
        if self.input_size is None:
            if feat is not None:
                raise GraphError("this layer takes no features; make it with input_size, the width of the features")
            if self.leaves is not None:
                return self.leaves(schedule), of_labels
            return torch.zeros(num_leaves, 0, device=schedule.child.device), None
        feat = checked_features(feat, schedule.num_nodes, self.input_size)
        if schedule.shared:
            raise GraphError("nodes with features cannot share rows; make the batch with share_subtrees=False")
        if like is not None:
            feat = feat.to(like.device, like.dtype)
        of_leaves = feat.index_select(0, schedule.node_of_row[:num_leaves])
        of_leaves = of_leaves if self.feature_map is None else self.feature_map(of_leaves)
        if not self.node_features:
            return of_leaves, of_labels
        return of_leaves, feat.index_select(0, schedule.node_of_row[schedule.num_leaf_rows :])
