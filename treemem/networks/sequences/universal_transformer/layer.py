"""A Universal Transformer over the tokens of trees: one layer, repeated."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Layers, Probability
from treemem.data.sum_count import SumCount
from treemem.networks.sequences.attention_encoder import (
    AttentionEncoder,
    AttentionOptions,
    AttentionOutput,
    absent_keys,
    attention_weights,
    sinusoids,
)
from treemem.trees.vocabulary import Vocabulary


class UniversalTransformer(AttentionEncoder):
    """The encoder of a Universal Transformer (Dehghani et al. 2018) over the tokens of each tree, or of both of a pair.

    Each of ``num_steps`` steps first adds to every vector the sinusoids of its position and those of the step, both
    counted from 1. Then all vectors go through the same :class:`torch.nn.TransformerEncoderLayer`.

    With ``act=True`` each position decides when to halt (adaptive computation time, Graves 2016), as in the authors'
    code. In each step ``p = sigmoid(w s + b)`` of the layer's input ``s`` adds to the position's halting probability.
    The position halts when the sum would pass ``threshold``; ``p`` is then the remainder, 1 minus the sum so far. The
    output is ``y = p * layer(s) + (1 - p) * y``, starting with ``y = 0``. Other positions still attend to a halted one.

    Args:
        hidden_size: width of the vectors and of the encoding.
        vocabulary: the labels.
        num_steps: how often the layer runs. With ``act=True`` all positions stop after this number of steps.
        num_heads, feedforward_size, dropout, norm_first, read, joint, form, embedding_bound, input_dropout: as of
            :class:`treemem.nn.Transformer`; ``dropout`` is on the vectors before the first step and inside the layer.
        act: whether positions halt.
        threshold: a position halts when its halting probability would pass this.

    With ``act=True`` the output has the auxiliary loss ``"ponder"``: the mean ponder time of the positions. The ponder
    time of a position is its number of steps plus its remainder. In the authors' code the weight of this loss is 0.01:
    set ``auxiliary_losses: {ponder: 0.01}`` in the training options.

    The trace has ``attention``, ``[sequences, num_steps, longest, longest]``, as for a Transformer; 0 in steps that no
    position of the batch took. With ``act=True`` it also has ``ponder``, ``[sequences, longest]``: the ponder time of
    each position, including start, delimiter and extract, with gradients; 0 at padding.

    Second derivatives need ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` around the forward pass.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = UniversalTransformer(16, vocabulary, num_steps=3, num_heads=4, act=True)(batch, trace=True)
        >>> states.root.shape, states.trace["ponder"].shape
        (torch.Size([2, 1, 16]), torch.Size([2, 7]))
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_steps: Layers = 6,
        act: bool = False,
        threshold: Probability = 0.99,
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        self.num_steps = num_steps
        self.threshold = threshold
        self.layer = self.new_layer()
        self.last_norm = self.new_last_norm()
        self.halting = torch.nn.Linear(hidden_size, 1) if act else None
        self._reset_halting()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self._reset_halting()

    def _reset_halting(self) -> None:
        if self.halting is not None:
            torch.nn.init.ones_(self.halting.bias)  # as in the code of the authors: at first most halt early

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        ponder = {"ponder": ("sequences", "tokens")} if self.halting is not None else {}
        return {"attention": ("sequences", "steps", "tokens", "tokens"), **ponder}

    def run(self, vectors: torch.Tensor, padding: torch.Tensor | None, trace: bool) -> AttentionOutput:
        """Repeat the layer; see :meth:`AttentionEncoder.run`."""
        sequences, longest = vectors.shape[:2]
        place = sinusoids(1 + torch.arange(longest, device=vectors.device), self.hidden_size).to(vectors)
        time = sinusoids(1 + torch.arange(self.num_steps, device=vectors.device), self.hidden_size).to(vectors)
        state, output = functional.dropout(vectors, self.dropout, self.training), torch.zeros_like(vectors)
        ponder = _Ponder(vectors, padding, self.threshold)
        absent = absent_keys(padding)
        attention = []
        for step in range(self.num_steps if vectors.numel() else 0):
            inputs = state + place + time[step]
            if trace:
                attention.append(attention_weights(self.layer, inputs, absent))
            state = self.layer(inputs, src_key_padding_mask=absent)
            if self.halting is None:
                output = state
                continue
            weight = ponder.step(torch.sigmoid(self.halting(inputs)).squeeze(2))[:, :, None]
            output = weight * state + (1 - weight) * output
            looks = trace or vectors.device.type == "cpu"  # elsewhere, looking would wait for the device
            if looks and not ponder.running.any():
                break
        output = self.last_norm(output)
        losses = {} if self.halting is None else {"ponder": ponder.loss()}
        if not trace:
            return AttentionOutput(output, {}, losses)
        traced = {"attention": vectors.new_zeros(sequences, self.num_steps, longest, longest)}
        for step, weights in enumerate(attention):
            traced["attention"][:, step] = weights
        if self.halting is not None:
            traced["ponder"] = ponder.times()
        return AttentionOutput(output, traced, losses)


class _Ponder:
    """How long positions are read.

    Args:
        vectors: ``[sequences, longest, hidden_size]``.
        padding: where there is padding, which is not read at all; None where there is none.
        threshold: halting probability over which a position halts.

    Attributes:
        running: bool ``[sequences, longest]``, which positions have not halted.
    """

    def __init__(self, vectors: torch.Tensor, padding: torch.Tensor | None, threshold: float) -> None:
        self.threshold = threshold
        self._halting = self._remainder = self._num_steps = vectors.new_zeros(vectors.shape[:2])
        self.running = torch.ones_like(self._halting, dtype=torch.bool) if padding is None else ~padding
        self._present = self.running

    def step(self, probability: torch.Tensor) -> torch.Tensor:
        """Count a step, and tell how much of its state each position reads, ``[sequences, longest]``.

        Args:
            probability: of halting here, ``[sequences, longest]``.
        """
        halts = self.running & (self._halting + probability > self.threshold)
        goes_on = self.running & ~halts
        self._num_steps = self._num_steps + self.running
        self._remainder = torch.where(halts, 1 - self._halting, self._remainder)
        weight = torch.where(halts, self._remainder, probability * goes_on)
        self._halting = self._halting + probability * goes_on
        self.running = goes_on
        return weight

    def times(self) -> torch.Tensor:
        """Steps and remainder of each position, ``[sequences, longest]``."""
        return self._num_steps + self._remainder

    def loss(self) -> SumCount:
        """Return the sum of the ponder times, and the number of positions that are not padding."""
        return SumCount(self.times().sum(), self._present.sum())
