"""What a Tree-LSTM with a stack can be, and where each block of its preactivation lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from treemem.checked_options import checked_choice, checked_count, checked_flag, checked_rows
from treemem.errors import RecipeError
from treemem.ops.activation import ActivationName, activation

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

    stack_size: int = 5
    activation: ActivationName = "tanh"
    output_activation: ActivationName = "tanh"
    actions: Actions = "elementwise"
    normalize: Normalization = "none"
    no_op: bool = False
    no_pop: bool = False
    input_gate: bool = False
    top_k: int = 1
    gated_top_k: bool = False
    queue: bool = False

    def __post_init__(self) -> None:
        activation(self.activation)
        activation(self.output_activation)
        for name, known in (("actions", get_args(Actions)), ("normalize", get_args(Normalization))):
            checked_choice(name, getattr(self, name), known)
        checked_rows("stack_size", self.stack_size)
        checked_count("top_k", self.top_k)
        for name in ("no_op", "no_pop", "input_gate", "gated_top_k", "queue"):
            checked_flag(name, getattr(self, name))
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
        found, begin = {}, 0
        for name, width in widths.items():
            found[name] = slice(begin, begin + width)
            begin += width
        return found

    def parts(self, arity: int, hidden_size: int) -> tuple[int, ...]:
        """Sizes of what the preactivation consists of: blocks of ``hidden_size``, and single entries."""
        single = {"actions"} if self.actions == "scalar" else set()
        single |= set() if self.gated_top_k else {"readout"}
        found: list[int] = []
        for name, block in self.blocks(arity, hidden_size).items():
            size = 1 if name in single else hidden_size
            found += [size] * ((block.stop - block.start) // size)
        return tuple(found)

    def outputs(self, arity: int, hidden_size: int) -> int:
        """Width of the preactivation."""
        return max(block.stop for block in self.blocks(arity, hidden_size).values())
