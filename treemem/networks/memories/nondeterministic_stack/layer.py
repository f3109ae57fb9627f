"""The stack of a nondeterministic automaton: all runs at once, each with its weight."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treemem.checked_options import checked_count, checked_flag, checked_scale
from treemem.errors import GraphError, RecipeError
from treemem.networks.memories.memory import Control, Memory
from treemem.networks.memories.nondeterministic_stack.equations import AutomatonState, automaton_step


class NondeterministicStack(Memory):
    """The stack of a nondeterministic pushdown automaton (DuSell & Chiang 2020, 2022, 2023).

    At each step each run of the automaton pushes a symbol, replaces the top symbol or pops it, and goes to a state. A
    weight for each of these actions comes from the controller, and the weight of a run is the product of those of its
    actions. There are exponentially many runs; a dynamic program sums over all of them. The readout has the
    probability of each state with each top symbol. In the beginning the first symbol is at the bottom, in the first
    state. The bottom may be replaced, and never popped. If no run is left, the readout is 0.

    ``T`` steps with ``Q`` states and ``S`` symbols keep ``O(T^2 Q^2 S^2)`` numbers for each example, and need
    ``O(T^3 Q^3 S^2)`` operations.

    Args:
        states, symbols: of the automaton.
        normalized: whether the weights of all actions from a state and a top symbol sum to 1, as in 2020. Without it
            they are any positive numbers, as in 2022.
        reads_states: whether the readout tells states apart, as in 2022, or has only the top symbol, as in 2020.
        vectors: whether a symbol is pushed with a vector of the memory's size, as in 2023. The readout has then the
            probability of a state and a top symbol times the mean of the top vector, for each of them.
        bottom: each entry of the vector at the bottom, at least 0.

    Raises:
        RecipeError: an option out of its range, or vectors without states in the readout.

    Example:
        >>> stack = NondeterministicStack(states=1, symbols=2)
        >>> push, other = torch.zeros(1, 4).log(), torch.zeros(1, 4).log()
        >>> push[0, 1] = 0.0  # from symbol 0 always: push symbol 1
        >>> stack.step(stack.initial(1, 0), push, other, other[:, :2])[1]
        tensor([[0., 1.]])
    """

    def __init__(
        self,
        states: int = 2,
        symbols: int = 3,
        *,
        normalized: bool = False,
        reads_states: bool = True,
        vectors: bool = False,
        bottom: float = 1.0,
    ) -> None:
        super().__init__()
        self.states, self.symbols = checked_count("states", states), checked_count("symbols", symbols)
        self.normalized = checked_flag("normalized", normalized)
        self.reads_states = checked_flag("reads_states", reads_states)
        self.vectors, self.bottom = checked_flag("vectors", vectors), checked_scale("bottom", bottom, or_zero=True)
        if vectors and not reads_states:
            raise RecipeError("vectors: true reads a vector for each state; leave out reads_states: false")

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> AutomatonState:
        """Return stacks with the first symbol at the bottom."""
        like = torch.empty(0) if like is None else like
        bottom = like.new_full((size if self.vectors else 0,), self.bottom)
        return AutomatonState.empty(batch_size, self.states, self.symbols, bottom)

    def step(self, state: AutomatonState, *actions: torch.Tensor) -> tuple[AutomatonState, torch.Tensor]:
        """Act, then read.

        Args:
            state: of the step before; it stays as it is.
            actions: with ``vectors`` first the value, ``[batch, size]``. Then the logarithms of the weights of
                pushing and of replacing, ``[batch, states * symbols * states * symbols]`` each, from a state and a
                top symbol to a state and a symbol, and of popping, ``[batch, states * symbols * states]``. The
                logarithm of a weight may be minus infinity. They take the type of the state.

        Raises:
            GraphError: a wrong shape.
        """
        batch, pairs = len(state.log_probability), self.states * self.symbols
        shapes = {control.names[0]: [batch, control.size] for control in self.controls(self._size(state))}
        given = [[*action.shape] for action in actions]
        if given != [*shapes.values()]:
            expected = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise GraphError(f"this memory takes {expected}, not {', '.join(map(str, given))}")
        value = actions[0] if self.vectors else actions[0].new_zeros(batch, 0)
        weights = torch.cat([action.unflatten(1, (pairs, action.shape[1] // pairs)) for action in actions[-3:]], 2)
        if self.normalized:
            known = (weights > -torch.inf).any(2, keepdim=True)  # the others have no action
            weights = torch.where(known, torch.where(known, weights, 0).log_softmax(2), -torch.inf)
        push, replace, pop = weights.split([pairs, pairs, self.states], 2)
        shape = (batch, self.states, self.symbols, self.states)
        into = (*shape, self.symbols)
        after, mean = automaton_step(state, push.reshape(into), replace.reshape(into), pop.reshape(shape), value)
        probability = after.log_probability.exp()
        if self.vectors:
            return after, (probability[..., None] * mean).flatten(1)
        return after, (probability if self.reads_states else probability.sum(1)).flatten(1)

    def _size(self, state: AutomatonState) -> int:
        times = state.log_beneath.shape[3] // self.states
        return state.came.shape[2] // (times * self.states) - 1

    def controls(self, size: int) -> tuple[Control, ...]:
        """With ``vectors`` ``value`` by a sigmoid; logarithms of weights by linear maps."""
        pairs = self.states * self.symbols
        return (
            *([Control(("value",), size, "sigmoid")] if self.vectors else []),
            Control(("log_push",), pairs * pairs, "linear"),
            Control(("log_replace",), pairs * pairs, "linear"),
            Control(("log_pop",), pairs * self.states, "linear"),
        )

    def readout_size(self, size: int) -> int:
        """``states * symbols``, times the width of the vectors if there are any; ``symbols`` without states."""
        if self.vectors:
            return self.states * self.symbols * size
        return (self.states if self.reads_states else 1) * self.symbols

    def trace(
        self, size: int, given: Mapping[str, torch.Tensor], state: AutomatonState, readout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``top``: probabilities of top symbols, a row for each state. With vectors what was pushed and read."""
        traced = {"top": state.log_probability.exp()}
        if self.vectors:
            traced |= {"value": given["value"][:, None], "readout": readout.view(1, -1, size)}
        return traced
