"""Sublayers of a Transformer in which each sequence has a stack (DuSell & Chiang 2024)."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch.nn import functional

from treemem.networks.memories.nondeterministic_stack.equations import AutomatonState
from treemem.networks.memories.nondeterministic_stack.layer import NondeterministicStack
from treemem.networks.memories.superposition.layer import SuperpositionStack
from treemem.networks.resettable import Resettable


class StackSublayer(Resettable):
    """A stack that reads a sequence from left to right, with an output for each token.

    The maps have no biases and start as in the authors' code, uniform (Glorot & Bengio 2010).

    Attributes:
        actions: the map to the actions.
        value: the map to the pushed vector.
        output: the map of the readout.
    """

    def __init__(self, hidden_size: int, actions: int, value_size: int, readout_size: int) -> None:
        super().__init__()
        self.actions = torch.nn.Linear(hidden_size, actions, bias=False)
        self.value = torch.nn.Linear(hidden_size, value_size, bias=False)
        self.output = torch.nn.Linear(readout_size, hidden_size, bias=False)
        self._draw_maps()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self._draw_maps()

    def _draw_maps(self) -> None:
        for linear in (self.actions, self.value, self.output):
            torch.nn.init.xavier_uniform_(linear.weight)

    @abstractmethod
    def readouts(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the stack returns after each token, ``[sequences, longest, readout size]``."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the sublayer, ``[sequences, longest, hidden_size]``.

        Args:
            inputs: of the same shape. What comes after a sequence does not change the outputs before.
        """
        output: torch.Tensor = self.output(self.readouts(inputs))
        return output


class SuperpositionSublayer(StackSublayer):
    """The stack of Joulin & Mikolov 2015 as a sublayer.

    ``push, pop, no_op = softmax(W_a x)``, ``v = W_v x``, and the output is ``W_o r``, where ``r`` is the top after the
    step.

    Args:
        hidden_size: width of the inputs.
        value_size: width of the stack's vectors.
    """

    def __init__(self, hidden_size: int, value_size: int) -> None:
        super().__init__(hidden_size, 3, value_size, value_size)

    def weights(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the weights of push, pop and no-op, ``[sequences, longest, 3]``."""
        actions: torch.Tensor = self.actions(inputs)
        return actions.softmax(2)

    def readouts(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the top of the stack after each token, ``[sequences, longest, value_size]``."""
        longest = inputs.shape[1]
        stack = SuperpositionStack(max(1, (longest + 1) // 2), empty=0.0)  # deeper rows cannot come up again
        return stack(self.value(inputs), *self.weights(inputs).unbind(2))


class NondeterministicSublayer(StackSublayer):
    """The stack of a nondeterministic pushdown automaton as a sublayer; see :class:`treemem.nn.NondeterministicStack`.

    The weights of actions are ``exp(W_a x)``, not normalised, the pushed vector is ``exp(W_v x)``, and the vector at
    the bottom is the sigmoid of a parameter.

    Args:
        hidden_size: width of the inputs.
        states, symbols: of the automaton.
        value_size: width of the stack's vectors.
    """

    def __init__(self, hidden_size: int, states: int, symbols: int, value_size: int) -> None:
        pairs = states * symbols
        super().__init__(hidden_size, pairs * (2 * pairs + states), value_size, pairs * value_size)
        self.stack = NondeterministicStack(states, symbols, vectors=True)
        self.bottom = torch.nn.Parameter(torch.empty(value_size))
        self._draw_bottom()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self._draw_bottom()

    def _draw_bottom(self) -> None:
        torch.nn.init.uniform_(self.bottom, -0.1, 0.1)

    def readouts(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the readouts after each token, ``[sequences, longest, states * symbols * value_size]``."""
        sequences = len(inputs)
        states, symbols = self.stack.states, self.stack.symbols
        pairs = states * symbols
        actions = self.actions(inputs).unflatten(2, (pairs, 2 * pairs + states)).split([pairs, pairs, states], 3)
        of_steps = [action.flatten(2).unbind(1) for action in (self.value(inputs).exp(), *actions)]
        state = AutomatonState.empty(sequences, states, symbols, self.bottom.sigmoid())
        readouts = []
        for given in zip(*of_steps, strict=True):
            state, readout = self.stack.step(state, *given)
            readouts.append(readout)
        return torch.stack(readouts, 1) if readouts else inputs.new_zeros(sequences, 0, self.output.in_features)


class StackLayer(Resettable):
    """A layer of a Transformer with a stack in the place of self-attention.

    ``x <- x + drop(stack(LN(x)))``, then ``x <- x + drop(W_2 drop(relu(W_1 LN(x) + b_1)) + b_2)``.

    Args:
        stack: the sublayer.
        hidden_size: width of ``x``.
        feedforward_size: width of the hidden layer of the feed-forward network.
        dropout: dropout probability.
    """

    def __init__(self, stack: StackSublayer, hidden_size: int, feedforward_size: int, dropout: float) -> None:
        super().__init__()
        self.stack = stack
        self.dropout = dropout
        self.stack_norm = torch.nn.LayerNorm(hidden_size)
        self.feedforward_norm = torch.nn.LayerNorm(hidden_size)
        self.hidden_map = torch.nn.Linear(hidden_size, feedforward_size)
        self.output_map = torch.nn.Linear(feedforward_size, hidden_size)
        self._draw_maps()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self._draw_maps()

    def _draw_maps(self) -> None:
        _draw_feedforward(self.hidden_map, self.output_map)

    def forward(self, inputs: torch.Tensor, **masks: object) -> torch.Tensor:
        """Return the outputs, ``[sequences, longest, hidden_size]``, of inputs of this shape.

        ``masks`` are those of :class:`torch.nn.TransformerEncoderLayer`. A stack needs none: it looks back only, and
        padding comes last.
        """
        after = inputs + self._dropped(self.stack(self.stack_norm(inputs)))
        hidden = self._dropped(torch.relu(self.hidden_map(self.feedforward_norm(after))))
        return after + self._dropped(self.output_map(hidden))

    def _dropped(self, values: torch.Tensor) -> torch.Tensor:
        return functional.dropout(values, self.dropout, self.training)


class StackDecoderLayer(torch.nn.TransformerDecoderLayer):
    """A layer of a Transformer's decoder with a stack in the place of self-attention.

    It normalises first: ``x <- x + drop(stack(LN(x)))``, then attention to the source, then the feed-forward network.

    Args:
        stack: the sublayer.
        hidden_size, num_heads, feedforward_size, dropout: as in torch's layer.
    """

    def __init__(
        self, stack: StackSublayer, hidden_size: int, num_heads: int, feedforward_size: int, dropout: float
    ) -> None:
        super().__init__(hidden_size, num_heads, feedforward_size, dropout, batch_first=True, norm_first=True)
        del self.self_attn
        self.stack = stack
        _draw_feedforward(self.linear1, self.linear2)


def _draw_feedforward(hidden_map: torch.nn.Linear, output_map: torch.nn.Linear) -> None:
    for linear, gain in ((hidden_map, 2**0.5), (output_map, 1.0)):
        torch.nn.init.xavier_uniform_(linear.weight, gain)
        torch.nn.init.zeros_(linear.bias)
