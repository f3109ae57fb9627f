"""ON-LSTM: an LSTM with ordered neurons, from whose gates a tree can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Probability, checked_choice, checked_count, checked_layers
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine, checked_engine
from treemem.engines.sequence_lengths import within
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks.parsers.on_lstm.equations import OnLSTMOutputs, OnLSTMWeights
from treemem.networks.parsers.on_lstm.run import on_lstm
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.networks.sequences.locked_dropout import locked_dropout
from treemem.networks.sequences.recurrent.lstm_stack import LayerStack, checked_sizes
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.induced import tree_from_distances
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

WeightDropoutScaling = Literal["published", "inverted"]

State = tuple[torch.Tensor, torch.Tensor]
"""``h`` and ``c`` of a layer, each ``[sequences, size of the layer]``."""


class StackOutputs(NamedTuple):
    """What came of a run of a stack of ON-LSTM layers over sequences.

    Attributes:
        h: the outputs of the last layer, ``[sequences, longest, its size]``, 0 after the end of shorter sequences.
        state: of each layer after the last token of each sequence; where the next run may go on.
        layers: the outputs of every layer.
    """

    h: torch.Tensor
    state: list[State]
    layers: list[OnLSTMOutputs]


class OnLSTMLayer(Resettable):
    """The weights of one layer of ON-LSTM, in the order of ``OnLSTMWeights``.

    Args:
        input_size: width of what it reads.
        hidden_size: width of ``h`` and ``c``.
        chunk_size: adjacent units that share a master unit.
    """

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int) -> None:
        super().__init__()
        num_blocks = 2 * (hidden_size // chunk_size) + 4 * hidden_size
        self.of_input = torch.nn.Linear(input_size, num_blocks)
        self.of_hidden = torch.nn.Linear(hidden_size, num_blocks)


class OnLSTMStack(LayerStack):
    """Stacked layers of ON-LSTM over sequences of vectors, for sentence encoders and language models.

    Args:
        input_size: width of the vectors.
        layer_sizes: width of each layer's ``h``; in the published language model 1150, 1150, 400.
        chunk_size: number of adjacent units that share a master unit. It divides the size of every layer.
        dropout: dropout probability between layers, with one mask for the whole sequence.
        weight_dropout: dropout probability of the recurrent weights, with one mask for a call.
        weight_dropout_scaling: ``"published"``, as in the authors' code: weights are multiplied by
            ``1 - weight_dropout`` in evaluation; ``"inverted"``, as in AWD-LSTM: the weights that stay are divided by
            ``1 - weight_dropout`` in training.
        engine: how to run, see ``SequenceEngine``; all give the same numbers.

    Raises:
        RecipeError: an option outside its range.
    """

    def __init__(
        self,
        input_size: int,
        layer_sizes: Sequence[int],
        chunk_size: int,
        *,
        dropout: float = 0.0,
        weight_dropout: float = 0.0,
        weight_dropout_scaling: WeightDropoutScaling = "published",
        engine: SequenceEngine = "auto",
    ) -> None:
        checked_choice("weight_dropout_scaling", weight_dropout_scaling, get_args(WeightDropoutScaling))
        checked_count("chunk_size", chunk_size)
        for size in checked_sizes(layer_sizes):
            _check_chunks(chunk_size, size)
        new_layer = partial(OnLSTMLayer, chunk_size=chunk_size)
        super().__init__(input_size, layer_sizes, dropout, weight_dropout, new_layer)
        self.chunk_size = chunk_size
        if dropout and len(layer_sizes) == 1:
            raise RecipeError("dropout is between layers, and there is one; weight_dropout is inside it")
        self.weight_dropout_scaling = weight_dropout_scaling
        self.engine: SequenceEngine = checked_engine("engine", engine)

    def forward(
        self, inputs: torch.Tensor, lengths: torch.Tensor | None = None, state: Sequence[State] | None = None
    ) -> StackOutputs:
        """Run over sequences of vectors.

        Args:
            inputs: ``[sequences, longest, input_size]``, on the right of each sequence padding of any content.
            lengths: int64 ``[sequences]``, 0 to ``longest``; None where none has padding.
            state: of each layer, where to begin; zero by default.

        Raises:
            GraphError: inputs of another width, lengths that do not fit them, or a state of another number of layers or
                sequences.
        """
        if lengths is None:
            lengths = torch.full((len(inputs),), inputs.shape[1], dtype=torch.int64)
        state = self.initial(len(inputs)) if state is None else state
        self.check_state(state)
        weights = [self._weights(layer) for layer in self.layers]  # type: ignore[arg-type]
        layers: list[OnLSTMOutputs] = []
        for of_layer, (hidden, cell) in zip(weights, state, strict=True):
            if layers:
                inputs = locked_dropout(layers[-1].h, self.dropout, self.training)
            layers.append(on_lstm(inputs, lengths, hidden, cell, of_layer, self.chunk_size, self.engine))
        return StackOutputs(layers[-1].h, [(layer.hidden, layer.cell) for layer in layers], layers)

    def _weights(self, layer: OnLSTMLayer) -> OnLSTMWeights:
        of_hidden, rate = layer.of_hidden.weight, self.weight_dropout
        if rate and self.weight_dropout_scaling == "inverted":
            of_hidden = functional.dropout(of_hidden, rate, self.training)
        elif rate:
            of_hidden = of_hidden * (torch.rand_like(of_hidden) >= rate if self.training else 1 - rate)
        return OnLSTMWeights(layer.of_input.weight, layer.of_input.bias, of_hidden, layer.of_hidden.bias)


def _check_chunks(chunk_size: int, size: int) -> None:
    if size % chunk_size:
        fitting = [str(number) for number in range(1, size // 2 + 1) if size % number == 0]
        raise RecipeError(f"chunk_size={chunk_size} does not divide a layer of {size}; {', '.join(fitting)} would")
    if size == chunk_size:
        raise RecipeError(
            f"chunk_size={chunk_size} leaves a layer of {size} one master unit, whose input gate is always 0; take a "
            "smaller chunk_size or a wider layer"
        )


class ONLSTM(SequenceEncoder):
    """An ON-LSTM over the tokens of each tree (Shen et al. 2018). The encoding is the last layer's ``h`` at the end.

    Master gates bound the forget and input gates of an LSTM. From the first unit to the last, the master forget gate
    rises and the master input gate falls; see ``on_lstm_gates``. If the master forget gate
    erases many units at a token, a large constituent ended before it. So the trace defines a tree.

    Args:
        hidden_size: width of the last layer and of the encodings.
        vocabulary: the labels.
        num_layers: number of layers of ``hidden_size``; 1 by default.
        layer_sizes: the width of each layer, instead of ``num_layers``. The last one is ``hidden_size``.
        chunk_size: number of adjacent units that share a master unit. It divides the size of every layer; 10 in the
            published language model.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        dropout: dropout probability between layers.
        output_dropout: dropout probability of the last layer's outputs and of the encoding. Like ``input_dropout`` and
            ``dropout`` it uses one mask for the whole sequence (locked dropout).
        weight_dropout, weight_dropout_scaling: dropout of the recurrent weights; see :class:`OnLSTMStack`.
        engine: ``"auto"``, ``"fused"`` or ``"naive"``. All give the same numbers.

    The trace has no gradients and is 0 at padding. It holds:

    * ``forget_distance``, ``[sequences, layers, longest]``: 1 minus the mean of the master forget gate.
    * ``input_distance``, ``[sequences, layers, longest]``: the mean of the master input gate.
    * ``master_forget``, ``master_input``, ``[sequences, longest, master units]``: the gates, beginning with those of
      the first layer.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = ONLSTM(16, vocabulary, chunk_size=4, num_layers=2)(batch, trace=True)
        >>> states.root.shape, states.trace["forget_distance"].shape
        (torch.Size([2, 1, 16]), torch.Size([2, 2, 6]))
    """

    lengths_on_cpu = True

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_layers: int | None = None,
        layer_sizes: Sequence[int] | None = None,
        chunk_size: int = 10,
        dropout: float = 0.0,
        output_dropout: Probability = 0.0,
        weight_dropout: float = 0.0,
        weight_dropout_scaling: WeightDropoutScaling = "published",
        engine: SequenceEngine = "auto",
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.output_dropout = output_dropout
        self.stack = OnLSTMStack(
            self.embedding_size,
            layer_widths(hidden_size, num_layers, layer_sizes),
            chunk_size,
            dropout=dropout,
            weight_dropout=weight_dropout,
            weight_dropout_scaling=weight_dropout_scaling,
            engine=engine,
        )

    @property
    def engine(self) -> SequenceEngine:
        """How the layers run; may be set."""
        return self.stack.engine

    @engine.setter
    def engine(self, engine: SequenceEngine) -> None:
        self.stack.engine = self.options["engine"] = checked_engine("engine", engine)

    def embed(self, items: torch.Tensor) -> torch.Tensor:
        """The vectors of items, ``[sequences, longest, embedding_size]``, with locked dropout in training."""
        vectors = self.embedding(to_device(items, self.embedding.weight.device))
        return locked_dropout(vectors, self.input_dropout, self.training)

    can_induce_trees = True

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        distances = dict.fromkeys(("forget_distance", "input_distance"), ("sequences", "layers", "tokens"))
        return distances | dict.fromkeys(("master_forget", "master_input"), ("sequences", "tokens", "units"))

    def induced_trees(
        self, batch: TreeBatch, *, layer: int | None = None, gate: Literal["forget", "input"] = "forget"
    ) -> list[Tree]:
        """Return the tree that the distances split each sequence into, without dropout.

        Args:
            batch: the trees that are read as sequences.
            layer: whose distances, from 0; by default the second's, as Shen et al. 2019 read them, or the only one's.
            gate: whether the master forget gate's distances, as in the paper, or the master input gate's.

        Raises:
            RecipeError: there is no such layer or gate.
            GraphError: a batch made from a graph, or a distance that is not a number; names the sequence.
        """
        checked_choice("gate", gate, ("forget", "input"))
        with in_evaluation_mode(self):
            distances = self(batch, trace=True).trace[f"{gate}_distance"]
        chosen = parsing_layer("ONLSTM", layer, distances.shape[1])
        return self.trees_over_tokens(batch, distances[:, chosen], tree_from_distances)

    why_not_in_bucket = None

    carries_state = True

    def read(
        self,
        inputs: torch.Tensor,
        lengths: torch.Tensor,
        *,
        trace: bool = False,
        state: Sequence[State] | None = None,
    ) -> SequenceOutput:
        """Run over sequences of vectors, from the zero state unless one is given for each layer."""
        lengths = whole_numbers("lengths", lengths)
        ran = self.stack(inputs, lengths, state)
        both = torch.cat([ran.h, ran.state[-1][0][:, None]], dim=1)  # the encoding has the mask of its sequence
        both = locked_dropout(both, self.output_dropout, self.training)
        traced = _trace(ran.layers, lengths) if trace else {}
        return SequenceOutput(both[:, -1], both[:, :-1], traced, state=ran.state)


def layer_widths(hidden_size: int, num_layers: int | None, layer_sizes: Sequence[int] | None) -> list[int]:
    """Return the width of each layer: ``layer_sizes``, or ``hidden_size`` for each of ``num_layers``, by default 1.

    Raises:
        RecipeError: the two contradict each other, or the last layer is not of ``hidden_size``.
    """
    if layer_sizes is None:
        return [hidden_size] * (1 if num_layers is None else checked_layers("num_layers", num_layers))
    sizes = checked_sizes(layer_sizes)
    if num_layers is not None and num_layers != len(sizes):
        raise RecipeError(f"num_layers={num_layers}, but layer_sizes has {len(sizes)}; give one of the two")
    if sizes[-1:] != [hidden_size]:
        raise RecipeError(f"the last of layer_sizes={sizes} must be hidden_size={hidden_size}")
    return sizes


def parsing_layer(network: str, layer: int | None, num_layers: int) -> int:
    """Return the layer whose distances make trees: by default the second, or the only one.

    Raises:
        RecipeError: there is no such layer.
    """
    chosen = min(1, num_layers - 1) if layer is None else layer
    if not 0 <= chosen < num_layers:
        raise RecipeError(f"{network} has no layer {layer}; its layers are 0 to {num_layers - 1}")
    return chosen


def distances_of_gates(layers: list[OnLSTMOutputs], lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the syntactic distances of each layer, ``[sequences, layers, longest]``, 0 at padding.

    Args:
        layers: the outputs of every layer of a stack.
        lengths: int64 ``[sequences]``.

    Returns:
        ``forget_distance``: 1 less the mean of the master forget gate; ``input_distance``: the mean of the master input
        gate.
    """
    masters = [layer.masters for layer in layers]
    present = within(lengths.cpu(), masters[0].shape[1])
    means = torch.stack([gates.mean(3) for gates in masters], dim=1)  # [sequences, layers, longest, input and forget]
    return {
        "forget_distance": (1 - means[..., 1]) * to_device(present[:, None], means.device),
        "input_distance": means[..., 0],
    }


def _trace(layers: list[OnLSTMOutputs], lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    masters = [layer.masters for layer in layers]
    return {
        **distances_of_gates(layers, lengths),
        "master_forget": torch.cat([gates[:, :, 1] for gates in masters], dim=2),
        "master_input": torch.cat([gates[:, :, 0] for gates in masters], dim=2),
    }
