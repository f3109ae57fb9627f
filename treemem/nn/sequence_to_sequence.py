"""One recurrent network that reads a source and writes a target, with any cell and any memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from treemem.checked_options import checked_choice, checked_count
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError
from treemem.nn.encoder import Encoder
from treemem.nn.encoder_output import EncoderOutput
from treemem.nn.memory import DoublyLinkedList, Memory, NeuralDeque, NeuralQueue, NeuralStack, SuperpositionStack
from treemem.nn.recorded_options import RecordedOptions
from treemem.nn.step_cells import (
    GRUCell,
    LSTMCell,
    MemoryCell,
    ONLSTMCell,
    StackedCells,
    StepCell,
    VanillaCell,
    run_cell,
)
from treemem.trees.vocabulary import Vocabulary

CellName = Literal["RNN", "GRU", "LSTM", "ONLSTM"]
MemoryName = Literal["none", "stack", "queue", "deque", "superposition", "list"]
END, BETWEEN = "</s>", "|||"
"""The symbols after the target, and between source and target."""

_CELLS: dict[CellName, Callable[[int, int], StepCell]] = {
    "RNN": VanillaCell,
    "GRU": GRUCell,
    "LSTM": LSTMCell,
    "ONLSTM": ONLSTMCell,
}
_MEMORIES: dict[str, type[Memory]] = {
    "stack": NeuralStack,
    "queue": NeuralQueue,
    "deque": NeuralDeque,
    "superposition": SuperpositionStack,
    "list": DoublyLinkedList,
}


class SequenceToSequence(RecordedOptions, Encoder, nn.Module):
    """One recurrent network over ``source ||| target`` (Grefenstette et al. 2015, section 4).

    It reads the source, then ``|||``, and from there on says the next symbol of the target, which it reads in training
    and writes itself in evaluation, up to ``</s>``.

    Args:
        hidden_size: width of the cells' states.
        vocabulary: its leaves are the symbols, ``</s>`` and ``|||`` among them.
        cell: of each layer.
        num_layers: cells on top of each other.
        memory: what the cells drive; ``"none"``: nothing.
        memory_size: width of the memory's values.
        embedding_size: width of the symbols' vectors.

    Raises:
        RecipeError: an option out of its range, or a vocabulary without the two symbols.

    Example:
        >>> vocabulary = Vocabulary(["</s>", "|||", "a", "b"], [])
        >>> network = SequenceToSequence(8, vocabulary, memory="stack", memory_size=4).eval()
        >>> len(network(TokenBatch.from_sequences([[2, 3, 3], [2]])).decoded)
        2
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        cell: CellName = "LSTM",
        num_layers: int = 1,
        memory: MemoryName = "none",
        memory_size: int = 64,
        embedding_size: int = 64,
    ) -> None:
        super().__init__()
        checked_choice("cell", cell, get_args(CellName))
        checked_choice("memory", memory, get_args(MemoryName))
        known = {leaf: number for number, leaf in enumerate(vocabulary.leaves)}
        if END not in known or BETWEEN not in known:
            raise RecipeError(f"the vocabulary of a sequence-to-sequence network has the symbols {END} and {BETWEEN}")
        self.end, self.between = known[END], known[BETWEEN]
        self.hidden_size, self.vocabulary = checked_count("hidden_size", hidden_size), vocabulary
        self.embedding = nn.Embedding(len(known), checked_count("embedding_size", embedding_size))
        checked_count("num_layers", num_layers)

        def controller(width: int) -> StepCell:
            sizes = [width, *[hidden_size] * num_layers]
            layers = [_CELLS[cell](*pair) for pair in pairwise(sizes)]
            return layers[0] if num_layers == 1 else StackedCells(layers)

        self.cell: StepCell = (
            controller(embedding_size)
            if memory == "none"
            else MemoryCell(controller, [_MEMORIES[memory]()], embedding_size, memory_size)
        )
        self.symbol = nn.Linear(hidden_size, len(known))

    def forward(self, batch: TokenBatch) -> Seq2SeqOutput:
        """Return the logits of the target's symbols in training; in evaluation what it writes, and its logits.

        Raises:
            GraphError: something that is no ``TokenBatch``, an empty source, or no target in training.
        """
        if not isinstance(batch, TokenBatch):
            raise GraphError(f"{type(self).__name__} takes a TokenBatch, not {type(batch).__name__}")
        if not bool((batch.lengths > 0).all()):
            raise GraphError("an example has an empty source; give at least one symbol")
        return self._taught(batch) if self.training else self._written(batch)

    def _taught(self, batch: TokenBatch) -> Seq2SeqOutput:
        if batch.target is None:
            raise GraphError("training needs a target for each source")
        device = self.embedding.weight.device
        target, lengths = batch.target.token.to(device), batch.lengths.to(device)
        width = batch.token.shape[1] + target.shape[1]
        symbols = torch.full((len(lengths), width), self.end, device=device)
        symbols[:, : batch.token.shape[1]] = batch.token.to(device)
        place = lengths[:, None] + torch.arange(target.shape[1], device=device)
        before = functional.pad(target[:, :-1], (1, 0), value=self.between)
        symbols.scatter_(1, place, before)
        outputs, _ = run_cell(self.cell, self.embedding(symbols))
        chosen = outputs.gather(1, place[:, :, None].expand(-1, -1, outputs.shape[2]))
        return Seq2SeqOutput(chosen[:, :1], self.symbol(chosen), [])

    def _written(self, batch: TokenBatch) -> Seq2SeqOutput:
        """Write greedily, at most twice as many symbols as the source has, and ten more."""
        device = self.embedding.weight.device
        source, lengths = batch.token.to(device), batch.lengths.to(device)
        longest = source.shape[1]
        state = self.cell.initial(len(lengths))
        symbol = torch.full_like(lengths, self.between)
        going = torch.ones_like(lengths, dtype=torch.bool)
        written: list[list[int]] = [[] for _ in range(len(lengths))]
        logits = []
        for step in range(3 * longest + 10):
            if step < longest:
                is_source = step < lengths
                given = torch.where(is_source, source[:, step], symbol)
            else:
                is_source, given = torch.zeros_like(going), symbol
            output, state = self.cell(self.embedding(given), state)
            logits.append(self.symbol(output))
            best = logits[-1].argmax(1)
            writes = ~is_source & going
            symbol = torch.where(writes, best, symbol)
            for place, said in zip(writes.nonzero().flatten().tolist(), best[writes].tolist(), strict=True):
                written[place].append(said)
            going &= ~(writes & (best == self.end)) & (step + 1 < 3 * lengths + 10)
            if not bool(going.any()):
                break
        decoded = [each[: each.index(self.end)] if self.end in each else each for each in written]
        outputs = torch.stack(logits, 1)
        return Seq2SeqOutput(outputs[:, -1:], outputs, decoded)


class Seq2SeqOutput(EncoderOutput):
    """What a sequence-to-sequence network returns.

    Attributes:
        decoded: the ids that it wrote for each example, without ``</s>``; none in training.
    """

    def __init__(self, root: torch.Tensor, outputs: torch.Tensor, decoded: list[list[int]]) -> None:
        super().__init__(root, outputs)
        self.decoded = decoded


__all__ = ["BETWEEN", "END", "Seq2SeqOutput", "SequenceToSequence"]
