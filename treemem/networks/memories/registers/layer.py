"""A memory of registers that are addressed by content and by location."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F

from treemem.checked_options import checked_choice, checked_count, checked_flag, checked_rows
from treemem.errors import GraphError
from treemem.networks.memories.controllers.cuda import KernelMemory
from treemem.networks.memories.memory import CompiledMemory, Control, Memory, like_or_default
from treemem.networks.memories.registers.cuda import registers_in_kernels
from treemem.networks.memories.registers.equations import (
    Similarity,
    chosen_row,
    content_weights,
    convex_write,
    erase_and_add,
    location_weights,
    read_rows,
    sampled_row,
    straight_through,
    with_prefix,
)
from treemem.networks.memories.registers.native import RegisterForm, Registers

Write = Literal["convex", "erase-and-add"]
Addressing = Literal["soft", "straight-through", "reinforce"]


class RegisterState(NamedTuple):
    """The state of a :class:`RegisterMemory`.

    Attributes:
        rows: ``[batch, prefix + rows, key_size + size]``: a row's key, if it is kept apart, then its content. Rows that
            are only read stand first.
        read_weights: of the last step, ``[batch, prefix + rows]``.
        write_weights: of the last step, ``[batch, rows]``.
        log_probability: of all rows that were sampled so far, ``[batch]``; 0 without sampling.
    """

    rows: torch.Tensor
    read_weights: torch.Tensor
    write_weights: torch.Tensor
    log_probability: torch.Tensor


class RegisterMemory(Memory):
    """A register memory: the random-access part of a Neural Turing Machine (Graves et al. 2014, section 3).

    A step computes weights over rows for reading and for writing, reads the rows as they were before the step, then
    writes. The memory starts with zeros and with all weight on the first row.

    Args:
        rows: number of rows that can be written.
        key_size: width of keys that are kept apart from the contents; by default the contents are the keys.
        similarity: of keys: ``"dot"``, or ``"cosine"`` with a sharpness, as in the paper.
        location: whether to interpolate with the last weights, shift and sharpen (eq. 7-9). Without it rows that are
            equal stay equal, so start from different ones: :meth:`starting_from`.
        max_shift: farthest shift of a step.
        write: ``"convex"``, ``m_i <- (1 - w_i) m_i + w_i v``, or ``"erase-and-add"`` as in the paper.
        addressing: ``"soft"``; ``"straight-through"``, the row of the largest weight with the gradient of the weights;
            or ``"reinforce"``, a row drawn by its weight in training mode and the row of the largest in evaluation
            mode. Then add ``(state.log_probability * losses.detach()).mean()`` to the mean of ``losses``, ``[batch]``.

    Example:
        >>> memory = RegisterMemory(rows=4, location=False)
        >>> state = memory.starting_from(torch.eye(4)[None])
        >>> near = 1000 * torch.eye(4)
        >>> state, readout = memory.step(state, 5 * torch.ones(1, 4), near[[2]], near[[1]])
        >>> readout.tolist()
        [[0.0, 0.0, 1.0, 0.0]]
        >>> state.rows[0, 1].tolist()
        [5.0, 5.0, 5.0, 5.0]
    """

    def __init__(
        self,
        rows: int = 16,
        *,
        key_size: int | None = None,
        similarity: Similarity = "dot",
        location: bool = True,
        max_shift: int = 1,
        write: Write = "convex",
        addressing: Addressing = "soft",
    ) -> None:
        super().__init__()
        self.rows, self.max_shift = checked_rows("rows", rows), checked_count("max_shift", max_shift)
        self.key_size = key_size if key_size is None else checked_count("key_size", key_size)
        self.similarity = checked_choice("similarity", similarity, ("cosine", "dot"))
        self.location = checked_flag("location", location)
        self.write = checked_choice("write", write, ("convex", "erase-and-add"))
        self.addressing = checked_choice("addressing", addressing, ("soft", "straight-through", "reinforce"))

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> RegisterState:
        """Return rows of zeros; all weight is on the first row."""
        width = (self.key_size or 0) + size
        numbers = like_or_default(like).new_zeros(batch_size, self.rows * (width + 1) + 1)
        rows, first, log_probability = numbers.split([self.rows * width, self.rows, 1], 1)
        first[:, 0].fill_(1)
        return RegisterState(rows.unflatten(1, (self.rows, width)), first, first, log_probability.squeeze(1))

    def starting_from(self, rows: torch.Tensor, *, read_only: bool = False) -> RegisterState:
        """Return a state with given rows first and rows of zeros after them; all weight is on the first row.

        Args:
            rows: ``[batch, given rows, key_size + size]``, with a key in front of each content if keys are apart.
            read_only: whether the given rows are a prefix that is only read, before ``rows`` rows that can be
                written. Otherwise they fill the first of these.

        Raises:
            GraphError: more rows than the memory has, or no axis of rows.
        """
        if rows.dim() != 3 or (rows.shape[1] > self.rows and not read_only):
            raise GraphError(
                f"rows {[*rows.shape]} do not fit {self.rows} rows; give [batch, at most {self.rows}, width], "
                "or any number with read_only=True"
            )
        memory = F.pad(rows, (0, 0, 0, self.rows if read_only else self.rows - rows.shape[1]))
        first = memory.new_zeros(memory.shape[:2])
        first[:, 0] = 1
        return RegisterState(memory, first, first[:, : self.rows], memory.new_zeros(len(rows)))

    def step(
        self, state: RegisterState, value: torch.Tensor, *actions: torch.Tensor
    ) -> tuple[RegisterState, torch.Tensor]:
        """Address, read the rows of the step before, then write.

        Args:
            state: of the step before; it stays as it is.
            value: ``[batch, size]``; with ``"erase-and-add"`` it is added.
            actions: as :meth:`controls` lists them, first those of reading, then those of writing.

        Raises:
            GraphError: other shapes.
            RuntimeError: by torch, for NaN if rows are sampled. Otherwise NaN spreads within its example.
        """
        names = [name for control in self.controls(value.shape[-1])[1:] for name in control.names]
        given = dict(zip(names, actions, strict=True))
        prefix = state.rows.shape[1] - self.rows
        read, read_log = self._address("read", state.rows, state.read_weights, given)
        write, write_log = self._address("write", state.rows[:, prefix:], state.write_weights, given)
        readout = read_rows(state.rows, read)[:, self.key_size or 0 :]

        written = value if self.key_size is None else torch.cat([given["key"], value], -1)
        rows = state.rows[:, prefix:]
        if self.write == "convex":
            rows = convex_write(rows, write, written)
        else:
            rows = erase_and_add(rows, write, given["erase"], written)
        rows = with_prefix(state.rows[:, :prefix], rows)
        return RegisterState(rows, read, write, state.log_probability + read_log + write_log), readout

    def _address(
        self, head: str, rows: torch.Tensor, last: torch.Tensor, given: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights ``[batch, rows]`` and the log-probability of a sampled row ``[batch]``."""
        sharpness = F.softplus(given[f"{head}_sharpness"]) if self.similarity == "cosine" else None
        weights = content_weights(given[f"{head}_key"], rows[..., : self.key_size], sharpness, self.similarity)
        if self.location:
            shifts, power = given[f"{head}_shift"].softmax(-1), 1 + F.softplus(given[f"{head}_power"])
            weights = location_weights(weights, last, given[f"{head}_gate"], shifts, power)
        if self.addressing == "reinforce":
            return sampled_row(weights) if self.training else chosen_row(weights, weights.argmax(-1))
        weights = straight_through(weights) if self.addressing == "straight-through" else weights
        return weights, weights.new_zeros(len(weights))

    def compiled(self, state: RegisterState, steps: int) -> CompiledMemory | None:
        """All but rows that are drawn; that of a subclass step by step."""
        whole = self._whole(state)
        if whole is None:
            return None
        written, read_only, form, after = whole
        return CompiledMemory(
            Registers.source,
            (written, read_only),
            lambda written, read_only: Registers(written, read_only, form),
            after,
        )

    def kernels(self, state: RegisterState, steps: int) -> KernelMemory | None:
        """As :meth:`compiled`."""
        whole = self._whole(state)
        return None if whole is None else registers_in_kernels(*whole)

    def _whole(
        self, state: RegisterState
    ) -> tuple[torch.Tensor, torch.Tensor, RegisterForm, Callable[[torch.Tensor], RegisterState]] | None:
        """What steps write, as one vector a sequence; rows that are only read; and what makes a state of the first."""
        if type(self) is not RegisterMemory or self.addressing == "reinforce":
            return None
        prefix, key_size, width = state.rows.shape[1] - self.rows, self.key_size or 0, state.rows.shape[2]
        if state.read_weights.shape[1] != prefix + self.rows or state.write_weights.shape[1] != self.rows:
            raise GraphError(
                f"weights {[*state.read_weights.shape]} of reading and {[*state.write_weights.shape]} of writing do "
                f"not fit rows {[*state.rows.shape]}, of which {self.rows} are written"
            )
        form = RegisterForm(
            value_size=width - key_size,
            key_size=key_size,
            prefix=prefix,
            rows=self.rows,
            cosine=self.similarity == "cosine",
            location=self.location,
            max_shift=self.max_shift,
            erases=self.write == "erase-and-add",
            hard=self.addressing == "straight-through",
        )
        read_only, written = state.rows.split([prefix, self.rows], 1)

        def after(whole: torch.Tensor) -> RegisterState:
            rows, read, write = whole.split([self.rows * width, prefix + self.rows, self.rows], 1)
            rows = with_prefix(read_only, rows.unflatten(1, (self.rows, width)))
            return RegisterState(rows, read, write, state.log_probability)

        whole = torch.cat([written.flatten(1), state.read_weights, state.write_weights], 1)
        return whole, read_only, form, after

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by tanh; for each head a key, ``gate`` by a sigmoid and what else the options need.

        ``sharpness`` and ``power`` are numbers that softplus makes positive (and adds 1 to ``power``); ``shift`` is
        logits of shifts from ``-max_shift`` to ``max_shift``, ``[batch, 2 * max_shift + 1]``.
        """
        controls = [Control(("value",), size, "tanh")]
        for head in ("read", "write"):
            controls.append(Control((f"{head}_key",), self.key_size or size, "linear"))
            if self.similarity == "cosine":
                controls.append(Control((f"{head}_sharpness",), 0, "linear"))
            if self.location:
                controls.append(Control((f"{head}_gate",), 0, "sigmoid"))
                controls.append(Control((f"{head}_shift",), 2 * self.max_shift + 1, "linear"))
                controls.append(Control((f"{head}_power",), 0, "linear"))
        if self.key_size is not None:
            controls.append(Control(("key",), self.key_size, "tanh"))
        if self.write == "erase-and-add":
            controls.append(Control(("erase",), (self.key_size or 0) + size, "sigmoid"))
        return tuple(controls)

    def trace(
        self, size: int, given: Mapping[str, torch.Tensor], state: RegisterState, readout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """What every memory has, the rows, and the weights of reading and writing."""
        weights = {"read_weights": state.read_weights, "write_weights": state.write_weights}
        return super().trace(size, given, state, readout) | {"memory": state.rows} | weights
