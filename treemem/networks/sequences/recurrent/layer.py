"""Recurrent sequence encoders: the flat baselines that read a tree as tokens."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Literal, get_args

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import (
    Layers,
    Probability,
    checked_choice,
)
from treemem.engines.sequence_lengths import checked_lengths, run_packed
from treemem.errors import RecipeError
from treemem.native.second_derivative import refuse_transforms
from treemem.networks.recorded_options import SettableOption
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.networks.sequences.recurrent.equations import naive_lstm
from treemem.networks.sequences.recurrent.torch_lstm import run_lstm
from treemem.trees.tokens import TokenForm
from treemem.trees.vocabulary import Vocabulary

LSTMEngine = Literal["auto", "torch", "naive"]


RecurrentState = tuple[torch.Tensor, ...]
"""Tensors ``[layers, sequences, size]``."""


class RecurrentEncoder(SequenceEncoder):
    """What the recurrent encoders have in common: sequences packed, longest first.

    Each time step runs over those that have not ended.
    """

    lengths_on_cpu = True

    why_not_in_bucket = None

    def read(
        self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False, state: RecurrentState | None = None
    ) -> SequenceOutput:
        """Run over sequences of vectors; there is nothing to trace.

        Args:
            inputs, lengths, trace: see :meth:`SequenceEncoder.read`.
            state: where each sequence begins, tensors ``[layers, sequences, size]``; zero by default.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
        refuse_transforms(type(self).__name__, ", on any engine; use torch.autograd")
        lengths = checked_lengths(lengths, inputs, self.embedding_size)

        def run(packed: torch.Tensor, sizes: list[int], of_each: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            first = None if state is None else tuple(tensor.transpose(0, 1) for tensor in of_each[1:])
            states, last, final = self._run(packed, torch.tensor(sizes), first)
            return states, last, *(tensor.transpose(0, 1) for tensor in final or ())

        nothing = inputs.new_zeros(len(inputs), self.hidden_size)
        outputs, (encoding, *after) = run_packed(
            run, inputs, lengths, [nothing, *(tensor.transpose(0, 1) for tensor in state or ())]
        )
        return SequenceOutput(
            encoding.to(inputs.dtype),  # autocast may have lowered them
            outputs.to(inputs.dtype),
            state=tuple(tensor.transpose(0, 1) for tensor in after) or None,
        )

    @abstractmethod
    def _run(
        self, inputs: torch.Tensor, batch_sizes: torch.Tensor, state: RecurrentState | None
    ) -> tuple[torch.Tensor, torch.Tensor, RecurrentState | None]:
        """Return the outputs of all steps ``[tokens, hidden_size]``, the last one of each sequence, the last state.

        Sequences come longest first.

        Args:
            inputs: step after step, ``[tokens, embedding_size]``.
            batch_sizes: how many sequences each step has, int64 on the CPU; not ascending.
            state: where each sequence begins.
        """


class LSTM(RecurrentEncoder):
    """torch's LSTM over the tokens of each tree.

    With ``form="function"`` and ``update_dropout`` it is the flat baseline of Arabshahi et al. 2018.
    ``i, f, o = sigmoid(W e + U h + b)``, ``u = tanh(W_u e + U_u h + b_u)``, ``c = f * c + i * u``, ``h = o * tanh(c)``,
    where ``e`` is the token's vector. The encoding is the last layer's ``h`` after the last token. With
    ``bidirectional=True`` it is the final ``h`` of the forward direction, followed by that of the backward direction.

    Args:
        hidden_size: width of ``h`` and ``c`` of each direction.
        vocabulary: the labels.
        num_layers: number of stacked layers.
        bidirectional: whether a second LSTM reads each sequence from its end; the encoding is then twice as wide.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        dropout: dropout probability between layers.
        update_dropout: dropout probability of ``u``. torch's LSTM does not have it.
        engine: ``"torch"``: torch's LSTM, with its steps in C++ where they can be. ``"naive"``: a plain loop with the
            same weights and numbers. ``"auto"``: torch's LSTM, or the loop if ``update_dropout`` is not 0.

    Attributes:
        hidden_size: width of the encoding.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> LSTM(16, vocabulary)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    engine: SettableOption[LSTMEngine] = SettableOption(partial(checked_choice, known=get_args(LSTMEngine)))

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_layers: Layers = 1,
        bidirectional: bool = False,
        dropout: Probability = 0.0,
        update_dropout: Probability = 0.0,
        engine: LSTMEngine = "auto",
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.update_dropout = update_dropout
        if dropout and num_layers == 1:
            raise RecipeError(
                "dropout is between layers, and there is one; for dropout inside it give update_dropout, for that of "
                "the tokens' vectors input_dropout"
            )
        self.engine = engine
        if engine == "torch" and update_dropout:
            raise RecipeError("torch's own LSTM has no update_dropout; take engine='auto'")
        self.hidden_size = 2 * hidden_size if bidirectional else hidden_size
        self.lstm = torch.nn.LSTM(
            self.embedding_size, hidden_size, num_layers, bidirectional=bidirectional, dropout=dropout
        )

    @property
    def why_not_in_bucket(self) -> str | None:  # type: ignore[override]
        return "it also reads from the end" if self.lstm.bidirectional else None

    @property
    def carries_state(self) -> bool:  # type: ignore[override]
        """Whether a batch can go on from the state of the one before: on torch's engine, in one direction."""
        return not (self.engine == "naive" or self.update_dropout or self.lstm.bidirectional)

    def _run(
        self, inputs: torch.Tensor, batch_sizes: torch.Tensor, state: RecurrentState | None
    ) -> tuple[torch.Tensor, torch.Tensor, RecurrentState | None]:
        if self.engine == "naive" or self.update_dropout:
            return *self._run_naive(inputs, batch_sizes.tolist()), None
        outputs, final = run_lstm(self.lstm, torch.nn.utils.rnn.PackedSequence(inputs, batch_sizes), state)
        last = final[0]
        return outputs.data, torch.cat(list(last[-2:]), dim=1) if self.lstm.bidirectional else last[-1], final

    def _run_naive(self, inputs: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        update_dropout = self.update_dropout if self.training else 0.0
        last = inputs
        for layer in range(self.lstm.num_layers):
            if layer:
                inputs = functional.dropout(inputs, self.lstm.dropout, self.training)
            suffixes = (f"l{layer}", f"l{layer}_reverse")[: 1 + self.lstm.bidirectional]
            read = [naive_lstm(inputs, sizes, self.lstm, suffix, update_dropout=update_dropout) for suffix in suffixes]
            inputs, _, last = (torch.cat(parts, dim=1) for parts in zip(*read, strict=True))
        return inputs, last


class RNN(RecurrentEncoder):
    """A plain recurrent network over the tokens of each tree: the flat baseline of Arabshahi et al. 2018.

    ``h = sigmoid(W [e; h] + b)``, where ``e`` is the token's vector, and an output layer ``sigmoid(W_2 h + b_2)``.
    Dropout is before both sigmoids.

    Args:
        hidden_size: width of ``h`` and ``e``.
        vocabulary: the labels.
        form: see :class:`treemem.nn.SequenceEncoder`.
        dropout: dropout probability of the preactivations.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> RNN(16, vocabulary)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self, hidden_size: int, vocabulary: Vocabulary, *, form: TokenForm = "function", dropout: Probability = 0.0
    ) -> None:
        super().__init__(hidden_size, vocabulary, form)
        self.dropout = dropout
        self.recurrent = torch.nn.Linear(2 * hidden_size, hidden_size)  # of [e; h]
        self.output = torch.nn.Linear(hidden_size, hidden_size)

    def _run(
        self, inputs: torch.Tensor, batch_sizes: torch.Tensor, state: RecurrentState | None
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        size, sizes = self.hidden_size, batch_sizes.tolist()
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
        return outputs, torch.cat(ended[::-1]), None

    def _drop(self, value: torch.Tensor) -> torch.Tensor:
        return functional.dropout(value, self.dropout, self.training)
