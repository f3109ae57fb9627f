"""Weights of a stack-augmented parser-interpreter, and what chooses its transitions."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.choices import Noise

SHIFT, REDUCE = 0, 1


class TrackerWeights(NamedTuple):
    """Of the LSTM that reads the top of the buffer and the two topmost nodes, in blocks input, forget, update, output.

    Attributes:
        inputs: ``[4 * tracker_size, 3 * hidden_size]``.
        lateral: of its last ``h``, ``[4 * tracker_size, tracker_size]``.
        to_cell: what the composition reads of its ``h``, ``[5 * hidden_size, tracker_size]``.
        transition: of ``[h; c]``, the logits of shift and reduce, ``[2, 2 * tracker_size]``.
    """

    inputs: Affine
    lateral: torch.Tensor
    to_cell: torch.Tensor
    transition: Affine


class SPINNWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: of the Tree-LSTM of two children, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            :data:`treemem.ops.tree_lstm.step.GATES`.
        tracker: None: transitions are given, and compositions read nothing but their children.
        norms: gains and biases of the normalisation over a batch; empty: there is none. Of the two nodes that the cell
            reads, ``[2, hidden_size]`` each; with a tracker also of the three nodes that it reads,
            ``[3, hidden_size]``, and of its ``h`` that the cell reads, ``[1, tracker_size]``.
    """

    cell: Affine
    tracker: TrackerWeights | None
    norms: tuple[Affine, ...] = ()


class Policy(NamedTuple):
    """What chooses transitions.

    Attributes:
        temperature: logits are divided by it.
        uniform: uniform numbers of a shape: reduce if the number is above the probability of a shift. None: the
            likelier transition, the shift on ties.
    """

    temperature: float = 1.0
    uniform: Noise | None = None

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the transitions of sequences, int64 ``[sequences]``, by their logits ``[sequences, 2]``."""
        shift = (logits / self.temperature).softmax(1)[:, SHIFT]
        above = torch.full_like(shift, 0.5) if self.uniform is None else self.uniform((len(logits),))
        return torch.where(above > shift, REDUCE, SHIFT)
