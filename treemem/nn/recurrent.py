"""Recurrent sequence encoders: the flat baselines that read a tree as tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.nn.sequence_states import SequenceStates
from treemem.ops.checked_options import checked_count, checked_probability
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tokens import TokenForm, token_table
from treemem.trees.vocabulary import Vocabulary


class RecurrentEncoder(torch.nn.Module):
    """What :class:`RNN` and :class:`LSTM` have in common: tokens in, an encoding for each tree out.

    Sequences are packed, longest first, so that each time step runs over those that have not ended.

    Args:
        hidden_size: width of the states and of the tokens' vectors.
        vocabulary: the labels; its tokens in ``form`` have vectors.
        form: how a tree is written; see :func:`treemem.trees.tokens.forest_tokens`.
        dropout: probability of dropout, in training.

    Attributes:
        options: plain data; ``type(layer)(vocabulary=vocabulary, **layer.options)`` makes a layer like this one.
    """

    def __init__(self, hidden_size: int, vocabulary: Vocabulary, form: TokenForm, dropout: float) -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        checked_probability("dropout", dropout)
        if not isinstance(vocabulary, Vocabulary):
            raise RecipeError(f"a sequence encoder needs a Vocabulary, not {type(vocabulary).__name__}")
        self.hidden_size = hidden_size
        self.vocabulary = vocabulary
        self.form: TokenForm = form
        self.dropout = dropout
        self.embedding = torch.nn.Embedding(len(token_table(vocabulary, form)), hidden_size)
        self.options: dict[str, Any] = {"hidden_size": hidden_size, "form": form, "dropout": dropout}

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]

    def forward(self, batch: TreeBatch) -> SequenceStates:
        """Read every tree of a batch as tokens.

        Raises:
            GraphError: a batch made from a graph, which has no tokens.
            VocabularyError: labels of another vocabulary.
        """
        if not isinstance(batch, TreeBatch):
            raise GraphError(f"a sequence encoder takes a TreeBatch, not {type(batch).__name__}")
        if batch.vocabulary is not self.vocabulary and batch.vocabulary != self.vocabulary:
            raise VocabularyError("the batch was made with another vocabulary than the layer's")
        device = self.embedding.weight.device
        tokens, lengths = batch.tokens(self.form)
        states, last = self.read(self.embedding(tokens.to(device)), lengths)
        root = last.reshape(-1, batch.trees_per_example, self.hidden_size)
        return SequenceStates(root, states, lengths.to(device))

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run over sequences of vectors from the zero state.

        Args:
            inputs: ``[sequences, longest, hidden_size]``.
            lengths: int64 ``[sequences]``, at least 1.

        Returns:
            The outputs at every token, ``[sequences, longest, hidden_size]``, 0 after the end of shorter sequences; and
            the output at each last one, ``[sequences, hidden_size]``.
        """
        if not len(inputs):
            return inputs, inputs.new_zeros(0, self.hidden_size)
        packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self._run(packed.data, packed.batch_sizes.tolist())
        again = torch.nn.utils.rnn.PackedSequence(
            outputs, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(again, batch_first=True, total_length=inputs.shape[1])
        return padded, last.index_select(0, packed.unsorted_indices)  # type: ignore[arg-type]

    def _run(self, inputs: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs of all steps, ``[tokens, hidden_size]``, and the last one of each sequence, longest first.

        Args:
            inputs: step after step, ``[tokens, hidden_size]``.
            sizes: how many sequences each step has; not ascending.
        """
        raise NotImplementedError

    def _drop(self, value: torch.Tensor) -> torch.Tensor:
        return functional.dropout(value, self.dropout, self.training)

    def extra_repr(self) -> str:
        """The options, for printing."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


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
        super().__init__(hidden_size, vocabulary, form, dropout)
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
        super().__init__(hidden_size, vocabulary, form, dropout)
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
