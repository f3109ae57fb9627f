"""Sequence encoders against the loops that their authors published, torch's own, and their matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.device import measured_device
from benchmarks.operations import Operation, OperationWorkload
from benchmarks.published_ordered_memory import published_ordered_memory
from benchmarks.random_trees import random_binary_trees, words
from benchmarks.sharp_memory import SLOTS, kept_weights, random_lists
from treemem import TreeBatch, Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.engines.sequence_lengths import entry_of_each
from treemem.native.matmul_precision import matmul_precision
from treemem.networks.memories.controllers.cells import run_cell
from treemem.networks.parsers.on_lstm.equations import OnLSTMWeights
from treemem.networks.parsers.on_lstm.run import on_lstm
from treemem.networks.parsers.ordered_memory.equations import Dropouts
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.networks.parsers.ordered_memory.run import ordered_memory
from treemem.nn import (
    PRPN,
    SPINN,
    BeamTreeGRC,
    CRvNN,
    EfficientBeamTreeGRC,
    GRUCell,
    GumbelTreeLSTM,
    LSTMCell,
    Memory,
    MemoryCell,
    NeuralDeque,
    NeuralStack,
    ReadOnlyMemory,
    RegisterMemory,
    StepCell,
    SuperpositionStack,
    VanillaCell,
)
from treemem.ops import compile_steps


class OrderedMemoryProducts:
    """The matrix products of an Ordered Memory alone, step by step and slot by slot, in the sizes of a batch."""

    def __init__(self, cumulative: Tensor, lengths: Tensor, maps: MemoryMaps) -> None:
        size = maps.input_map.out_features
        present = torch.arange(cumulative.shape[1]) < lengths[:, None]
        reached = (cumulative.cpu() > 0) & present[:, :, None]
        reached[:, :, -1] = present
        self.rows = [[count for count in step if count] for step in reached.sum(0).tolist()]
        self.weights = {
            name: weight.detach().requires_grad_()
            for name, weight in (
                ("vertical", maps.cell_map.weight[:, :size]),
                ("horizontal", maps.cell_map.weight[:, size:]),
                ("gates", maps.gate_map.weight),
                ("key", maps.key_map.weight),
            )
        }

    def __call__(self, _: float) -> Tensor:
        """Return a sum of their results, so that they have a backward pass."""
        total = self.weights["gates"].new_zeros(())
        for counts in self.rows:
            total = total + self._of(sum(counts), "horizontal") + self._of(sum(counts), "key")
            for count in counts:
                total = total + self._of(count, "vertical") + self._of(count, "gates")
        return total

    def _of(self, rows: int, name: str) -> Tensor:
        weight = self.weights[name]
        inputs = weight.new_ones(rows, weight.shape[1], requires_grad=torch.is_grad_enabled())
        return (inputs @ weight.t())[0, 0]


def random_memory(mixed: bool, small: bool, dtype: torch.dtype) -> Operation:
    """Random inputs and weights: 50 tokens each, or 10 to 50."""
    size, slots, sequences, longest = (8, 4, 5, 9) if small else (128, 21, 128, 50)
    torch.manual_seed(0)
    maps = MemoryMaps(size, size, "gated").to(measured_device(), dtype)
    lengths = torch.randint(longest // 5, longest + 1, (sequences,)) if mixed else torch.full((sequences,), longest)
    return ordered_memory_batch(
        maps, torch.randn(sequences, longest, size, dtype=dtype).to(measured_device()), lengths, slots
    )


def sharp_memory(small: bool, dtype: torch.dtype) -> Operation:
    """List operations of 10 to 50 tokens, read with weights whose attention gold trees have supervised."""
    if small:
        torch.manual_seed(0)
        maps = MemoryMaps(8, 8, "gated").to(measured_device(), dtype)
        with torch.no_grad():
            maps.score_map.weight.mul_(30)
        return ordered_memory_batch(
            maps, torch.randn(5, 9, 8, dtype=dtype).to(measured_device()), torch.tensor([9, 3, 7, 1, 9]), 4
        )
    memory, lists = kept_weights().to(measured_device(), dtype), random_lists(128, seed=-1)
    return ordered_memory_batch(
        memory.maps, memory.embedding(lists.tokens.to(measured_device())).detach(), lists.lengths, SLOTS
    )


def ordered_memory_batch(maps: MemoryMaps, inputs: Tensor, lengths: Tensor, slots: int) -> Operation:
    """All ways of reading ``inputs``, ``[sequences, longest, input_size]``."""
    inputs.requires_grad_()

    def run(rate: float, engine: str, skip: float = 0.0) -> Tensor:
        dropouts = Dropouts(rate, rate)
        steps = ordered_memory(inputs, lengths, maps.weights(), slots, dropouts=dropouts, engine=engine, skip=skip)
        return entry_of_each(steps.outputs, lengths - 1)

    with torch.no_grad():
        cumulative = ordered_memory(inputs, lengths, maps.weights(), slots, trace=True).cumulative
    assert cumulative is not None
    others = {
        "published-loop": lambda rate: published_ordered_memory(inputs, lengths, maps.weights(), slots, rate),
        "uncompiled": partial(run, engine="naive"),
        "skipping": partial(run, engine="fused", skip=1e-5),
        **with_shorter_products(partial(run, engine="fused")),
        "products": OrderedMemoryProducts(cumulative, lengths, maps),
    }
    leaves = {"inputs": inputs, **dict(maps.named_parameters())}
    return Operation(len(inputs), leaves, partial(run, engine="fused"), others, ("published-loop", "uncompiled"), 0.2)


def with_shorter_products(run: Callable[[float], Tensor]) -> dict[str, Callable[[float], Tensor]]:
    """The same with products of less precision; the backward pass in C++ takes that of the forward pass."""

    def shorter(rate: float, precision: str) -> Tensor:
        with matmul_precision(precision):
            return run(rate)

    return {f"{name}-products": partial(shorter, precision=name) for name in ("high", "medium")}


class OnLSTMProducts:
    """The matrix products of an ON-LSTM alone."""

    def __init__(self, inputs: Tensor, weights: OnLSTMWeights) -> None:
        self.inputs = inputs
        self.weights = [weight.detach().requires_grad_() for weight in (weights.input_weight, weights.hidden_weight)]

    def __call__(self, _: float) -> Tensor:
        """Return a sum of their results, so that they have a backward pass."""
        of_input, of_hidden = self.weights
        total = (self.inputs.flatten(0, 1) @ of_input.t())[0, 0]
        for _step in range(self.inputs.shape[1]):
            hidden = of_hidden.new_ones(len(self.inputs), of_hidden.shape[1], requires_grad=torch.is_grad_enabled())
            total = total + (hidden @ of_hidden.t())[0, 0]
        return total


def on_lstm_batch(small: bool, dtype: torch.dtype) -> Operation:
    """A layer of the published language model: 400 inputs, 1,150 units in chunks of 10, 20 sequences of 70 tokens."""
    input_size, size, chunk_size, sequences, time = (3, 8, 2, 3, 5) if small else (400, 1150, 10, 20, 70)
    torch.manual_seed(0)
    outputs, bound = 4 * size + 2 * size // chunk_size, size**-0.5
    shapes = {
        "input_weight": (outputs, input_size),
        "input_bias": (outputs,),
        "hidden_weight": (outputs, size),
        "hidden_bias": (outputs,),
    }
    named = {name: torch.empty(shape, dtype=dtype).uniform_(-bound, bound) for name, shape in shapes.items()}
    named = {name: value.to(measured_device()) for name, value in named.items()}
    inputs = torch.randn(sequences, time, input_size, dtype=dtype).to(measured_device())
    leaves = {name: leaf.requires_grad_() for name, leaf in {"inputs": inputs, **named}.items()}
    weights, lengths = OnLSTMWeights(**named), torch.full((sequences,), time)
    state = inputs.new_zeros(sequences, size)
    lstm = nn.LSTM(input_size, size, batch_first=True).to(measured_device(), dtype)

    def run(_: float, engine: str) -> Tensor:
        return on_lstm(inputs, lengths, state, state, weights, chunk_size, engine).h

    others = {
        "published-loop": partial(run, engine="naive"),
        "torch-lstm": lambda _: lstm(inputs)[0],
        **with_shorter_products(partial(run, engine="fused")),
        "products": OnLSTMProducts(inputs.detach(), weights),
    }
    return Operation(sequences, leaves, partial(run, engine="fused"), others, ("published-loop",))


def cell_batch(make_cell: Callable[[int, int], StepCell], kernel: str, small: bool, dtype: torch.dtype) -> Operation:
    """A cell of 128 units over 64 sequences of 25 to 35 vectors of 32 numbers, against torch's ``kernel``."""
    input_size, size, sequences, longest = (3, 8, 5, 6) if small else (32, 128, 64, 35)
    torch.manual_seed(0)
    cell = make_cell(input_size, size).to(measured_device(), dtype)
    inputs = torch.randn(sequences, longest, input_size, dtype=dtype).to(measured_device()).requires_grad_()
    lengths = torch.randint(longest - 2 if small else 25, longest + 1, (sequences,))

    def packed(_: float) -> Tensor:
        given = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        zeros = inputs.new_zeros(1, sequences, size)
        first = [zeros, zeros] if kernel == "lstm" else zeros
        states, *_last = getattr(torch, kernel)(
            given.data, given.batch_sizes, first, [*cell.parameters()], True, 1, 0.0, True, False
        )
        return pad_packed_sequence(given._replace(data=states), batch_first=True, total_length=longest)[0]

    return Operation(
        sequences,
        {"inputs": inputs, **dict(cell.named_parameters())},
        lambda _: run_cell(cell, inputs, lengths=lengths)[0],
        {f"torch-{kernel}": packed},
        (f"torch-{kernel}",),
    )


def attending_gru_batch(small: bool, dtype: torch.dtype) -> Operation:
    """A GRU that writes 8 symbols and attends to 35 rows of 256 numbers, as a decoder does."""
    input_size, size, sequences, time, count, width = (3, 8, 5, 4, 6, 7) if small else (32, 128, 64, 8, 35, 256)
    torch.manual_seed(0)
    memory = ReadOnlyMemory(width, "bilinear")
    cell = MemoryCell(lambda given: GRUCell(given, size), memory, input_size, width).to(measured_device(), dtype)
    inputs = torch.randn(sequences, time, input_size, dtype=dtype).to(measured_device()).requires_grad_()
    rows = torch.randn(sequences, count, width, dtype=dtype).to(measured_device()).requires_grad_()

    def run(_: float, run: Callable[..., Any]) -> Tensor:
        held = memory.filled(rows, torch.full((sequences,), count, device=rows.device))
        outputs: Tensor = run(cell, inputs, cell.initial(sequences)._replace(memories=(held,)))[0]
        return outputs

    return Operation(
        sequences,
        {"inputs": inputs, "rows": rows, **dict(cell.named_parameters())},
        partial(run, run=run_cell),
        {"step-by-step": partial(run, run=StepCell.run)},
        ("step-by-step",),
    )


def controlled_batch(
    make_cell: Callable[[int, int], StepCell],
    size: int,
    make_memory: Callable[[int], Memory],
    rows: int,
    value_size: int,
    small: bool,
    dtype: torch.dtype,
) -> Operation:
    """A controller with a memory, which may have so many rows, over 32 sequences of 80 vectors of 16 numbers."""
    size, sequences, time, rows = (8, 5, 9, 4) if small else (size, 32, 80, rows)
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: make_cell(width, size), make_memory(rows), 16, value_size)
    cell.to(measured_device(), dtype)
    inputs = torch.randn(sequences, time, 16, dtype=dtype).to(measured_device()).requires_grad_()

    def run(_: float, run: Callable[..., Any]) -> Tensor:
        outputs: Tensor = run(cell, inputs, cell.initial(sequences))[0]
        return outputs

    return Operation(
        sequences,
        {"inputs": inputs, **dict(cell.named_parameters())},
        partial(run, run=run_cell),
        {"step-by-step": partial(run, run=StepCell.run)},
        ("step-by-step",),
    )


def crvnn_batch(small: bool, dtype: torch.dtype) -> Operation:
    """Sequences of 25 random vectors, composed by a CRvNN with the weights that it begins with."""
    size, sequences, longest = (8, 5, 6) if small else (64, 128, 25)
    torch.manual_seed(0)
    network = CRvNN(size, Vocabulary(["x"], [])).to(measured_device(), dtype)
    inputs = torch.randn(sequences, longest, size, dtype=dtype).to(measured_device()).requires_grad_()
    lengths = torch.full((sequences,), longest)

    def run(_: float, compiled: bool = True) -> Tensor:
        with compile_steps(compiled):
            return network.read(inputs, lengths).encoding

    others = {"uncompiled": partial(run, compiled=False), **with_shorter_products(run)}
    leaves = {"inputs": inputs, **{name: each for name, each in network.named_parameters() if "embedding" not in name}}
    return Operation(sequences, leaves, run, others, ("uncompiled",))


def joining_batch(network: Any, small: bool, dtype: torch.dtype) -> Operation:
    """Sequences of 20 random vectors, composed by a network that chooses its tree. Each run draws other noise."""
    size, sequences, longest = (8, 5, 6) if small else (64, 32, 20)
    torch.manual_seed(0)
    encoder = network(size, Vocabulary(["x"], [])).to(measured_device(), dtype)
    inputs = torch.randn(sequences, longest, size, dtype=dtype).to(measured_device()).requires_grad_()
    lengths = torch.full((sequences,), longest)

    def run(_: float, engine: str = "fused", compiled: bool = True) -> Tensor:
        encoder.engine = engine
        with compile_steps(compiled):
            encoded: Tensor = encoder.read(inputs, lengths).encoding
        return encoded

    others = {"naive": partial(run, engine="naive"), "uncompiled": partial(run, compiled=False)}
    leaves = {"inputs": inputs, **{name: each for name, each in encoder.named_parameters() if "embedding" not in name}}
    return Operation(sequences, leaves, run, others, ())


def spinn_batch(small: bool, dtype: torch.dtype) -> Operation:
    """Random binary trees of 25 leaves, which a SPINN reads; the tracker learns the transitions."""
    size, trees, leaves = (8, 5, 6) if small else (64, 64, 25)
    torch.manual_seed(0)
    forest = random_binary_trees([leaves] * trees, words(5))
    network = SPINN(size, Vocabulary.from_forest(forest)).to(measured_device(), dtype)
    batch = TreeBatch.from_forest(forest, network.vocabulary).to(measured_device())

    def run(_: float, engine: str = "fused") -> Tensor:
        network.engine = engine
        output = network(batch)
        return torch.cat([output.root.flatten(), *(loss.sum[None] for loss in output.auxiliary_losses.values())])

    return Operation(trees, dict(network.named_parameters()), run, {"naive": partial(run, engine="naive")}, ("naive",))


def prpn_batch(small: bool, dtype: torch.dtype) -> Operation:
    """Sequences of 35 tokens, which a PRPN with 10 slots reads as a language model."""
    size, sequences, time, slots = (8, 3, 6, 3) if small else (64, 64, 35, 10)
    torch.manual_seed(0)
    network = PRPN(size, Vocabulary(words(10), []), slots=slots).to(measured_device(), dtype)
    batch = TokenBatch(torch.randint(0, 10, (sequences, time)), torch.full((sequences,), time)).to(measured_device())
    return Operation(sequences, dict(network.named_parameters()), lambda _: network(batch).outputs, {}, ())


ENCODERS = (
    OperationWorkload("ordered memory random 50 tokens", partial(random_memory, False)),
    OperationWorkload("ordered memory random mixed", partial(random_memory, True)),
    OperationWorkload("ordered memory sharp mixed", sharp_memory),
    OperationWorkload("on-lstm 1150", on_lstm_batch),
    OperationWorkload("crvnn 64", crvnn_batch),
    OperationWorkload("gumbel tree-lstm 64", partial(joining_batch, GumbelTreeLSTM)),
    OperationWorkload("ebt-grc 64", partial(joining_batch, partial(EfficientBeamTreeGRC, beam_size=3))),
    OperationWorkload("bt-grc 64", partial(joining_batch, partial(BeamTreeGRC, beam_size=3))),
    OperationWorkload("bt-grc onesoft 64", partial(joining_batch, partial(BeamTreeGRC, top_k="onesoft"))),
    OperationWorkload("spinn 64", spinn_batch),
    OperationWorkload("prpn 64", prpn_batch),
    OperationWorkload("gru 128", partial(cell_batch, GRUCell, "gru")),
    OperationWorkload("lstm 128", partial(cell_batch, LSTMCell, "lstm")),
    OperationWorkload("gru 128 with attention", attending_gru_batch),
    OperationWorkload(
        "rnn 32 with a superposition stack", partial(controlled_batch, VanillaCell, 32, SuperpositionStack, 150, 8)
    ),
    OperationWorkload(
        "lstm 64 with a superposition stack", partial(controlled_batch, LSTMCell, 64, SuperpositionStack, 150, 8)
    ),
    OperationWorkload(
        "rnn 128 with a neural stack", partial(controlled_batch, VanillaCell, 128, lambda _: NeuralStack(), 0, 32)
    ),
    OperationWorkload(
        "rnn 128 with a neural deque", partial(controlled_batch, VanillaCell, 128, lambda _: NeuralDeque(), 0, 32)
    ),
    OperationWorkload(
        "lstm 64 with registers",
        partial(
            controlled_batch,
            LSTMCell,
            64,
            partial(RegisterMemory, similarity="cosine", write="erase-and-add"),
            24,
            16,
        ),
    ),
)
ENCODER_BASELINES = (
    *("published-loop", "torch-lstm", "torch-gru", "step-by-step", "uncompiled", "skipping"),
    *("high-products", "medium-products", "products"),
)
