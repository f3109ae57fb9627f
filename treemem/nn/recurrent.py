"""Recurrent sequence encoders: the flat baselines that read a tree as tokens."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.nn.sequence_encoder import Reading, SequenceEncoder
from treemem.ops.checked_options import checked_probability
from treemem.trees.tokens import TokenForm
from treemem.trees.vocabulary import Vocabulary


class RecurrentEncoder(SequenceEncoder):
    """What the recurrent encoders have in common: sequences packed, longest first.

    Each time step runs over those that have not ended.
    """

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> Reading:
        """Run over sequences of vectors from the zero state; there is nothing to trace."""
        present = (lengths > 0).nonzero().squeeze(1).to(inputs.device)
        outputs = inputs.new_zeros(*inputs.shape[:2], self.hidden_size)
        encoding = inputs.new_zeros(len(inputs), self.hidden_size)
        if not len(present):
            return Reading(encoding, outputs)
        if len(present) < len(inputs):
            read = self.read(inputs[present], lengths[present.to(lengths.device)])
            return Reading(encoding.index_copy(0, present, read.encoding), outputs.index_copy(0, present, read.outputs))
        packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self._run(packed.data, packed.batch_sizes.tolist())
        again = torch.nn.utils.rnn.PackedSequence(
            states, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(again, batch_first=True, total_length=inputs.shape[1])
        return Reading(last.index_select(0, packed.unsorted_indices), padded)  # type: ignore[arg-type]

    def _run(self, inputs: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs of all steps, ``[tokens, hidden_size]``, and the last one of each sequence, longest first.

        Args:
            inputs: step after step, ``[tokens, embedding_size]``.
            sizes: how many sequences each step has; not ascending.
        """
        raise NotImplementedError

    def _drop(self, value: torch.Tensor) -> torch.Tensor:
        return functional.dropout(value, self.options["dropout"], self.training)


class LSTM(RecurrentEncoder):
    """An LSTM over the tokens of each tree: the flat baseline of Arabshahi et al. 2018.

    ``i, f, o = sigmoid(U [h; e] + b)``, ``u = tanh(U_u [h; e] + b_u)``, ``c = f * c + i * u``, ``h = o * tanh(c)``,
    where ``e`` is the token's vector. Dropout, where asked for, is on ``u``.

    Args:
        hidden_size: width of ``h``, ``c`` and ``e``.
        vocabulary: the labels.
        form: how a tree is written; ``f ( a , b )`` by default.
        dropout: probability that an entry of ``u`` is dropped in training.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> LSTM(16, vocabulary)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self, hidden_size: int, vocabulary: Vocabulary, *, form: TokenForm = "function", dropout: float = 0.0
    ) -> None:
        checked_probability("dropout", dropout)
        super().__init__(hidden_size, vocabulary, {"hidden_size": hidden_size, "form": form, "dropout": dropout})
        self.gates = torch.nn.Linear(2 * hidden_size, 4 * hidden_size)  # input, forget, output, update of [h; e]

    def _run(self, inputs: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.hidden_size
        of_tokens = functional.linear(inputs, self.gates.weight[:, size:], self.gates.bias)
        recurrent = self.gates.weight[:, :size].t()
        hidden, cell = inputs.new_zeros(sizes[0], size), inputs.new_zeros(sizes[0], size)
        outputs, ended = [], []
        for step in of_tokens.split(sizes):
            ended.append(hidden[len(step) :])
            hidden, cell = hidden[: len(step)], cell[: len(step)]
            preactivation = torch.addmm(step, hidden, recurrent)
            gates = torch.sigmoid(preactivation[:, : 3 * size])
            input_gate, forget_gate, output_gate = gates.split(size, dim=1)
            update = self._drop(torch.tanh(preactivation[:, 3 * size :]))
            cell = forget_gate * cell + input_gate * update
            hidden = output_gate * torch.tanh(cell)
            outputs.append(hidden)
        ended.append(hidden)
        return torch.cat(outputs), torch.cat(ended[::-1])


class RNN(RecurrentEncoder):
    """A plain recurrent network over the tokens of each tree: the flat baseline of Arabshahi et al. 2018.

    ``h = sigmoid(W [e; h] + b)``, where ``e`` is the token's vector, and an output layer ``sigmoid(W_2 h + b_2)``.
    Dropout, where asked for, is before both sigmoids.

    Args:
        hidden_size: width of ``h`` and ``e``.
        vocabulary: the labels.
        form: how a tree is written; ``f ( a , b )`` by default.
        dropout: probability that a preactivation is dropped in training.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> RNN(16, vocabulary)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self, hidden_size: int, vocabulary: Vocabulary, *, form: TokenForm = "function", dropout: float = 0.0
    ) -> None:
        checked_probability("dropout", dropout)
        super().__init__(hidden_size, vocabulary, {"hidden_size": hidden_size, "form": form, "dropout": dropout})
        self.recurrent = torch.nn.Linear(2 * hidden_size, hidden_size)  # of [e; h]
        self.output = torch.nn.Linear(hidden_size, hidden_size)

    def _run(self, inputs: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.hidden_size
        of_tokens = functional.linear(inputs, self.recurrent.weight[:, :size], self.recurrent.bias)
        recurrent = self.recurrent.weight[:, size:].t()
        hidden = inputs.new_zeros(sizes[0], size)
        states = []
        for step in of_tokens.split(sizes):
            hidden = torch.sigmoid(self._drop(torch.addmm(step, hidden[: len(step)], recurrent)))
            states.append(hidden)
        outputs = torch.sigmoid(self._drop(self.output(torch.cat(states))))
        parts = outputs.split(sizes)
        following = [*sizes[1:], 0]
        ended = [part[more:] for part, more in zip(parts, following, strict=True)]
        return outputs, torch.cat(ended[::-1])
