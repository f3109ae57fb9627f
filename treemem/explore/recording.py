"""What a model did with each example: states of nodes, traces of tokens, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.examples import Examples
from treemem.errors import GraphError, TreememError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.explore.state_table import StateTable, Values, entries_of
from treemem.induction import induced_trees, remove_brackets, sentence_f1
from treemem.model import Model
from treemem.nn.attention_encoder import AttentionEncoder
from treemem.nn.ordered_memory import OrderedMemory
from treemem.nn.sequence_encoder import SequenceEncoder
from treemem.nn.sequence_states import SequenceStates
from treemem.nn.tree_network import TreeNetwork
from treemem.nn.tree_states import TreeStates
from treemem.nn.universal_transformer import UniversalTransformer
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tokens import forest_tokens, token_table
from treemem.trees.tree import Tree

_AT_ONCE = 64
_LAYERS_FIRST = ("forget_distance", "input_distance")
"""Traces ``[sequences, layers, longest]``; others are ``[sequences, longest, ...]``."""

_GATES = ("push", "pop", "no_op", "forget", "input", "update", "output", "reading")
"""The order in which gates are shown; others come last."""

_MARKS = ("⟨start⟩", "⟨delimiter⟩", "⟨extract⟩")

LONGEST_ATTENTION = 100
"""Positions of a sequence of which attention is kept; it takes the square of them in every layer."""


@dataclass(frozen=True)
class ReadSequence:
    """What was read as one sequence.

    Attributes:
        words: the tokens.
        node: of the tree, or of the trees one after the other, the node whose label each token is, in post-order; -1
            where it is no node's.
        induced: the tree that the encoder found over the tokens; None where it finds none.
        why_none: why none was found, where one was to be.
        f1: how well that agrees with the given tree, where they have the same words.
        attention: what each position attends to, the mean of the heads, ``[layers, positions, positions]``; None where
            the encoder has none, or the sequence is too long.
        too_long: whether attention was left out, the sequence having over ``LONGEST_ATTENTION`` positions.
        mark: the learned position after the last token, where there is one; it is a position, and no token.
    """

    words: list[str]
    node: list[int]
    induced: Tree | None = None
    why_none: str = ""
    f1: float | None = None
    attention: NDArray[np.float64] | None = None
    too_long: bool = False
    mark: str = ""


@dataclass
class Recording:
    """What a model did with examples.

    Attributes:
        table: the vectors of all nodes, or of all tokens of sequence encoders, in order.
        outputs: ``[examples, ...]``.
        encodings: ``[examples, trees_per_example or 1, hidden_size]``.
        sequences: of sequence encoders, those of each example.
        has_nodes: whether the items of the table are nodes.
        attends_by: what attention is told apart by: ``"layer"``, or ``"step"`` of one layer that is repeated.
    """

    table: StateTable = field(default_factory=StateTable)
    outputs: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    encodings: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1, 0)))
    sequences: list[list[ReadSequence]] = field(default_factory=list)
    has_nodes: bool = False
    attends_by: str = "layer"


def record(model: Model, examples: Examples) -> Recording:
    """Run a model over examples and keep what it did, in evaluation mode.

    Raises:
        VocabularyError: a label that the model does not know.
        GraphError: a tree that it cannot take.
    """
    index = SubtreeIndex(examples.forest, model.vocabulary)
    recording = Recording(has_nodes=isinstance(model.encoder, TreeNetwork))
    outputs, encodings = [], []
    with in_evaluation_mode(model):
        for first in range(0, len(examples), _AT_ONCE):
            chosen = slice(first, first + _AT_ONCE)
            batch = TreeBatch.from_index(index, chosen, trees_per_example=examples.trees_per_example)
            states = _record_batch(model, batch.to(model.device), recording)
            outputs.append(model.head(states).cpu())
            root = states if isinstance(states, torch.Tensor) else states.root
            encodings.append(root.double().cpu().numpy())
    recording.outputs, recording.encodings = torch.cat(outputs), np.concatenate(encodings)
    return recording


def _record_batch(model: Model, batch: TreeBatch, recording: Recording) -> Any:
    """Add a batch to ``recording`` and return what the encoder made of it."""
    encoder = model.encoder
    if isinstance(encoder, TreeNetwork):
        states = encoder(batch, trace=True)
        recording.table.add(batch.num_nodes, _of_nodes(states, batch))
        return states
    if isinstance(encoder, SequenceEncoder):
        states = encoder(batch, trace=True)
        slots = encoder.slot_contents(batch) if isinstance(encoder, OrderedMemory) else {}
        recording.table.add(int(states.lengths.sum()), _of_tokens(states, slots))
        recording.sequences += _with_attention(encoder, states, _sequences(encoder, batch, states))
        recording.attends_by = "step" if isinstance(encoder, UniversalTransformer) else "layer"
        return states
    return encoder(batch)


def _of_nodes(states: TreeStates, batch: TreeBatch) -> dict[str, Values]:
    """The states and the gates of each node of a batch."""
    found = {name: Values("state", entries_of(_numpy(states[name]))) for name in states.names}
    arity = _forest(batch).arity
    for name in sorted(states.trace, key=lambda name: _GATES.index(name) if name in _GATES else len(_GATES)):
        values = entries_of(_numpy(states.trace[name]))
        told = ~np.isnan(values).all(2) | (np.arange(values.shape[1]) < arity[:, None])
        found[name if name not in found else f"{name} (gate)"] = Values("gate", values, told)
    return found


def _of_tokens(states: SequenceStates, slots: Mapping[str, torch.Tensor]) -> dict[str, Values]:
    """The output, what was traced and what the slots held at each token of a batch, sequence after sequence."""
    longest = states.h.shape[1]
    present = np.arange(longest) < _numpy(states.lengths)[:, None]
    found = {"h": Values("state", entries_of(_numpy(states.h)[present]))}
    for name, tensor in states.trace.items():
        values = _numpy(tensor)
        if name in _LAYERS_FIRST:
            values = values.swapaxes(1, 2)
        if values.ndim in (2, 3) and values.shape[:2] == present.shape:
            found[name] = Values("step", entries_of(values[present]))
    return found | {name: Values("state", entries_of(_numpy(held)[present])) for name, held in slots.items()}


def _sequences(encoder: SequenceEncoder, batch: TreeBatch, states: SequenceStates) -> list[list[ReadSequence]]:
    """The sequences of each example of a batch."""
    forest = _forest(batch)
    table = token_table(encoder.vocabulary, encoder.form)
    tokens = forest_tokens(forest, encoder.form, encoder.vocabulary)
    of_trees = []
    for number, (first, last) in enumerate(zip(tokens.begin[:-1], tokens.begin[1:], strict=True)):
        words = [table[token] for token in tokens.token[first:last].tolist()]
        node = np.where(tokens.node[first:last] < 0, -1, tokens.node[first:last] - forest.begin[number])
        of_trees.append(ReadSequence(words, node.tolist()))
    if getattr(encoder, "joint", False):
        return [
            [_as_one(left, right, forest.begin[2 * pair + 1] - forest.begin[2 * pair])]
            for pair, (left, right) in enumerate(zip(of_trees[::2], of_trees[1::2], strict=True))
        ]
    if any(name in states.trace for name in ("pointers", *_LAYERS_FIRST)):
        found = _induced(encoder, batch, forest)
        of_trees = [_with_induced(*parts) for parts in zip(of_trees, found, forest, strict=True)]
    each = batch.trees_per_example
    return [of_trees[first : first + each] for first in range(0, len(of_trees), each)]


def _with_attention(
    encoder: SequenceEncoder, states: SequenceStates, examples: list[list[ReadSequence]]
) -> list[list[ReadSequence]]:
    """The sequences of each example of a batch, with what their positions attend to where that was traced."""
    if "attention" not in states.trace or not isinstance(encoder, AttentionEncoder):
        return examples
    weights = iter(_numpy(states.trace["attention"]))
    mark = _MARKS[-1] if encoder.marks is not None and not encoder.joint else ""
    return [[_attending(read, next(weights), mark) for read in example] for example in examples]


def _attending(read: ReadSequence, weights: NDArray[np.float64], mark: str) -> ReadSequence:
    positions = len(read.words) + bool(mark)
    if not read.words or positions > LONGEST_ATTENTION:
        return replace(read, too_long=positions > LONGEST_ATTENTION)
    return replace(read, attention=weights[:, :positions, :positions], mark=mark)


def _as_one(left: ReadSequence, right: ReadSequence, num_left: int) -> ReadSequence:
    start, delimiter, extract = _MARKS
    moved = [node if node < 0 else node + int(num_left) for node in right.node]
    return ReadSequence([start, *left.words, delimiter, *right.words, extract], [-1, *left.node, -1, *moved, -1])


def _induced(encoder: SequenceEncoder, batch: TreeBatch, forest: Forest) -> list[Tree | str]:
    """The tree found over each sequence, or why there is none."""
    try:
        return list(induced_trees(encoder, batch))
    except GraphError:  # of one sequence, which is found alone
        found: list[Tree | str] = []
        for tree in forest:
            try:
                found += induced_trees(encoder, [tree])
            except GraphError as error:
                found.append(str(error).partition(": ")[2])
        return found


def _with_induced(read: ReadSequence, found: Tree | str, given: Tree) -> ReadSequence:
    if isinstance(found, str):
        return ReadSequence(read.words, read.node, why_none=found)
    try:
        f1 = sentence_f1(remove_brackets(given, ()), remove_brackets(found))
    except TreememError:  # of other words: tokens that are no leaves of the given tree
        f1 = None
    return ReadSequence(read.words, read.node, found, f1=f1)


def _forest(batch: TreeBatch) -> Forest:
    if batch.forest is None:
        raise GraphError("a batch made from a graph has no trees to show")
    return batch.forest


def _numpy(tensor: torch.Tensor) -> NDArray[Any]:
    return (tensor.double() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
