"""Layers, memories and heads take ``device`` and ``dtype`` as those of torch do."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from device_cases import SYMBOLS, VOCABULARY
from torch import nn

import treemem.nn
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig, every_network
from treemem.networks.layer_type import LayerType
from treemem.nn import (
    ClassifierHead,
    EqualityHead,
    LanguageModel,
    LSTMCell,
    MemoryCell,
    NeuralStack,
    NumberDecoder,
    OrderedMemory,
    SequenceToSequence,
    StackTreeLSTM,
    Transformer,
    TransformerLanguageModel,
    TreeLSTM,
    WordVectors,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree

TREES = [Tree("f", [Tree("x"), Tree("y")]), Tree("g", [Tree("x")])]
LAYERS = [name for name in treemem.nn.__all__ if issubclass(getattr(treemem.nn, name), nn.Module)]
OTHERS: dict[str, Callable[..., nn.Module]] = {
    "language model": lambda **where: LanguageModel(8, SYMBOLS, chunk_size=4, **where),
    "language model, Transformer": lambda **where: TransformerLanguageModel(8, SYMBOLS, **where),
    "transduction": lambda **where: SequenceToSequence(8, SYMBOLS, memory_size=4, embedding_size=4, **where),
    "cell": lambda **where: LSTMCell(3, 4, **where),
    "cell with a memory": lambda **where: MemoryCell(partial(LSTMCell, hidden_size=4), NeuralStack(), 3, 4, **where),
    "words": lambda **where: WordVectors(torch.zeros(5, 3), 8, **where),
    "equality": EqualityHead,
    "classes": lambda **where: ClassifierHead(8, 3, **where),
    "numbers": lambda **where: NumberDecoder(8, **where),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_public_layer_is_made_by_the_one_type_that_takes_them(name: str) -> None:
    made = getattr(treemem.nn, name)
    assert isinstance(made, LayerType)


def test_the_signature_of_a_layer_is_that_of_its_constructor() -> None:
    assert [*inspect.signature(ClassifierHead).parameters][:2] == ["hidden_size", "num_classes"]
    assert [*inspect.signature(LSTMCell).parameters] == [*inspect.signature(LSTMCell.__init__).parameters][1:]
    assert [*inspect.signature(TreeLSTM).parameters][:2] == ["hidden_size", "vocabulary"]


@pytest.mark.parametrize("name", [*every_network(12)])
def test_every_network_is_made_where_and_in_the_type_that_is_asked_for(name: str) -> None:
    config = every_network(12)[name]
    network = config.constructor()(vocabulary=VOCABULARY, **config.options, device="meta", dtype=torch.float64)
    assert {weight.device.type for weight in network.parameters()} == {"meta"}
    assert {weight.dtype for weight in network.parameters()} == {torch.float64}
    assert {tensor.device.type for tensor in network.buffers()} <= {"meta"}
    assert network.options == config.build(VOCABULARY).options  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", [*OTHERS])
def test_cells_heads_and_others_are_made_so_too(name: str) -> None:
    made = OTHERS[name](device=torch.device("meta"), dtype=torch.bfloat16)
    weights = [*made.parameters(), *(buffer for buffer in made.buffers() if buffer.is_floating_point())]
    assert weights
    assert {(weight.device.type, weight.dtype) for weight in weights} == {("meta", torch.bfloat16)}


@pytest.mark.parametrize("layer", [TreeLSTM, StackTreeLSTM, OrderedMemory, Transformer])
def test_a_layer_of_a_type_computes_as_one_that_was_turned_into_it(layer: Any) -> None:
    batch = TreeBatch.from_trees(TREES, VOCABULARY)
    torch.manual_seed(0)
    made = layer(8, VOCABULARY, dtype=torch.float64)
    torch.manual_seed(0)
    turned = layer(8, VOCABULARY).double()
    assert made(batch).root.dtype == torch.float64
    assert torch.equal(made(batch).root, turned(batch).root)


def test_what_is_no_device_and_no_type_of_floating_point_numbers_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"dtype must be a type of floating-point numbers, .* not torch\.int64"):
        TreeLSTM(8, VOCABULARY, dtype=torch.int64)
    with pytest.raises(RecipeError, match=r"dtype must be a type of floating-point numbers, .* not 'float32'"):
        ClassifierHead(8, 3, dtype="float32")
    with pytest.raises(RecipeError, match="device must be a device of torch, such as 'cuda', not 'gpu'"):
        OrderedMemory(8, VOCABULARY, device="gpu")
    with pytest.raises(RecipeError, match="has no option 'devise'"):
        TreeLSTM(8, VOCABULARY, devise="cpu")


def test_recipes_do_not_have_them() -> None:
    with pytest.raises(RecipeError, match="TreeLSTM has no option 'dtype'"):
        NetworkConfig("TreeLSTM", {"hidden_size": 8, "dtype": "float64"}).build(VOCABULARY)


def test_copies_and_pickles_keep_device_and_type() -> None:
    made = TreeLSTM(8, VOCABULARY, dtype=torch.float64)
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert all(torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True))
