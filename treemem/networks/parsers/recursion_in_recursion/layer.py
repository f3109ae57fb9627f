"""Networks that compose chunks of a sequence, and the results of the chunks in the same way."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Unpack

from treemem.checked_options import Count, Positive, Probability, Range
from treemem.device_copy import to_device
from treemem.engines.choices import gumbel_noise
from treemem.errors import RecipeError
from treemem.networks.gated_cell.layer import GatedCell, Leaves
from treemem.networks.parsers.beam_tree.layer import EfficientBeamTreeGRC, SearchOptions
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.parsers.recursion_in_recursion.chains import chain_encodings, chain_steps
from treemem.networks.parsers.recursion_in_recursion.equations import Alignment
from treemem.networks.parsers.recursion_in_recursion.run import recursion_in_recursion
from treemem.networks.parsers.recursion_in_recursion.state_space import BidirectionalStateSpace
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.trees.vocabulary import Vocabulary

BeamAlignment = Literal["score", "random", "none"]
ChunkSize = Annotated[int, Range(2)]


def _state_space(
    encoder: JoiningEncoder, wanted: bool, dropout: float, trained_backwards: bool
) -> BidirectionalStateSpace | None:
    return BidirectionalStateSpace(encoder.embedding_size, dropout, trained_backwards) if wanted else None


def _leaves(encoder: RecursionInRecursion | RecursionInRecursionGRC, vectors: Vectors) -> torch.Tensor:
    layer = encoder.state_space
    values = vectors.values if layer is None else layer(vectors.values, vectors.lengths)
    return vectors.without_padding(encoder.leaves(values))


class RecursionInRecursion(EfficientBeamTreeGRC):
    """RIR-EBT-GRC (Ray Chowdhury and Caragea 2023): a balanced recursion whose cell is an EBT-GRC over a chunk.

    A state-space layer reads the tokens' vectors, and leaves are made from it, ``LN(W e + b)``. A sequence is cut into
    chunks of ``chunk_size`` positions; the last one may have fewer. Positions that are fewer than one and a half chunks
    are one chunk. In each chunk the search of :class:`EfficientBeamTreeGRC` leaves up to ``beam_size`` hypotheses, the
    slots of its result. The results of the chunks are the positions of the next level, until one is left. There, slot
    ``b`` of a position meets slot ``b`` of the next one, and their log probabilities are added. The encoding is the
    mean of the last slots, weighted by the softmax of their log probabilities; 0 for an empty sequence. All levels have
    the same weights.

    Before slots meet, all but the first of each position are drawn anew from its slots, with replacement (beam
    alignment): by the softmax of their log probabilities, or all alike. In training the draws are random. In evaluation
    they are made with the same random numbers for every sequence, so results can be repeated and do not depend on the
    batch; the authors' code draws in evaluation too. Draws have no gradient.

    The equations are those of the authors' code. But a sequence is cut by its own length, not by that of the longest
    one in its batch, so that it is encoded as if alone. In their code, what the state-space layer reads from right to
    left is cut from the gradients; ``trained_backwards=True`` trains it.

    The depth of a tree is at most ``chunk_size`` for each level, so memory and time grow in proportion to the length.
    The outputs at the tokens are the leaves. The trace has ``"joined"``; see :class:`EfficientBeamTreeGRC`. Chunks of a
    level take their steps at the same time.

    Args:
        hidden_size: width of nodes and encoding.
        vocabulary: the labels.
        chunk_size: positions of a chunk, at least 2.
        beam_size: number of beams, and of slots. The authors use 7.
        alignment: ``"score"``, ``"random"`` or ``"none"``: how slots are drawn anew.
        alignment_temperature: by which log probabilities are divided before the draw; with ``"score"`` alone.
        state_space: whether there is the state-space layer.
        state_space_dropout: dropout probability in it.
        trained_backwards: whether what it reads from right to left is trained.
        noise: whether training is random: Gumbel noise is added before choices, and slots are drawn at random.
        scored_size, dropout: see :class:`EfficientBeamTreeGRC`.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``) searches all chunks of a level at once. ``"naive"``: chunk by chunk. Both give
            the same results, but other noise, dropout and draws in training; only ``"naive"`` has second derivatives.

    Raises:
        RecipeError: an option that is unknown, outside its range or without effect.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = RecursionInRecursion(16, vocabulary, chunk_size=3, beam_size=3)(batch, trace=True)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> states.trace["joined"].shape
        torch.Size([2, 6])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        chunk_size: ChunkSize = 30,
        beam_size: int = 7,
        alignment: BeamAlignment = "score",
        alignment_temperature: Positive = 1.0,
        state_space: bool = True,
        state_space_dropout: Probability = 0.0,
        trained_backwards: bool = False,
        scored_size: Count | None = None,
        **beams: Unpack[SearchOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, scored_size=scored_size, beam_size=beam_size, **beams)
        if alignment != "score" and alignment_temperature != 1:
            raise RecipeError(
                f"alignment_temperature={alignment_temperature:g} has no effect with alignment={alignment!r}; leave it "
                'out, or take alignment="score"'
            )
        self.chunk_size = chunk_size
        self.alignment: BeamAlignment = alignment
        self.alignment_temperature = alignment_temperature
        self.state_space = _state_space(self, state_space, state_space_dropout, trained_backwards)

    def join(self, vectors: Vectors, trace: bool) -> SequenceOutput:
        leaves = _leaves(self, vectors)
        temperature = self.alignment_temperature if self.alignment == "score" else None
        draw = _drawn if self.training and self.noise else _drawn_alike
        trees = recursion_in_recursion(
            leaves,
            vectors.lengths,
            self.weights(),
            self.chunk_size,
            self.beam_size,
            alignment=None if self.alignment == "none" else Alignment(draw, temperature),
            noise=gumbel_noise(leaves) if self.training and self.noise else None,
            dropout=self.dropout if self.training else 0.0,
            engine=self.engine,
            trace=trace,
        )
        return SequenceOutput(trees.encoding, leaves, {} if trees.joined is None else {"joined": trees.joined})


class RecursionInRecursionGRC(JoiningEncoder):
    """RIR-GRC (Ray Chowdhury and Caragea 2023): a balanced recursion whose cell reads a chunk from left to right.

    The levels and the chunks are those of :class:`RecursionInRecursion`, and so are the leaves. But a chunk is not
    searched: the gated recursive cell runs over its positions, ``h_t = cell(h_(t-1), x_t)``, from the zero vector on.
    The last ``h`` is the position of the next level, and at the end the encoding; 0 for an empty sequence.

    With ``chunk_size=2, from_zero=False, state_space=False`` it is BBT-GRC of the same authors, a balanced binary tree:
    each level composes neighbours, and an odd last one passes up unchanged.

    The equations are those of the authors' code. But in RIR-GRC a sequence is cut by its own length, not by that of the
    longest one in its batch, so that it is encoded as if alone. The outputs at the tokens are the leaves. The trace has
    ``"joined"``; see :class:`RecursionInRecursion`. The tree depends on the length alone.

    Args:
        hidden_size: width of nodes and encoding.
        vocabulary: the labels.
        chunk_size: positions of a chunk, at least 2.
        from_zero: whether a chunk begins with the zero vector. If not, it begins with its first position, and a chunk
            of one position is unchanged.
        dropout: dropout probability of the cell's hidden layer.
        state_space, state_space_dropout, trained_backwards: see :class:`RecursionInRecursion`.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``) composes all sequences level by level, in C++ or in kernels where they can be
            used. ``"naive"``: sequence by sequence. Both give the same results, but other dropout; only ``"naive"`` has
            second derivatives.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> RecursionInRecursionGRC(16, vocabulary, chunk_size=3)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        chunk_size: ChunkSize = 30,
        from_zero: bool = True,
        dropout: Probability = 0.0,
        state_space: bool = True,
        state_space_dropout: Probability = 0.0,
        trained_backwards: bool = False,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        self.chunk_size, self.from_zero, self.dropout = chunk_size, from_zero, dropout
        self.state_space = _state_space(self, state_space, state_space_dropout, trained_backwards)
        self.leaves = Leaves(self.embedding_size, hidden_size)
        self.cell = GatedCell(hidden_size)

    def join(self, vectors: Vectors, trace: bool) -> SequenceOutput:
        leaves = _leaves(self, vectors)
        encoding = chain_encodings(
            leaves,
            vectors.lengths,
            self.cell.weights(),
            self.chunk_size,
            from_zero=self.from_zero,
            dropout=self.dropout if self.training else 0.0,
            engine=self.engine,
        )
        if not trace:
            return SequenceOutput(encoding, leaves, {})
        steps = chain_steps(vectors.lengths, leaves.shape[1], self.chunk_size)
        failed = ~encoding.detach().isfinite().all(1, keepdim=True)
        joined = to_device(steps, leaves.device).to(leaves.dtype).masked_fill(failed, torch.nan)
        return SequenceOutput(encoding, leaves, {"joined": joined})


def _drawn(probability: torch.Tensor, level: int, chunks: NDArray[np.int64]) -> torch.Tensor:
    """Draw slots; see ``Draw``."""
    uniform = torch.rand(len(probability), probability.shape[1] - 1, dtype=torch.float64, device=probability.device)
    return _slots_at(probability, uniform)


def _drawn_alike(probability: torch.Tensor, level: int, chunks: NDArray[np.int64]) -> torch.Tensor:
    """Draw slots with numbers that depend on the level and the place of the chunk alone."""
    slots = range(probability.shape[1] - 1)
    of_slots = [np.random.default_rng((level, slot)).random(int(chunks.max()) + 1)[chunks] for slot in slots]
    return _slots_at(probability, to_device(torch.from_numpy(np.stack(of_slots, 1)), probability.device))


def _slots_at(probability: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    return torch.searchsorted(probability.double().cumsum(1), uniform).clamp(max=probability.shape[1] - 1)
