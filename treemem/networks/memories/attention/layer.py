"""A memory that is filled once and then only read, by attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from treemem.checked_options import checked_choice
from treemem.data.token_batch import whole_numbers
from treemem.errors import GraphError
from treemem.networks.memories.attention.cuda import rows_in_kernels
from treemem.networks.memories.attention.equations import additive_scores, attend, dot_scores
from treemem.networks.memories.attention.native import AttendedRows
from treemem.networks.memories.controllers.cuda import KernelMemory
from treemem.networks.memories.memory import CompiledMemory, Control, Memory

AttentionForm = Literal["dot", "bilinear", "additive"]


class ReadOnlyState(NamedTuple):
    """Attributes:
    rows: ``[batch, rows, size]``.
    keys: what queries are compared with, ``[batch, rows, size]``.
    present: which rows exist, the first ones of each sequence, ``[batch, rows]``.
    weights: of the last readout, ``[batch, rows]``.
    """

    rows: torch.Tensor
    keys: torch.Tensor
    present: torch.Tensor
    weights: torch.Tensor


class ReadOnlyMemory(Memory):
    """A memory whose rows are given, and that is read by attention: ``r = sum_i softmax(score(q, m_i)) m_i``.

    In a :class:`~treemem.nn.MemoryCell` it is attention with early or late fusion.

    Args:
        size: width of the rows.
        form: the score of a row ``m`` for the controller's output ``h``: ``"dot"``: ``h . m``, for which ``h`` has the
            width of the rows; ``"bilinear"``: ``(W h + b) . m`` (Luong et al. 2015); ``"additive"``:
            ``v . tanh(W h + b + U m)`` (Bahdanau et al. 2015). The cell that reads has ``W`` and ``b``.

    Raises:
        RecipeError: an unknown form.

    Example:
        >>> memory = ReadOnlyMemory(2, "dot")
        >>> state = memory.filled(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([2]))
        >>> memory.step(state, torch.tensor([[20.0, 0.0]]))[1].round()
        tensor([[1., 0.]])
    """

    def __init__(self, size: int, form: AttentionForm = "dot") -> None:
        super().__init__()
        checked_choice("form", form, get_args(AttentionForm))
        self.size, self.form = size, form
        if form == "additive":
            self.key, self.vector = nn.Linear(size, size, bias=False), nn.Linear(size, 1, bias=False)

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> ReadOnlyState:
        """Return a memory without rows. What is read from it is 0."""
        rows = (torch.empty(0) if like is None else like).new_zeros(batch_size, 0, self.size)
        return self.filled(rows, torch.zeros(batch_size, dtype=torch.int64, device=rows.device))

    def filled(self, rows: torch.Tensor, lengths: torch.Tensor) -> ReadOnlyState:
        """Return a memory of these rows.

        Args:
            rows: ``[batch, rows, size]``.
            lengths: how many of the rows exist, ``[batch]``.

        Raises:
            GraphError: rows of another width, or lengths that are not whole numbers.
        """
        if rows.shape[2] != self.size:
            raise GraphError(f"the memory has rows of {self.size} numbers, not {rows.shape[2]}")
        present = torch.arange(rows.shape[1], device=rows.device) < whole_numbers("lengths", lengths)[:, None]
        keys = self.key(rows) if self.form == "additive" else rows
        return ReadOnlyState(rows, keys, present, rows.new_zeros(rows.shape[:2]))

    def step(self, state: Any, query: torch.Tensor) -> tuple[ReadOnlyState, torch.Tensor]:  # type: ignore[override]
        """Return the memory with the weights of this readout, and the readout ``[batch, size]``.

        Args:
            state: see :meth:`filled`.
            query: ``[batch, size]``.
        """
        if self.form == "additive":
            scores = additive_scores(query, state.keys, self.vector.weight[0])
        else:
            scores = dot_scores(query, state.keys)
        readout, weights = attend(scores, state.rows, state.present)
        return state._replace(weights=weights), readout

    def controls(self, size: int) -> tuple[Control, ...]:
        """``query``: the controller's output itself, or a linear map of it."""
        return (Control(("query",), self.size, "output" if self.form == "dot" else "linear"),)

    def compiled(self, state: ReadOnlyState, steps: int) -> CompiledMemory | None:
        """The bilinear form; that of a subclass step by step."""
        if type(self) is not ReadOnlyMemory or self.form != "bilinear":
            return None
        return CompiledMemory(AttendedRows.source, (state.rows, state.present.sum(1)), AttendedRows, None)

    def kernels(self, state: ReadOnlyState, steps: int) -> KernelMemory | None:
        """The bilinear form; that of a subclass step by step."""
        if type(self) is not ReadOnlyMemory or self.form != "bilinear":
            return None
        lengths = state.present.sum(1)
        return rows_in_kernels(state.rows, lengths, state.weights, lambda weights: state._replace(weights=weights))

    def readout_size(self, size: int) -> int:
        """That of the rows."""
        return self.size

    def trace(
        self, size: int, given: Mapping[str, torch.Tensor], state: ReadOnlyState, readout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``attention``: the weight of each row."""
        return {"attention": state.weights}


def pointer_logits(weights: torch.Tensor, symbols: torch.Tensor, count: int) -> torch.Tensor:
    """Return the log-probability of each symbol, if attention says where it stands, ``[batch, count]``.

    The probability of a symbol is the sum of the weights of its places (Vinyals et al. 2015); a symbol without a place
    gets a tiny one, so that its logarithm is finite.

    Args:
        weights: ``[batch, places]``.
        symbols: the id at each place, ``[batch, places]``.
        count: the number of symbols.
    """
    total = weights.new_zeros(len(weights), count).scatter_add(1, symbols, weights)
    return total.clamp(min=torch.finfo(weights.dtype).tiny).log()
