"""Trees read out of sequence encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.checked_options import checked_choice, checked_count
from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.induction.distances import tree_from_distances
from treemem.induction.pointers import tree_from_pointer_probabilities
from treemem.nn.ordered_memory import OrderedMemory
from treemem.nn.sequence_encoder import SequenceEncoder
from treemem.nn.sequence_states import SequenceStates
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tokens import token_table
from treemem.trees.tree import Tree

Gate = Literal["forget", "input"]

_TRACES = ("pointers", "forget_distance", "input_distance")
_READABLE = "trees are read out of the pointers of OrderedMemory and of the distances of ONLSTM"


def induced_trees(
    encoder: SequenceEncoder,
    sentences: TreeBatch | Forest | Iterable[Tree],
    *,
    layer: int | None = None,
    gate: Gate = "forget",
    sentences_at_once: int = 256,
) -> list[Tree]:
    """The tree that a sequence encoder finds over each of its sequences.

    The encoder runs as for scoring, without dropout, and is left as it was. It reads each sequence as if alone, as the
    published code does where it parses, also an Ordered Memory whose ``padding`` would let the others of a batch change
    what it finds. The leaves are the tokens
    that it read, brackets included: :func:`treemem.induction.remove_brackets` takes those out, as it must before trees
    are compared with given ones that have none.

    Args:
        encoder: one that traces ``pointers`` ``[sequences, longest, slots]``, or ``forget_distance`` and
            ``input_distance`` ``[sequences, layers, longest]``. The encoder of a ``Model`` is its ``encoder``.
        sentences: trees whose tokens it reads, of any number; or a batch of them. Of pairs, the sentences: the
            ``children`` of what a task's ``parse`` gives.
        layer: whose distances, from 0; by default the second's, as Shen et al. 2019 (ON-LSTM) read them, or the only
            one's. Pointers have no layers.
        gate: whose distances: the master forget gate's as in the paper, or the master input gate's.
        sentences_at_once: how many trees make a batch, where no batch is given.

    Returns:
        A tree for each sequence, in the order of the trees, or of ``encoder.tokens(batch)``.

    Raises:
        RecipeError: an encoder that keeps no such trace, or a layer that it does not have.
        GraphError: a batch made from a graph; a sequence whose pointers are not finite, one of whose distances is
            no number, or of other length than its tokens.
        VocabularyError: tokens that the encoder does not know, or a root that joins sentences.
    """
    name = type(encoder).__name__
    if not isinstance(encoder, SequenceEncoder):
        its_own = getattr(encoder, "encoder", None)
        hint = "; give its .encoder" if isinstance(its_own, SequenceEncoder) else ""
        raise RecipeError(f"{name} is no sequence encoder{hint}; {_READABLE}")
    checked_count("sentences_at_once", sentences_at_once)
    checked_choice("gate", gate, get_args(Gate))
    if layer is not None:
        checked_count("layer", layer, least=0)
    if isinstance(sentences, TreeBatch):
        return _trees_of_batch(encoder, sentences, layer, gate, 0)
    forest = sentences if isinstance(sentences, Forest) else Forest.from_trees(sentences)
    index = _index(forest, encoder)
    trees: list[Tree] = []
    for first in range(0, len(forest), sentences_at_once):
        batch = TreeBatch.from_index(index, slice(first, first + sentences_at_once))
        trees += _trees_of_batch(encoder, batch.to(encoder.embedding.weight.device), layer, gate, first)
    return trees


def _index(forest: Forest, encoder: SequenceEncoder) -> SubtreeIndex:
    try:
        return SubtreeIndex(forest, encoder.vocabulary)
    except VocabularyError as error:
        for root in forest.begin[1:] - 1:
            label, arity = forest.labels[forest.label[root]], int(forest.arity[root])
            if arity > 1 and encoder.vocabulary.find(label, arity) is None:
                hint = f"if {label!r} joins sentences, as the root of a pair does, give its .children"
                raise VocabularyError(f"{error}; {hint}") from error
        raise


def _trees_of_batch(
    encoder: SequenceEncoder, batch: TreeBatch, layer: int | None, gate: Gate, first: int
) -> list[Tree]:
    """The trees over the sequences of a batch, of which ``first`` is the number of the first one."""
    name = type(encoder).__name__
    states = _as_for_scoring(encoder, batch)
    read_tree, values = _reading(states.trace, name, layer, gate)

    words = token_table(encoder.vocabulary, encoder.form)
    token, length = (tensor.tolist() for tensor in encoder.tokens(batch))
    if len(values) != len(length) or states.lengths.tolist() != length:
        raise GraphError(f"{name} traced {len(values)} sequences of other lengths than the {len(length)} of the batch")
    trees = []
    for sequence, (own, own_length) in enumerate(zip(token, length, strict=True)):
        try:
            trees.append(read_tree(values[sequence, :own_length], [words[index] for index in own[:own_length]]))
        except GraphError as error:
            raise GraphError(f"sequence {first + sequence}: {error}") from error
    return trees


def _as_for_scoring(encoder: SequenceEncoder, batch: TreeBatch) -> SequenceStates:
    """What the encoder gives of each sequence as if alone, without dropout; afterwards it is as it was."""
    memory = encoder if isinstance(encoder, OrderedMemory) else None
    padding = None if memory is None else memory.padding
    try:
        if memory is not None:
            memory.padding = "right"
        with in_evaluation_mode(encoder):
            return encoder(batch, trace=True)
    finally:
        if memory is not None and padding is not None:
            memory.padding = padding


def _reading(
    trace: Mapping[str, torch.Tensor], name: str, layer: int | None, gate: str
) -> tuple[Callable[[NDArray[np.float64], list[str]], Tree], NDArray[np.float64]]:
    """What makes a tree of one sequence's values, and the values of all sequences, ``[sequences, longest, ...]``."""
    for key, tensor in trace.items():
        if key in _TRACES and tensor.ndim != 3:
            raise RecipeError(f"the {key} that {name} traces must have 3 dimensions, not {list(tensor.shape)}")
    if "pointers" in trace:
        if layer is not None:
            raise RecipeError(f"layer={layer} was asked for, but the pointers of {name} have no layers")
        return tree_from_pointer_probabilities, _array(trace["pointers"])
    key = f"{gate}_distance"
    if key not in trace:
        kept = ", ".join(trace) or "nothing"
        raise RecipeError(f"{name} traces {kept}; {_READABLE}")
    distances = _array(trace[key])
    num_layers = distances.shape[1]
    chosen = min(1, num_layers - 1) if layer is None else layer
    if chosen >= num_layers:
        raise RecipeError(f"{name} has no layer {layer}; its layers are 0 to {num_layers - 1}")
    return tree_from_distances, distances[:, chosen]


def _array(values: torch.Tensor) -> NDArray[np.float64]:
    return values.detach().to("cpu", torch.float64).numpy()
