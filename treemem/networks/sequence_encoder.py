"""What all sequence encoders have in common: trees read as tokens, one encoding for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.checked_options import (
    Count,
    Positive,
    Probability,
    checked_count,
)
from treemem.data.as_batch import as_batch
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch, TokenBucket
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import entry_of_each, within
from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.networks.encoder import Encoder, VectorChange, checked_features, without_compile
from treemem.networks.encoder_output import SequenceStates
from treemem.networks.recorded_options import RecordedOptions
from treemem.networks.resettable import Resettable
from treemem.schedule.padded import rounded
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tokens import TokenForm, ambiguous_label, token_table
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


class SequenceOutput(NamedTuple):
    """What :meth:`SequenceEncoder.read` returns for sequences of vectors.

    Attributes:
        encoding: of each sequence, ``[sequences, hidden_size]``; 0 for an empty one.
        outputs: at every token, ``[sequences, longest, hidden_size]``, 0 after the end of shorter sequences.
        trace: what the network did at each step, by name, ``[sequences, ...]``; empty unless it was asked for.
        auxiliary_losses: further losses by name.
        state: after the last token of each sequence, for a network that carries it on.
    """

    encoding: torch.Tensor
    outputs: torch.Tensor
    trace: Mapping[str, torch.Tensor] = {}
    auxiliary_losses: Mapping[str, SumCount] = {}
    state: Any = None


NUM_MARKS = 3
"""Start, delimiter and extract of a pair."""


def pair_lengths(lengths: torch.Tensor) -> torch.Tensor:
    """Return the lengths of pairs, marks included, ``[pairs]``, from those of both trees of each."""
    return lengths.view(-1, 2).sum(1) + NUM_MARKS


class TokenOptions(TypedDict, total=False):
    """The options of :class:`SequenceEncoder`, which subclasses hand on to it."""

    form: TokenForm
    embedding_size: int | None
    embedding_bound: float | None
    input_dropout: float


SequenceBatch = TreeBatch | TokenBatch | Any
"""What a sequence encoder takes: a batch, or what :func:`treemem.as_batch` makes one of."""


class SequenceEncoder(RecordedOptions, Encoder, Resettable):
    """A network that reads each tree of a batch as a sequence of tokens.

    Subclasses define :meth:`read`.

    Args:
        hidden_size: width of the encodings.
        vocabulary: the labels; its tokens in ``form`` have vectors.
        form: how a tree is written; see :func:`treemem.trees.tokens.forest_tokens`.
        embedding_size: width of the tokens' vectors; None: ``hidden_size``.
        embedding_bound: the tokens' vectors start uniformly within plus and minus this; None: from the standard normal
            distribution.
        input_dropout: probability that an entry of a token's vector is dropped in training.

    Attributes:
        options: ``type(layer)(vocabulary=vocabulary, **layer.options)`` makes a layer like this one.

    Raises:
        RecipeError: no vocabulary, an option outside its range, or a form in which different trees of the vocabulary
            have the same tokens.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> class MeanOfTokens(SequenceEncoder):
        ...     def read(self, inputs, lengths, *, trace=False):
        ...         present = torch.arange(inputs.shape[1], device=inputs.device) < lengths[:, None]
        ...         outputs = inputs * present[:, :, None]
        ...         return SequenceOutput(outputs.sum(1) / lengths[:, None], outputs)
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> MeanOfTokens(16, vocabulary, "preorder")(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: Count,
        vocabulary: Vocabulary,
        form: TokenForm = "function",
        embedding_size: int | None = None,
        embedding_bound: Positive | None = None,
        input_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(vocabulary, Vocabulary):
            raise RecipeError(f"a sequence encoder needs a Vocabulary, not {type(vocabulary).__name__}")
        self.hidden_size = hidden_size
        self.vocabulary = vocabulary
        self.form: TokenForm = form
        if (label := ambiguous_label(vocabulary, self.form)) is not None:
            raise RecipeError(
                f'form="preorder" writes no brackets, and {label!r:.100} has several numbers of children, so different '
                'trees would have the same tokens; use form="function" or "brackets"'
            )
        self.embedding_size = checked_count("embedding_size", hidden_size if embedding_size is None else embedding_size)
        self.embedding_bound = embedding_bound
        self.input_dropout = input_dropout
        self.embedding = torch.nn.Embedding(len(token_table(vocabulary, self.form)), self.embedding_size)
        self.reset_embedding()

    reads_vectors = True

    joint: bool = False
    """Whether both trees of an example are one sequence, ``start s1 delimiter s2 extract``, with one encoding."""

    carries_state: bool = False
    """Whether :meth:`read` takes the ``state`` of the batch before."""

    lengths_on_cpu: bool = False
    """Whether :meth:`read` gets lengths on the CPU, for loops that must not wait for the device, or with the inputs."""

    feature_size: int | None = None
    """Width of the features that are read in place of tokens; None: tokens are read."""

    def read_features(self, width: int) -> None:
        if self.form != "leaves":
            super().read_features(width)
        self.feature_size = checked_count("width", width)
        self.embedding = torch.nn.Linear(width, self.embedding_size)  # type: ignore[assignment]

    def reset_embedding(self) -> None:
        """Draw new vectors for the tokens."""
        if self.embedding_bound is None or self.feature_size is not None:
            self.embedding.reset_parameters()
        else:
            torch.nn.init.uniform_(self.embedding.weight, -self.embedding_bound, self.embedding_bound)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self.reset_embedding()

    @without_compile
    def forward(
        self,
        batch: SequenceBatch,
        feat: torch.Tensor | None = None,
        *,
        trace: bool = False,
        change_vectors: VectorChange | None = None,
    ) -> SequenceStates:
        """Read every tree or sequence of a batch.

        Args:
            batch: trees, sequences of token ids, what :func:`treemem.as_batch` makes a batch of, or a :meth:`bucket`.
            feat: after :meth:`read_features`, the features of the nodes, ``[nodes, width]``, of which the leaves' are
                read; by default the batch's own. Otherwise None.
            trace: whether to keep what the network did at each step.
            change_vectors: what is read in place of the vectors of the tokens of a batch of trees.

        Warns with :class:`treemem.errors.ChildOrderWarning` if the edges of a ``DGLGraph`` have no field ``position``.

        Raises:
            GraphError: another batch; with ``joint`` examples that are not pairs; features that do not fit; a graph
                without labels; leaves with numbers as values; a graph that is not a forest; a state for a network
                without one.
            VocabularyError: labels of another vocabulary.
        """
        if isinstance(batch, TokenBucket):
            return self.in_bucket(*batch)
        batch = as_batch(batch, self.vocabulary, feat, ordered_for=self)
        items, lengths = self.items(batch)
        state = getattr(batch, "state", None)
        carried = {} if state is None else {"state": state}
        if carried and not self.carries_state:
            raise GraphError(f"{type(self).__name__} does not carry a state on from the batch before")
        parts = getattr(batch, "trees_per_example", 1)
        if self.joint and parts != 2:
            raise GraphError(
                f"{type(self).__name__} reads pairs of trees, and these examples have {parts}; make the batch with "
                "trees_per_example=2"
            )
        vectors = self.embed(items)
        if change_vectors is not None:
            vectors = change_vectors(vectors, self._node_of_tokens(batch))
        there = to_device(lengths, vectors.device)
        given = lengths if self.lengths_on_cpu else there
        output = self.read(vectors, given, trace=trace, **carried, **self.further_inputs(batch, items))
        expected = [len(lengths) // (2 if self.joint else 1), self.hidden_size]
        if not isinstance(output, SequenceOutput) or [*output.encoding.shape] != expected:
            made = f"an encoding of {[*output.encoding.shape]}" if isinstance(output, SequenceOutput) else type(output)
            raise GraphError(
                f"{type(self).__name__}.read must return a SequenceOutput with the encoding {expected}, not {made}"
            )
        root = output.encoding.reshape(-1, 1 if self.joint else parts, self.hidden_size)
        if self.joint:
            there = to_device(pair_lengths(lengths), vectors.device)
        if not root.requires_grad:  # of a batch without tokens; its gradients are 0
            root = root + vectors[:0].sum()
        return SequenceStates(root, output.outputs, there, output.trace, output.auxiliary_losses, output.state)

    @property
    def why_not_in_bucket(self) -> str | None:
        """Why :meth:`in_bucket` does not serve this network; None if it does."""
        return "its steps depend on the lengths of the sequences"

    @property
    def why_not_captured(self) -> str | None:
        """Why a step over sequences of equal lengths cannot be a CUDA graph; None if it can."""
        return None

    longest_in_bucket: int | None = None
    """The most tokens that a sequence may have; None: any number."""

    def bucket(self, batch: SequenceBatch) -> TokenBucket:
        """Return a batch padded to the length of its bucket, which is up to a quarter above that of the batch.

        Raises:
            GraphError, VocabularyError: as :meth:`forward`.
        """
        batch = as_batch(batch, self.vocabulary, ordered_for=self)
        items, lengths = self.items(batch)
        longest = rounded(items.shape[1], 1)
        if self.longest_in_bucket is not None:
            longest = max(items.shape[1], min(longest, self.longest_in_bucket))
        padded = functional.pad(items, [0, 0] * (items.dim() - 2) + [0, longest - items.shape[1]])
        return TokenBucket(padded, lengths.view(-1, getattr(batch, "trees_per_example", 1)))

    def in_bucket(self, token: torch.Tensor, lengths: torch.Tensor) -> SequenceStates:
        """Read sequences whose lengths only the device knows, as :class:`treemem.ops.CapturedStep` needs.

        What runs depends on the shape of ``token`` alone. Outputs are those of :meth:`forward`; there is no trace, and
        no state is carried on. The network also reads the padding, on which nothing depends.

        Args:
            token: what :meth:`items` returns, after the end any.
            lengths: int64 ``[sequences]`` or, for examples of several sequences, ``[examples, parts]``, where the
                network is.

        Raises:
            RecipeError: the network cannot; says why.
        """
        if self.why_not_in_bucket is not None:
            raise RecipeError(f"{type(self).__name__} cannot read sequences in buckets: {self.why_not_in_bucket}")
        encoding, outputs, losses = self.read_in_bucket(self.embed(token), lengths.flatten())
        root = encoding.view(len(lengths), -1, self.hidden_size)
        return SequenceStates(root, outputs, lengths.flatten(), auxiliary_losses=losses)

    def read_in_bucket(
        self, inputs: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Mapping[str, SumCount]]:
        """Return encodings, outputs and auxiliary losses; for networks in which a token depends on none after it."""
        whole = torch.full((len(inputs),), inputs.shape[1])
        outputs = self.read(inputs, whole).outputs * within(lengths, inputs.shape[1])[:, :, None]
        return entry_of_each(outputs, lengths - 1), outputs, {}

    def further_inputs(self, batch: TreeBatch | TokenBatch, items: torch.Tensor) -> dict[str, Any]:
        """Return what :meth:`read` takes of a batch and its :meth:`items` besides vectors; by default nothing."""
        return {}

    def tokens(self, batch: SequenceBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the token ids of a batch, int64 ``[sequences, longest]``, and on the CPU the lengths, ``[sequences]``.

        Raises:
            GraphError, VocabularyError: as :meth:`forward`.
        """
        batch = as_batch(batch, self.vocabulary, ordered_for=self)
        if isinstance(batch, TokenBatch):
            return batch.token, batch.lengths
        if batch.vocabulary is not self.vocabulary and batch.vocabulary != self.vocabulary:
            raise VocabularyError("the batch was made with another vocabulary than the layer's")
        tokens = batch.tokens(self.form)
        forest = batch.forest
        if forest is not None and forest.value is not None and not np.isnan(forest.value).all():
            node = int(np.argmax(~np.isnan(forest.value)))
            raise GraphError(
                f"{forest.node_name(node)} has the value {forest.value[node]}, which {type(self).__name__} cannot "
                "read: tokens have no values. Use a tree network, or make the numbers labels"
            )
        return tokens

    def _node_of_tokens(self, batch: TreeBatch | TokenBatch) -> torch.Tensor:
        """The node of each token, int64 ``[sequences, longest]``, -1 for punctuation and padding."""
        if not isinstance(batch, TreeBatch) or batch.forest is None:
            raise GraphError("the tokens of sequences have no nodes; give a batch of trees")
        tokens = batch.forest.tokens(self.form)
        return torch.from_numpy(tokens._replace(token=tokens.node).padded(-1)[0])

    def items(self, batch: SequenceBatch, feat: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what :meth:`embed` takes, and on the CPU the lengths, int64 ``[sequences]``.

        These are the token ids, or after :meth:`read_features` the features of the leaves,
        ``[sequences, longest, width]``, 0 after the end.

        Raises:
            GraphError, VocabularyError: as :meth:`forward`.
        """
        batch = as_batch(batch, self.vocabulary, feat, ordered_for=self)
        tokens, lengths = self.tokens(batch)
        feat = batch.feat if isinstance(batch, TreeBatch) else None
        if self.feature_size is None:
            if feat is not None:
                raise GraphError(
                    f"{type(self).__name__} reads tokens, not features of nodes; use a tree network with "
                    "input_size, or call read_features(width) first. To read sequences of vectors, call "
                    "read(inputs, lengths)"
                )
            return tokens, lengths
        if not isinstance(batch, TreeBatch) or batch.forest is None:
            raise GraphError(f"{type(self).__name__} reads features of leaves; give it a batch of trees")
        feat = checked_features(feat, batch.num_nodes, self.feature_size)
        like = self.embedding.weight
        node = torch.from_numpy(batch.node_of_forest[batch.forest.tokens("leaves").node])
        row, column = within(lengths, tokens.shape[1]).nonzero(as_tuple=True)
        features = feat.to(like.device, like.dtype)[to_device(node, like.device)]
        place = to_device(row, like.device), to_device(column, like.device)
        return features.new_zeros(*tokens.shape, self.feature_size).index_put(place, features), lengths

    def embed(self, items: torch.Tensor) -> torch.Tensor:
        """The vectors of :meth:`items`, ``[sequences, longest, embedding_size]``, with dropout in training."""
        vectors = self.embedding(to_device(items, self.embedding.weight.device))
        return functional.dropout(vectors, self.input_dropout, self.training)

    def vectors_of_tokens(self) -> torch.Tensor:
        """The vectors of all tokens, ``[tokens, embedding_size]``, also of given ones of another width."""
        table = self.embedding.weight
        if table.shape[1] == self.embedding_size:
            return table
        vectors: torch.Tensor = self.embedding(torch.arange(len(table), device=table.device))
        return vectors

    def trees_over_tokens(
        self, batch: SequenceBatch, values: torch.Tensor, make_tree: Callable[[NDArray[Any], list[str]], Tree]
    ) -> list[Tree]:
        """Return the tree that ``make_tree`` makes of each sequence's values and tokens.

        Args:
            batch: what the encoder read.
            values: ``[sequences, longest, ...]``.
            make_tree: takes ``[tokens, ...]`` and the tokens.

        Raises:
            GraphError: values that make no tree; names the sequence.
        """
        words = token_table(self.vocabulary, self.form)
        tokens, lengths = (tensor.tolist() for tensor in self.tokens(batch))
        array = values.detach().to("cpu", torch.float64).numpy()
        trees = []
        for sequence, (sequence_tokens, length) in enumerate(zip(tokens, lengths, strict=True)):
            try:
                trees.append(make_tree(array[sequence, :length], [words[token] for token in sequence_tokens[:length]]))
            except GraphError as error:
                raise GraphError(f"sequence {sequence}: {error}") from error
        return trees

    @abstractmethod
    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> SequenceOutput:
        """Run over sequences of vectors.

        Args:
            inputs: ``[sequences, longest, embedding_size]``, on the right of each sequence padding of any content.
            lengths: int64 ``[sequences]``, 0 to ``longest``; where the inputs are, or with :attr:`lengths_on_cpu` on
                the CPU.
            trace: whether to keep what the network did at each step.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
