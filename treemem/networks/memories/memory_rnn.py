"""A recurrent network of any cell, with or without a memory, over the tokens of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from typing_extensions import Unpack

from treemem.checked_options import checked_choice, checked_count, checked_layers
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import checked_lengths, within
from treemem.errors import RecipeError
from treemem.networks.memories.controllers.cell_trace import TRACE_AXES, stacked_traces, traced_run
from treemem.networks.memories.controllers.cells import (
    GRUCell,
    LSTMCell,
    StackedCells,
    StepCell,
    VanillaCell,
    run_cell,
)
from treemem.networks.memories.controllers.memory_cell import MemoryCell
from treemem.networks.memories.memory import Memory
from treemem.networks.memories.neural_stack.layer import NeuralDeque, NeuralQueue, NeuralStack
from treemem.networks.memories.nondeterministic_stack.layer import NondeterministicStack
from treemem.networks.memories.registers.layer import RegisterMemory
from treemem.networks.memories.superposition.layer import DoublyLinkedList, SuperpositionStack
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.trees.vocabulary import Vocabulary

CellName = Literal["RNN", "GRU", "LSTM"]
MemoryName = Literal["none", "stack", "queue", "deque", "superposition", "list", "register", "nondeterministic"]

_CELLS: dict[CellName, Callable[[int, int], StepCell]] = {
    "RNN": VanillaCell,
    "GRU": GRUCell,
    "LSTM": LSTMCell,
}
_MEMORIES: dict[str, type[Memory]] = {
    "stack": NeuralStack,
    "queue": NeuralQueue,
    "deque": NeuralDeque,
    "superposition": SuperpositionStack,
    "list": DoublyLinkedList,
    "register": RegisterMemory,
    "nondeterministic": NondeterministicStack,
}


def named_memories(name: MemoryName, options: Mapping[str, Any] | None = None) -> list[Memory]:
    """Return the memory of a name, made with its options; an empty list for ``"none"``.

    Raises:
        RecipeError: an unknown name, or options that the memory does not have or that do not work here.
    """
    checked_choice("memory", name, get_args(MemoryName))
    if name == "none":
        if options:
            raise RecipeError(f"memory_options {options} need a memory; set memory")
        return []
    if name == "register" and (options or {}).get("addressing") == "reinforce":
        raise RecipeError(
            "addressing: reinforce needs a training loop of your own, which adds log_probability to the loss; "
            "use soft or straight-through"
        )
    try:
        return [_MEMORIES[name](**dict(options or {}))]
    except TypeError as error:
        raise RecipeError(f"memory: {name} cannot be made with {options}: {error}") from error


def named_cell(
    cell: CellName,
    hidden_size: int,
    num_layers: int,
    input_size: int,
    memories: Sequence[Memory],
    memory_size: int,
    fusion: Literal["early", "late"],
    dropout: float = 0.0,
) -> StepCell:
    """Return ``num_layers`` cells of a name on top of each other, which control the memories if there are any.

    ``dropout`` is the probability that an entry of what a cell hands to the next one is dropped.

    Raises:
        RecipeError: an unknown cell, or a size out of its range.
    """
    checked_choice("cell", cell, get_args(CellName))
    checked_count("hidden_size", hidden_size)
    checked_layers("num_layers", num_layers)

    def controller(width: int) -> StepCell:
        layers = [_CELLS[cell](*pair) for pair in pairwise([width, *[hidden_size] * num_layers])]
        return layers[0] if num_layers == 1 else StackedCells(layers, dropout)

    return (
        MemoryCell(controller, memories, input_size, memory_size, fusion=fusion) if memories else controller(input_size)
    )


class MemoryRNN(SequenceEncoder):
    """A recurrent network with a memory over the tokens of each tree.

    At each token the cell reads the token's vector and what the memory returned at the token before, and acts on the
    memory (:class:`~treemem.nn.MemoryCell`; Grefenstette et al. 2015, section 3.4). Without a memory it is the cell
    alone. The encoding is the output at the last token.

    Args:
        hidden_size: width of the cells' states, and of the outputs.
        vocabulary: the labels.
        cell: the cell of each layer.
        num_layers: number of stacked cells.
        memory: the memory that the cells control, or ``"none"``.
        memory_size: width of the memory's values.
        memory_options: options of the memory, such as ``{"depth": 100}`` of a superposition stack.
        fusion: whether the readout goes to the next input (``"early"``) or to the output (``"late"``).
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    With a trace, sequences run one by one; it holds pushes, pops, readouts and contents (``trace_axes``).

    Raises:
        RecipeError: an option out of its range, or one that the memory does not have.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> MemoryRNN(16, vocabulary, cell="RNN", memory="superposition", memory_size=4)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    lengths_on_cpu = True

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        cell: CellName = "LSTM",
        num_layers: int = 1,
        memory: MemoryName = "stack",
        memory_size: int = 16,
        memory_options: Mapping[str, Any] | None = None,
        fusion: Literal["early", "late"] = "early",
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        memories = named_memories(memory, memory_options)
        self.cell = named_cell(cell, hidden_size, num_layers, self.embedding_size, memories, memory_size, fusion)

    why_not_in_bucket = None

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return TRACE_AXES if isinstance(self.cell, MemoryCell) else {}

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> SequenceOutput:
        """Run over sequences of vectors, from an empty memory."""
        lengths = checked_lengths(lengths, inputs, self.embedding_size)
        if not inputs.is_floating_point():
            inputs = inputs.to(next(self.cell.parameters()).dtype)
        inside = to_device(within(lengths, inputs.shape[1]), inputs.device)[..., None]
        outputs, _ = run_cell(self.cell, torch.where(inside, inputs, 0))
        outputs = torch.where(inside, outputs, 0).to(inputs.dtype)  # autocast may have lowered their precision
        last = to_device((lengths - 1).clamp(min=0), inputs.device)
        encoding = (
            outputs[torch.arange(len(outputs), device=inputs.device), last] if inputs.shape[1] else outputs.sum(1)
        )
        return SequenceOutput(encoding, outputs, self._trace(inputs, lengths) if trace else {})

    def _trace(self, inputs: torch.Tensor, lengths: torch.Tensor) -> Mapping[str, torch.Tensor]:
        if not isinstance(self.cell, MemoryCell) or not len(inputs):
            return {}
        runs = zip(inputs.split(1), lengths.tolist(), strict=True)
        did = [traced_run(self.cell, one[:, :length])[2] if length else [] for one, length in runs]
        return {name: value.to(inputs.dtype) for name, value in stacked_traces(did).items()}
