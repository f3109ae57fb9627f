"""The Ordered Memory as a sequence encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from typing_extensions import Unpack

from treemem.checked_options import Probability, checked_choice, checked_rows
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.affine import EPSILON, Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import entry_of_each, reversed_within
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.gated_cell.layer import EXPANSION
from treemem.networks.parsers.ordered_memory.equations import (
    NO_DROPOUT,
    Dropouts,
    LayerNormScoreWeights,
    OrderedMemoryWeights,
    PlainCellWeights,
    TanhScoreWeights,
)
from treemem.networks.parsers.ordered_memory.run import checked_engine, ordered_memory, slot_contents
from treemem.networks.recorded_options import SettableOption
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.induced import tree_from_pointer_probabilities
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

OrderedMemoryPadding = Literal["right", "right flipped", "left"]
OrderedMemoryCell = Literal["gated", "rnn"]
OrderedMemoryScore = Literal["layer_norm", "tanh"]
_MOST_SKIPPED = 1e-3  # a skipped slot is taken for one with cp = 0


def _checked_optional_count(name: str, count: int | None) -> int | None:
    return None if count is None else checked_rows(name, count)


class OrderedMemory(SequenceEncoder):
    """The Ordered Memory of Shen et al. 2019: it reads tokens one by one and composes them like a tree.

    ``x = LN(W e + b)``, where ``e`` is the token's vector. Slot ``i`` has the memory ``M_i`` and the candidate ``C_i``.
    At the end the last slot, ``N``, holds the whole sequence. A step is::

        s_i = (w . drop(relu(LN_q(W_q drop(x) + b_q) + LN_k(W_k drop(C_i) + b_k))) + b_w) / sqrt(hidden_size)
        m_i = sum of the last p_j over j <= i + 1, 0 where that is below 1e-5; m_N = 1
        p_i = exp(s_i) m_i / sum_j exp(s_j) m_j             where the new token goes
        cp_i, rcp_i = the sums of p_j over j <= i, and over j >= i
        M_i = M_i (1 - rcp_i) + C_i rcp_i
        C_i = x (1 - cp_i) + cell(C_(i-1), M_i) cp_i         C_0 = x
        cell(v, h) = LN(sigmoid(a) * v + sigmoid(b) * h + sigmoid(c) * u)
        a, b, c, u = W_2 drop(relu(W_1 drop([v; h]) + b_1)) + b_2

    The output at a token is ``C_N``. The encoding is the output at the last token, 0 for an empty sequence. The
    projection and the cell share one layer norm. Maps start as those of ``nn.Linear``.

    The equations are those of the authors' code. The paper differs in three points:

    * the score, its eq. 8: ``s_i = (w . drop(tanh(W [drop(C_i); drop(x)] + b_1)) + b_2) / sqrt(hidden_size)``. Set
      ``score="tanh"`` for it;
    * the threshold 1e-5, which it does not mention;
    * the first token: here it fills all slots and attends to nothing. The paper's algorithm 1 composes it with an
      empty last slot; here only shorter sequences with ``padding="left"`` do so.

    The network runs with any number of slots, because its weights do not depend on it. A sequence of ``n`` tokens needs
    ``n - 1`` slots, or ``n`` if it begins empty (see ``padding``). More slots change nothing. With fewer, some parts
    are composed too early. On logic the authors train with 12 slots and test with 24.

    The trace has ``"pointers"`` (``p``) and ``"cumulative"`` (``cp``), each ``[sequences, longest, slots]``, with
    gradients. Both are 0 at padding. At the first token they are 0; in a sequence that begins empty they are 1 at the
    last slot. With ``bidirectional=True`` it also has ``"backward_pointers"`` and ``"backward_cumulative"``, in the
    order of the tokens.

    Args:
        hidden_size: width of a slot and of the encoding. With ``bidirectional=True`` the encoding is twice as wide.
        vocabulary: the labels.
        slots: number of slots. You may set it at any time, as ``layer.slots = 24``, and also ``evaluation_slots`` and
            ``padding``. A checkpoint stores the original value.
        evaluation_slots: number of slots in evaluation mode; None means ``slots``.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
            The authors use ``embedding_bound=0.1`` for logic and None elsewhere; ``input_dropout`` is their
            ``dropouti``. The authors' code for sentiment drops the same entries in all tokens of a sequence.
        dropout: dropout probability of the inputs of ``W_1`` and ``W_2``.
        memory_dropout: dropout probability of the inputs of ``W_q``, ``W_k``, or ``W``, and of ``w`` (the authors'
            ``dropoutm``).
        bidirectional: a second memory with its own weights reads from right to left. Its encoding is the second half.
        padding: which published padding the results follow:

            - ``"right"``: each sequence is encoded as if alone.
            - ``"left"``, the published code for ListOps: sequences shorter than the longest of their batch begin empty,
              with ``cell(x, 0)`` in the last slot. So encodings depend on the batch. With ``bidirectional=True`` the
              second half of their encoding is 0.
            - ``"right flipped"``, the published code with padding on the right: with ``bidirectional=True`` shorter
              sequences begin empty in the backward direction.
        cell: ``"gated"``, or ``"rnn"``: ``tanh(W drop([v; h]) + b)`` instead of the cell, the paper's ablation
            "TreeRNN op". It has no layer norm, because the paper does not mention one.
        score: ``"layer_norm"``, as above, or ``"tanh"``, the paper's eq. 8.
        skip: do not compose slots whose ``cp`` is smaller; at most 0.001. 0 is exact. 1e-5 is faster for sharp
            attention and changes outputs by less than 1e-6.
        engine: ``"fused"`` (``"auto"``): one operation in C++, compiled at first use. It has no second derivative.
            Without a C++ compiler, on other devices, under autocast and within ``torch.func.vmap``, ``"naive"`` runs
            instead: torch, step by step and slot by slot. Both give the same results, but other dropout masks. On CUDA
            ``"fused"`` takes kernels in the place of C++ if they are asked for, see :func:`treemem.ops.cuda_kernels`.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = OrderedMemory(16, vocabulary, slots=5)(batch, trace=True)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> states.trace["pointers"].shape
        torch.Size([2, 6, 5])
    """

    lengths_on_cpu = True

    slots: SettableOption[int] = SettableOption(checked_rows)
    evaluation_slots: SettableOption[int | None] = SettableOption(_checked_optional_count)
    padding: SettableOption[OrderedMemoryPadding] = SettableOption(
        partial(checked_choice, known=get_args(OrderedMemoryPadding))
    )
    engine: SettableOption[SequenceEngine] = SettableOption(checked_engine)

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        slots: int = 12,
        evaluation_slots: int | None = None,
        dropout: Probability = 0.0,
        memory_dropout: Probability = 0.0,
        bidirectional: bool = False,
        padding: OrderedMemoryPadding = "right",
        cell: OrderedMemoryCell = "gated",
        score: OrderedMemoryScore = "layer_norm",
        skip: Probability = 0.0,
        engine: SequenceEngine = "auto",
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.slot_size = hidden_size
        self.hidden_size = 2 * hidden_size if bidirectional else hidden_size
        self.slots = slots
        self.evaluation_slots = evaluation_slots
        self.dropouts = Dropouts(dropout, memory_dropout)
        self.padding = padding
        self.skip = skip
        if self.skip > _MOST_SKIPPED:
            raise RecipeError(f"skip must be at most {_MOST_SKIPPED}, not {skip}: more changes the outputs")
        self.engine = engine
        maps = self.embedding_size, hidden_size, cell, score
        self.forward_memory = MemoryMaps(*maps)
        self.backward_memory = MemoryMaps(*maps) if bidirectional else None

    @property
    def _slots_of_this_mode(self) -> int:
        return self.slots if self.training or self.evaluation_slots is None else self.evaluation_slots

    @property
    def needs_whole_batch(self) -> str | None:
        """The padding option, if results depend on the batch."""
        begins_empty = self.padding == "left" or (self.padding == "right flipped" and self.backward_memory is not None)
        return f"padding={self.padding!r}" if begins_empty else None

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> SequenceOutput:
        """Run over sequences of vectors; the class says what a trace has.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
        lengths = whole_numbers("lengths", lengths)
        encodings, outputs = [], []
        traced: dict[str, torch.Tensor] = {}
        for name, memory, begins_empty, flip in self._directions(inputs, lengths):
            steps = ordered_memory(
                flip(inputs),
                lengths,
                memory.weights(),
                self._slots_of_this_mode,
                dropouts=self.dropouts if self.training else NO_DROPOUT,
                begins_empty=begins_empty,
                engine=self.engine,
                trace=trace,
                skip=self.skip,
            )
            kept = torch.where(lengths < inputs.shape[1], 0, lengths) if name and self.padding == "left" else lengths
            encodings.append(entry_of_each(steps.outputs, kept - 1))
            outputs.append(flip(steps.outputs))
            if steps.pointers is not None and steps.cumulative is not None:
                traced |= {f"{name}pointers": flip(steps.pointers), f"{name}cumulative": flip(steps.cumulative)}
        return SequenceOutput(torch.cat(encodings, 1), torch.cat(outputs, 2), traced)

    def _directions(self, inputs: torch.Tensor, lengths: torch.Tensor) -> Iterator[_Direction]:
        shorter = lengths < inputs.shape[1]
        yield _Direction("", self.forward_memory, shorter & (self.padding == "left"), lambda values: values)
        if self.backward_memory is not None:
            flip = partial(reversed_within, lengths=lengths)
            yield _Direction("backward_", self.backward_memory, shorter & (self.padding == "right flipped"), flip)

    @property
    def why_not_in_bucket(self) -> str | None:
        if self.backward_memory is not None:
            return "it also reads from the end"
        return None if self.padding == "right" else f"its memory depends on the padding ({self.padding!r})"

    can_induce_trees = True

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        names = ("pointers", "cumulative", "backward_pointers", "backward_cumulative")
        return dict.fromkeys(names if self.backward_memory is not None else names[:2], ("sequences", "tokens", "slots"))

    def induced_trees(self, batch: TreeBatch) -> list[Tree]:
        """Return the tree that the pointers build over each sequence, read as if alone and without dropout.

        Raises:
            GraphError: a batch made from a graph, or pointers that are not finite; names the sequence.
        """
        padding = self.padding
        try:
            self.padding = "right"
            with in_evaluation_mode(self):
                pointers = self(batch, trace=True).trace["pointers"]
        finally:
            self.padding = padding
        return self.trees_over_tokens(batch, pointers, tree_from_pointer_probabilities)

    def memory_contents(self, batch: TreeBatch) -> dict[str, torch.Tensor]:
        """Return :meth:`slot_contents`."""
        return self.slot_contents(batch)

    @torch.no_grad()
    def slot_contents(self, batch: TreeBatch) -> dict[str, torch.Tensor]:
        """What each slot holds after each token, ``C``, without dropout and gradients.

        Returns:
            ``slots``, ``[sequences, longest, slots, slot_size]``, 0 at padding; if ``bidirectional``, also
            ``backward_slots``.

        Raises:
            GraphError, VocabularyError: as of :meth:`forward`.
        """
        items, lengths = self.items(batch)
        inputs = self.embedding(to_device(items, self.embedding.weight.device))
        count, traced = self._slots_of_this_mode, {}
        for name, memory, begins_empty, flip in self._directions(inputs, lengths):
            contents = slot_contents(flip(inputs), lengths, memory.weights(), count, begins_empty=begins_empty)
            traced[f"{name}slots"] = flip(contents.flatten(2)).view_as(contents)
        return traced


class _Direction(NamedTuple):
    """A memory, what its traces are called, which sequences begin empty, and what turns values to its direction."""

    name: str
    memory: MemoryMaps
    begins_empty: torch.Tensor
    flip: Callable[[torch.Tensor], torch.Tensor]


class MemoryMaps(Resettable):
    """The parameters of one direction of :class:`OrderedMemory`.

    Args:
        input_size: width of the tokens' vectors.
        hidden_size: width of a slot.
        cell: which cell.
        score: which score.
    """

    def __init__(
        self, input_size: int, hidden_size: int, cell: OrderedMemoryCell, score: OrderedMemoryScore = "layer_norm"
    ) -> None:
        super().__init__()
        self.input_map = torch.nn.Linear(input_size, hidden_size)
        self.norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)
        self.score = score
        if score == "layer_norm":
            self.query_map = torch.nn.Linear(hidden_size, hidden_size)
            self.query_norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)
            self.key_map = torch.nn.Linear(hidden_size, hidden_size)
            self.key_norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)
        else:
            self.attention_map = torch.nn.Linear(2 * hidden_size, hidden_size)  # of [candidate; element]
        self.score_map = torch.nn.Linear(hidden_size, 1)
        inner = EXPANSION * hidden_size if cell == "gated" else hidden_size
        self.cell_map = torch.nn.Linear(2 * hidden_size, inner)  # of [vertical; horizontal]
        self.gate_map = torch.nn.Linear(inner, 4 * hidden_size) if cell == "gated" else None

    def weights(self) -> OrderedMemoryWeights:
        """The parameters as the operation takes them."""
        norm, cell_map = Affine.of(self.norm), Affine.of(self.cell_map)
        gated = None if self.gate_map is None else GatedCellWeights(cell_map, Affine.of(self.gate_map), norm)
        return OrderedMemoryWeights(
            input=Affine.of(self.input_map),
            input_norm=norm,
            attention=self._score_weights(),
            cell=PlainCellWeights(cell_map) if gated is None else gated,
        )

    def _score_weights(self) -> LayerNormScoreWeights | TanhScoreWeights:
        score = Affine.of(self.score_map)
        if self.score == "tanh":
            return TanhScoreWeights(Affine.of(self.attention_map), score)
        of_query, of_key = Affine.of(self.query_map), Affine.of(self.key_map)
        return LayerNormScoreWeights(of_query, Affine.of(self.query_norm), of_key, Affine.of(self.key_norm), score)
