"""Networks that read a source and write a target, with any cell and any memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from treemem.checked_options import Count, Probability, Rows
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device, to_device_together
from treemem.engines.sequence_lengths import reversed_within
from treemem.errors import GraphError, RecipeError
from treemem.networks.encoder import Encoder
from treemem.networks.encoder_output import EncoderOutput
from treemem.networks.memories.attention.layer import AttentionForm, ReadOnlyMemory, pointer_logits
from treemem.networks.memories.controllers.cell_trace import TRACE_AXES, stacked_traces, traced_run
from treemem.networks.memories.controllers.cells import StepCell, run_cell
from treemem.networks.memories.controllers.memory_cell import MemoryCell, MemoryCellState
from treemem.networks.memories.memory import Memory
from treemem.networks.memories.memory_rnn import CellName, MemoryName, named_cell, named_memories
from treemem.networks.recorded_options import RecordedOptions
from treemem.networks.sequences.sequence_to_sequence.beam_search import beam_search
from treemem.trees.vocabulary import Vocabulary

END, BETWEEN = "</s>", "|||"
"""The symbols after the target, and between source and target."""


class SequenceToSequence(RecordedOptions, Encoder, nn.Module):
    """A network that reads a source and writes a target, with any cell and any memory.

    There are three forms. With ``encoder="shared"`` one network reads the source and ``|||``, and then predicts the
    target symbol by symbol (Grefenstette et al. 2015, section 4). With ``"separate"`` an encoder reads the source and
    ``</s>``. A decoder starts at ``|||`` with the encoder's state and memories (Sutskever et al. 2014), and may attend
    to the encoder's outputs. With ``"bidirectional"`` a second encoder, without a memory, reads the source from its
    end, and the decoder attends to the outputs of both (Bahdanau et al. 2015); it starts with the state of the first.

    In training the decoder reads the gold target. In evaluation it reads its own output, up to ``</s>``, and writes at
    most ``most_symbols``. The output does not show whether this limit cut a sequence, so a longer target is an error.
    With targets and without a trace it also has the logits given the gold target.

    Args:
        hidden_size: width of the cells' states.
        vocabulary: its leaves are the symbols, including ``</s>`` and ``|||``.
        cell: the cell of each layer.
        num_layers: number of stacked cells.
        memory: the memory that the cells control, or ``"none"``.
        memory_size: width of the memory's values.
        memory_options: options of the memory, such as ``{"rows": 64}`` of a register memory.
        embedding_size: width of the symbols' vectors.
        encoder: ``"shared"``: one network for source and target; ``"separate"``: two; ``"bidirectional"``: a third that
            reads the source backwards.
        attention: of the decoder to the outputs of separate encoders, see :class:`~treemem.nn.ReadOnlyMemory`.
            ``"dot"`` compares outputs of one width, so not those of a bidirectional encoder.
        fusion: ``"early"``: the readouts of attention and memory are concatenated to the next input; ``"late"``: to
            the output; see :class:`~treemem.nn.MemoryCell`.
        output: ``"symbols"``: a linear map of the decoder's output; ``"pointer"``: the weights of attention, so that
            only ``</s>`` and symbols of the source are written (Vinyals et al. 2015).
        beam_size: number of hypotheses in the beam; 1 is greedy.
        dropout: probability that an entry is dropped of the symbols' vectors, and of what a layer hands to the next.
        most_symbols: the most symbols of a target, its end included; None: twice the length of the source plus ten.

    Raises:
        RecipeError: an option out of its range, options that do not go together, or a vocabulary without the two
            symbols.

    Example:
        >>> from treemem.data.token_batch import TokenBatch
        >>> vocabulary = Vocabulary(["</s>", "|||", "a", "b"], [])
        >>> network = SequenceToSequence(8, vocabulary, memory="stack", memory_size=4).eval()
        >>> len(network(TokenBatch.from_sequences([[2, 3, 3], [2]])).decoded)
        2
    """

    def __init__(
        self,
        hidden_size: Count,
        vocabulary: Vocabulary,
        *,
        cell: CellName = "LSTM",
        num_layers: int = 1,
        memory: MemoryName = "none",
        memory_size: int = 64,
        memory_options: Mapping[str, Any] | None = None,
        embedding_size: Count = 64,
        encoder: Literal["shared", "separate", "bidirectional"] = "shared",
        attention: AttentionForm | Literal["none"] = "none",
        fusion: Literal["early", "late"] = "early",
        output: Literal["symbols", "pointer"] = "symbols",
        beam_size: Rows = 1,
        dropout: Probability = 0.0,
        most_symbols: Rows | None = None,
    ) -> None:
        super().__init__()
        if attention != "none" and encoder == "shared":
            raise RecipeError(
                f"attention: {attention} attends to a separate encoder; set encoder: separate or bidirectional"
            )
        if encoder == "bidirectional" and attention not in ("bilinear", "additive"):
            raise RecipeError("encoder: bidirectional needs attention to it; set attention: bilinear or additive")
        if output == "pointer" and attention == "none":
            raise RecipeError("output: pointer points by attention; set attention to dot, bilinear or additive")
        self.end, self.between = end_and_between(vocabulary)
        self.hidden_size, self.vocabulary = hidden_size, vocabulary
        self.embedding = nn.Embedding(len(vocabulary.leaves), embedding_size)
        self.beam_size, self.points = beam_size, output == "pointer"
        self.dropout, self.most_symbols = dropout, most_symbols

        def driving(memories: list[Memory]) -> StepCell:
            return named_cell(cell, hidden_size, num_layers, embedding_size, memories, memory_size, fusion, dropout)

        width = hidden_size * (2 if encoder == "bidirectional" else 1)
        attended: list[Memory] = [] if attention == "none" else [ReadOnlyMemory(width, attention)]
        self.cell = driving([*attended, *named_memories(memory, memory_options)])
        self.encoder = None if encoder == "shared" else driving(named_memories(memory, memory_options))
        self.backward_encoder = driving([]) if encoder == "bidirectional" else None
        self.symbol = None if self.points else nn.Linear(hidden_size, len(vocabulary.leaves))

    def check_batches(self, batches: Iterable[TokenBatch]) -> None:
        for batch in batches:
            checked_limits(batch, self.most_symbols, training=False)

    def forward(self, batch: TokenBatch, *, trace: bool = False) -> Seq2SeqOutput:
        """Return the logits of the target's symbols, given those before them; in evaluation also what it writes.

        Args:
            batch: the sources; in training with their targets.
            trace: whether to return, in evaluation, what the cells did as they read the source and what was written.

        Raises:
            GraphError: something that is no ``TokenBatch``, an empty source, no target in training, or one that is
                longer than what the network writes.
        """
        limits = checked_limits(batch, self.most_symbols, self.training)
        encoded, state = self._read(batch)
        if self.training:
            return Seq2SeqOutput(encoded, self._logits(batch, state), [], self.vocabulary)
        limits = to_device(limits, encoded.device)
        decoded = beam_search(self._say, state, self.between, self.end, limits, self.beam_size)
        if trace and decoded:
            return self._traced(batch, encoded, decoded)
        return Seq2SeqOutput(encoded, self._logits(batch, state), decoded, self.vocabulary)

    def _logits(self, batch: TokenBatch, state: _Decoding) -> torch.Tensor:
        """Return the logits of the target's symbols, ``[batch, longest target, symbols]``; of none without a target."""
        if batch.target is None:
            return self.embedding.weight.new_zeros(len(batch.lengths), 0, len(self.vocabulary.leaves))
        target = to_device(batch.target.token, self.embedding.weight.device)
        given = functional.pad(target[:, :-1], (1, 0), value=self.between)
        if self.symbol is not None:
            outputs, _ = run_cell(self.cell, self._embedded(given), state.state)
            logits: torch.Tensor = self.symbol(outputs)
            return logits
        of_steps = []
        for symbol in given.unbind(1):
            symbol_logits, state = self._say(symbol, state)
            of_steps.append(symbol_logits)
        return torch.stack(of_steps, 1)

    def _read(self, batch: TokenBatch) -> tuple[torch.Tensor, _Decoding]:
        """Return the outputs at the ends of the sources, ``[batch, 1, hidden_size]``, and where the decoder begins."""
        device = self.embedding.weight.device
        source, lengths = to_device_together([batch.token, batch.lengths], device)
        lengths_on_cpu = batch.lengths + (self.encoder is not None)
        if self.encoder is not None:
            source = functional.pad(source, (0, 1), value=self.end).scatter(1, lengths[:, None], self.end)
            lengths = lengths + 1
        embedded = self._embedded(source)
        outputs, state = run_cell(self.encoder or self.cell, embedded, lengths=lengths_on_cpu)
        last = outputs.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2]))
        if self.attends:
            state = self._attending(state, self._annotations(embedded, outputs, lengths_on_cpu), lengths)
        places = torch.arange(source.shape[1], device=device)
        return last, _Decoding(state, source.where(places < lengths[:, None], self.end))

    def _embedded(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return the vectors of symbols, in training with dropout."""
        return functional.dropout(self.embedding(symbols), self.dropout, self.training)

    def _annotations(self, embedded: torch.Tensor, outputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return what the decoder attends to: the encoder's outputs, and beside each the backward encoder's.

        Args:
            embedded: the sources, ``[batch, longest, embedding_size]``.
            outputs: of the encoder, ``[batch, longest, hidden_size]``.
            lengths: of the sources, best on the CPU, ``[batch]``.
        """
        if self.backward_encoder is None:
            return outputs
        backward_outputs, _ = run_cell(self.backward_encoder, reversed_within(embedded, lengths), lengths=lengths)
        return torch.cat([outputs, reversed_within(backward_outputs, lengths)], 2)

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return TRACE_AXES

    def _traced(self, batch: TokenBatch, encoded: torch.Tensor, decoded: list[list[int]]) -> Seq2SeqOutput:
        """Run each sequence again by itself, step by step."""
        symbols, outputs, traces = [], [], []
        for row, written in enumerate(decoded):
            source = batch.token[row, : batch.lengths[row]].tolist() + [self.end] * (self.encoder is not None)
            target = [self.between, *written]
            embedded = self.embedding(torch.tensor([source], device=encoded.device))
            read, state, did = traced_run(self.encoder or self.cell, embedded)
            if self.attends:
                annotations = self._annotations(embedded, read, torch.tensor([len(source)]))
                state = self._attending(state, annotations, torch.tensor([len(source)], device=encoded.device))
            after, _, more = traced_run(self.cell, self.embedding(torch.tensor([target], device=encoded.device)), state)
            symbols.append(source + target)
            outputs.append(torch.cat([read, after], 1)[0])
            traces.append(did + more)
        tokens = TokenBatch.from_sequences(symbols)
        trace = stacked_traces(traces)
        states = pad_sequence(outputs, batch_first=True)
        return Seq2SeqOutput(encoded, states, decoded, self.vocabulary, tokens=tokens, trace=trace)

    @property
    def attends(self) -> bool:
        """Whether the decoder attends to the encoder's outputs."""
        return isinstance(self.cell, MemoryCell) and isinstance(self.cell.memories[0], ReadOnlyMemory)

    def _attending(self, state: Any, annotations: torch.Tensor, lengths: torch.Tensor) -> MemoryCellState:
        """Return the state of a decoder that attends, and that goes on from the state of the encoder."""
        filled = self.cell.memories[0].filled(annotations, lengths)  # type: ignore[union-attr,index]
        if not isinstance(state, MemoryCellState):
            return MemoryCellState(state, (filled,), torch.zeros_like(annotations[:, 0]))
        read = torch.cat([torch.zeros_like(annotations[:, 0]), state.read], 1)
        return MemoryCellState(state.controller, (filled, *state.memories), read)

    def _say(self, symbol: torch.Tensor, decoding: _Decoding) -> tuple[torch.Tensor, _Decoding]:
        """Return the logits of the symbols that may follow this one, ``[batch, symbols]``."""
        output, state = self.cell(self._embedded(symbol), decoding.state)
        following = _Decoding(state, decoding.source)
        if self.symbol is not None:
            return self.symbol(output), following
        return pointer_logits(state.memories[0].weights, decoding.source, len(self.vocabulary.leaves)), following


class _Decoding(NamedTuple):
    """Attributes:
    state: of the decoder.
    source: the symbols of the source, ``[batch, longest]``.
    """

    state: Any
    source: torch.Tensor


class Seq2SeqOutput(EncoderOutput):
    """What a sequence-to-sequence network returns.

    ``root`` is the output at the end of the source; ``outputs`` are the logits of the target's symbols given those
    before them, ``[batch, longest target, symbols]``; with a trace, the cells' outputs at each of ``tokens``.

    Attributes:
        decoded: the ids that it wrote for each example, without ``</s>``; none in training.
        vocabulary: whose leaves the ids count.
        tokens: the symbols of a trace: the source, ``|||`` and what was written; None without a trace.
    """

    def __init__(
        self,
        root: torch.Tensor,
        outputs: torch.Tensor,
        decoded: list[list[int]],
        vocabulary: Vocabulary,
        *,
        tokens: TokenBatch | None = None,
        trace: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        super().__init__(root, outputs, trace=trace)
        self.decoded, self.vocabulary, self.tokens = decoded, vocabulary, tokens


def end_and_between(vocabulary: Vocabulary) -> tuple[int, int]:
    """Return the ids of ``</s>`` and ``|||``.

    Raises:
        RecipeError: the vocabulary does not have them.
    """
    known = {leaf: number for number, leaf in enumerate(vocabulary.leaves)}
    if END not in known or BETWEEN not in known:
        raise RecipeError(f"the vocabulary of a sequence-to-sequence network has the symbols {END} and {BETWEEN}")
    return known[END], known[BETWEEN]


def checked_limits(batch: TokenBatch, most_symbols: int | None, training: bool) -> torch.Tensor:
    """Return the most symbols that a network writes for each source, the end included, ``[batch]``.

    Args:
        batch: what the network is given.
        most_symbols: of any target; None: twice the length of the source plus ten.
        training: whether it needs targets.

    Raises:
        GraphError: something that is no ``TokenBatch``, an empty source, no target in training, or a target that is
            longer than its limit.
    """
    if not isinstance(batch, TokenBatch):
        raise GraphError(f"a sequence-to-sequence network takes a TokenBatch, not {type(batch).__name__}")
    if not bool((batch.lengths > 0).all()):
        raise GraphError("an example has an empty source; give at least one symbol")
    if training and batch.target is None:
        raise GraphError("training needs a target for each source")
    lengths = batch.lengths.cpu()
    limits = 2 * lengths + 10 if most_symbols is None else torch.full_like(lengths, most_symbols)
    if batch.target is not None and bool((longer := batch.target.lengths.cpu() > limits).any()):
        row = int(longer.int().argmax())
        raise GraphError(
            f"a target has {int(batch.target.lengths[row])} symbols, its end included, and the network writes at most "
            f"{int(limits[row])} for its source of {int(lengths[row])}; set the network's option most_symbols"
        )
    return limits
