"""A Tree-LSTM with a stack: its variants, where each block of its preactivation lies, and its pointwise step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from treemem.checked_options import Count, Rows, check_fields
from treemem.engines.activation import ActivationName, activation
from treemem.errors import RecipeError

Actions = Literal["elementwise", "scalar"]
Normalization = Literal["none", "softmax_of_gates", "divide", "softmax"]


@dataclass(frozen=True)
class StackTreeLSTMOptions:
    """The variants of a Tree-LSTM with a stack (Arabshahi et al. 2020, eq. 12-28, and their published code).

    Attributes:
        stack_size: number of stack rows.
        activation: of what is pushed.
        output_activation: of what is read.
        actions: ``"elementwise"``: push, pop and no-op are sigmoid gates for each coordinate; ``"scalar"``: one softmax
            over the actions for a whole node.
        normalize: how element-wise actions are made to sum to 1: ``"none"``; ``"softmax_of_gates"``, a softmax over
            the sigmoid gates, as in the published code; ``"divide"``, the gates divided by their sum; ``"softmax"``,
            a softmax in place of the sigmoids. The paper's text fits the last three alike.
        no_op: a third action beside push and pop, which leaves the stack as it is.
        no_pop: the actions are push and no-op, without pop. Leave ``no_op`` False.
        input_gate: what is pushed is gated as in an LSTM.
        top_k: how many rows are read.
        gated_top_k: every row read has a gate for each coordinate, not one weight.
        queue: push at the far end and read at the near one; both push and pop move all rows one nearer.

    Raises:
        RecipeError: an unknown or ill-typed option, or options that contradict each other.
    """

    stack_size: Rows = 5
    activation: ActivationName = "tanh"
    output_activation: ActivationName = "tanh"
    actions: Actions = "elementwise"
    normalize: Normalization = "none"
    no_op: bool = False
    no_pop: bool = False
    input_gate: bool = False
    top_k: Count = 1
    gated_top_k: bool = False
    queue: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.top_k <= self.stack_size:
            raise RecipeError(f"top_k={self.top_k} must lie between 1 and stack_size={self.stack_size}")
        if self.no_op and self.no_pop:
            raise RecipeError(
                "no_pop=True does not go with no_op=True: its actions are push and no-op; leave no_op out"
            )
        if self.gated_top_k and self.top_k == 1:
            raise RecipeError("gated_top_k needs top_k of at least 2")
        if self.actions == "scalar" and self.normalize != "none":
            raise RecipeError("scalar actions are a softmax already; normalize goes with element-wise ones")

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions, in the order of their blocks."""
        return (
            "push",
            *(() if self.no_pop else ("pop",)),
            *(("no_op",) if self.no_op or self.no_pop else ()),
        )

    def blocks(self, arity: int, hidden_size: int) -> dict[str, slice]:
        """Where each part of the preactivation lies; the sigmoid gates come first and ``update`` follows them.

        Args:
            arity: number of children.
            hidden_size: width of a state.

        Returns:
            ``forget`` (a block for each child), ``actions`` (a block for each action, or one entry for each),
            ``output``, ``input`` (with an input gate), ``readout`` (with ``top_k`` over 1: ``top_k`` blocks or
            entries) and ``update``.
        """
        num_actions = len(self.action_names)
        scalar = self.actions == "scalar"
        widths = {"forget": arity * hidden_size}
        if not scalar:
            widths["actions"] = num_actions * hidden_size
        widths["output"] = hidden_size
        if self.input_gate:
            widths["input"] = hidden_size
        if self.top_k > 1:
            widths["readout"] = self.top_k * (hidden_size if self.gated_top_k else 1)
        widths["update"] = hidden_size
        if scalar:
            widths["actions"] = num_actions
        blocks, begin = {}, 0
        for name, width in widths.items():
            blocks[name] = slice(begin, begin + width)
            begin += width
        return blocks

    def parts(self, arity: int, hidden_size: int) -> tuple[int, ...]:
        """Sizes of what the preactivation consists of: blocks of ``hidden_size``, and single entries."""
        single = {"actions"} if self.actions == "scalar" else set()
        single |= set() if self.gated_top_k else {"readout"}
        widths: list[int] = []
        for name, block in self.blocks(arity, hidden_size).items():
            size = 1 if name in single else hidden_size
            widths += [size] * ((block.stop - block.start) // size)
        return tuple(widths)

    def outputs(self, arity: int, hidden_size: int) -> int:
        """Width of the preactivation."""
        return max(block.stop for block in self.blocks(arity, hidden_size).values())


def stack_tree_lstm_gates(
    preactivation: torch.Tensor, arity: int, hidden_size: int, options: StackTreeLSTMOptions, dropout: float = 0.0
) -> dict[str, torch.Tensor]:
    """The gates of :func:`stack_tree_lstm_step`.

    Args:
        preactivation: blocks as ``options.blocks`` says, ``[m, outputs]``.
        arity: number of children.
        hidden_size: width of a state.
        options: which variant.
        dropout: probability that an entry of ``update`` is dropped.

    Returns:
        ``forget``, ``[m, arity, hidden_size]``; the actions by their names, normalized as ``options`` say,
        ``[m, hidden_size]``, or ``[m, 1]`` where they are scalar; ``output`` and ``update``, ``[m, hidden_size]``;
        with an input gate, ``input``, ``[m, hidden_size]``; and with ``top_k`` over 1, ``readout``,
        ``[m, top_k, hidden_size]``, or ``[m, top_k, 1]`` where rows have weights.
    """
    parts = {name: preactivation[:, block] for name, block in options.blocks(arity, hidden_size).items()}
    gates = {
        "forget": torch.sigmoid(parts["forget"]).unflatten(1, (arity, hidden_size)),
        "output": torch.sigmoid(parts["output"]),
        "update": activation(options.activation)(parts["update"]),
    }
    if dropout:
        gates["update"] = drop(gates["update"], dropout)
    if options.input_gate:
        gates["input"] = torch.sigmoid(parts["input"])
    if options.top_k > 1:
        gates["readout"] = torch.sigmoid(parts["readout"]).unflatten(1, (options.top_k, -1))
    num_actions = len(options.action_names)
    actions = _normalized(parts["actions"].unflatten(1, (num_actions, -1)), options)
    return {**gates, **dict(zip(options.action_names, actions.unbind(1), strict=True))}


def _normalized(logits: torch.Tensor, options: StackTreeLSTMOptions) -> torch.Tensor:
    """The weight of each action, ``[m, actions, hidden_size or 1]``."""
    if options.actions == "scalar" or options.normalize == "softmax":
        return torch.softmax(logits, dim=1)
    weights = torch.sigmoid(logits)
    if options.normalize == "softmax_of_gates":
        return torch.softmax(weights, dim=1)
    if options.normalize == "divide":
        return weights / weights.sum(1, keepdim=True)
    return weights


def stack_tree_lstm_step(
    preactivation: torch.Tensor, child_stacks: torch.Tensor, options: StackTreeLSTMOptions, dropout: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A Tree-LSTM whose cell is a stack, read out into ``h`` (eq. 15-28 of Arabshahi et al. 2020).

    With ``f_k = sigmoid(U_f x + b_f)`` and ``S_c[i] = sum_k f_k * S_k[i]``, the same gate for each row, and
    ``u = act(U_u x + b_u)``::

        S[0] = a_push * u          + a_pop * S_c[1]     + a_no_op * S_c[0]
        S[i] = a_push * S_c[i - 1] + a_pop * S_c[i + 1] + a_no_op * S_c[i]      (S_c[stack_size] = 0)
        h = o * act2(S[0]),  or with top_k > 1:  h = o * act2(sum_{j < top_k} P_j S[j]),  P = sigmoid(U_p x + b_p)

    where ``x`` holds the children's ``h`` one after the other. The actions are those of the published code:
    sigmoid gates, normalized as ``options`` say. The row pushed out at the bottom is lost. A queue pushes ``u`` into
    the last row and moves all others up: ``S[i] = (a_push + a_pop) * S_c[i + 1] + a_no_op * S_c[i]``.

    Args:
        preactivation: blocks as ``options.blocks`` says, ``[m, outputs]``.
        child_stacks: ``[m, arity, stack_size, hidden_size]``; ``arity`` may be 0, as for leaves with features.
        options: which variant.
        dropout: probability that an entry of ``u`` is dropped.

    Returns:
        ``h``, ``[m, hidden_size]``, and ``S``, ``[m, stack_size, hidden_size]``.
    """
    gates = stack_tree_lstm_gates(preactivation, child_stacks.shape[1], child_stacks.shape[3], options, dropout)
    merged = (gates["forget"][:, :, None] * child_stacks).sum(1)
    update = gates["update"] * gates["input"] if options.input_gate else gates["update"]
    popped = pad(merged[:, 1:], (0, 0, 0, 1))
    pushed = [merged[:, 1:], update[:, None]] if options.queue else [update[:, None], merged[:, :-1]]
    stack = gates["push"][:, None] * torch.cat(pushed, dim=1)
    if "pop" in gates:
        stack = stack + gates["pop"][:, None] * popped
    if "no_op" in gates:
        stack = stack + gates["no_op"][:, None] * merged
    readout = stack[:, 0]
    if options.top_k > 1:
        readout = (gates["readout"] * stack[:, : options.top_k]).sum(1)
    return gates["output"] * activation(options.output_activation)(readout), stack
