"""Records of what a model does with examples: states of nodes, traces of tokens, outputs.

An encoder describes itself: ``trace_axes`` names the axes of each trace, ``memory_contents`` returns the contents of a
memory, ``induced_trees`` returns trees. An encoder without ``trace_axes`` has no trace. For an encoder that does not
return an ``EncoderOutput``, only the encodings are recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.examples import Examples
from treemem.data.loader import Batch, BatchOptions
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, TreememError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.explore.state_table import StateTable, Values, entries_of
from treemem.induction import remove_brackets, sentence_f1
from treemem.model import Model
from treemem.networks.encoder_output import EncoderOutput
from treemem.task import ModelOutput
from treemem.trees.forest import Forest
from treemem.trees.tokens import forest_tokens, token_table
from treemem.trees.tree import Tree

_BATCH_SIZE = 64
_MARKS = ("⟨start⟩", "⟨delimiter⟩", "⟨extract⟩")
_Axes = Mapping[str, tuple[str, ...]]

LONGEST_ATTENTION = 100
"""Most positions of a sequence whose attention is kept."""


@dataclass(frozen=True)
class ReadSequence:
    """A sequence that an encoder read.

    Attributes:
        words: the tokens.
        node: the node of each token, in post-order over all trees of the sequence, or -1.
        induced: the induced tree, if the encoder induces trees.
        f1: F1 of the induced tree against the gold tree, if both have the same words.
        attention: weights ``[layers, positions, positions]``, None if there are none or the sequence is too long.
        too_long: whether there are more than ``LONGEST_ATTENTION`` positions.
        mark: name of the learned position after the last token, if there is one.
    """

    words: list[str]
    node: list[int]
    induced: Tree | None = None
    f1: float | None = None
    attention: NDArray[np.float64] | None = None
    too_long: bool = False
    mark: str = ""


@dataclass
class Recording:
    """What a model did with examples.

    Attributes:
        items: what the vectors of the table belong to.
        table: the vectors of all nodes or tokens, in order.
        kept: what ``Task.kept`` returns, ``[examples, ...]`` or a list with an item for each example.
        encodings: ``[examples, parts, hidden_size]``.
        sequences: the sequences of each example, if the items are tokens.
        attends_by: the axis of several attention maps: ``"layer"`` or ``"step"``.
    """

    items: Literal["nodes", "tokens", "none"] = "none"
    table: StateTable = field(default_factory=StateTable)
    kept: Any = None
    encodings: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1, 0)))
    sequences: list[list[ReadSequence]] = field(default_factory=list)
    attends_by: str = "layer"


def record(model: Model, examples: Examples) -> Recording:
    """Run a model over examples in evaluation mode and return what it did.

    Raises:
        VocabularyError: the model does not know a label.
        GraphError: the model does not accept a tree.
    """
    recording = Recording()
    kept: list[Any] = []
    encodings = []
    with in_evaluation_mode(model):
        for batch in examples.loader(model.vocabulary, None, BatchOptions(_BATCH_SIZE)).batches():
            batch = batch.to(model.device)
            encoded = _record_batch(model, batch, examples, recording)
            output = ModelOutput(model.head(encoded), encoded)
            of_batch = model.task.kept(output, batch, examples.known_targets(batch, model.device))
            kept += [of_batch.cpu()] if isinstance(of_batch, torch.Tensor) else of_batch
            encodings.append(_numpy(getattr(encoded, "root", encoded)))
    recording.kept = torch.cat(kept) if isinstance(kept[0], torch.Tensor) else kept
    recording.encodings = np.concatenate(encodings)
    return recording


def _record_batch(model: Model, batch: Batch, examples: Examples, recording: Recording) -> Any:
    """Add a batch to the recording and return what the encoder returned."""
    encoder: Any = model.encoder
    axes: _Axes = getattr(encoder, "trace_axes", {})
    encoded = encoder(batch, trace=True) if axes else encoder(batch)
    if not isinstance(encoded, EncoderOutput):
        return encoded
    outputs = encoded.outputs
    forest = _forest_of(batch, examples)
    if outputs.ndim == 2:
        recording.items = "nodes"
        recording.table.add(len(outputs), _node_values(encoded, axes, forest))
        return encoded
    recording.items = "tokens"
    tokens = getattr(encoded, "tokens", None)  # of an encoder that reads more than the batch says
    reads = _sequences(model, batch if tokens is None else tokens, forest)
    lengths = np.array([len(read.words) for read in reads])
    present = np.arange(outputs.shape[1]) < lengths[:, None]
    memory = encoder.memory_contents(batch) if hasattr(encoder, "memory_contents") else {}
    recording.table.add(int(lengths.sum()), _token_values(encoded, axes, memory, present))
    for by, weights in _attention(encoded.trace, axes):
        recording.attends_by = by
        mark = _MARKS[-1] if weights.shape[-1] > outputs.shape[1] else ""
        reads = [_with_attention(*pair, mark) for pair in zip(reads, weights, strict=True)]
    per_example = len(reads) // batch.num_examples
    recording.sequences += [reads[first : first + per_example] for first in range(0, len(reads), per_example)]
    return encoded


def _forest_of(batch: Batch, examples: Examples) -> Forest:
    """Return the trees of a batch. Those of one example are adjacent."""
    per_example = examples.trees_per_example
    return examples.forest[(np.asarray(batch.example_ids)[:, None] * per_example + np.arange(per_example)).ravel()]


def _node_values(encoded: Any, axes: _Axes, forest: Forest) -> dict[str, Values]:
    """Return the states and the trace of each node of a batch, the trace in the order of ``axes``."""
    names = getattr(encoded, "names", ())
    states = {name: encoded[name] for name in names} or {"h": encoded.outputs}
    by_name = {name: Values("state", entries_of(_numpy(value))) for name, value in states.items()}
    order = list(axes)
    for name in sorted(encoded.trace, key=lambda name: order.index(name) if name in order else len(order)):
        values = entries_of(_numpy(encoded.trace[name]))
        known = ~np.isnan(values).all(2) | (np.arange(values.shape[1]) < forest.arity[:, None])
        entry_axis = axes.get(name, ("nodes", "hidden"))[1]
        by_name[name if name not in by_name else f"{name} (gate)"] = Values("gate", values, known, entry_axis)
    return by_name


def _token_values(
    encoded: Any, axes: _Axes, memory: Mapping[str, torch.Tensor], present: NDArray[np.bool_]
) -> dict[str, Values]:
    """Return the output, the trace and the memory at each token of a batch, sequence by sequence."""
    by_name = {"h": Values("state", entries_of(_numpy(encoded.outputs)[present]))}
    for name, names in axes.items():
        if name in encoded.trace and names.count("tokens") == 1:
            values = np.moveaxis(_numpy(encoded.trace[name]), names.index("tokens"), 1)
            values = values[:, : present.shape[1]][present]  # without the mark after the last token
            rest = [axis for axis in names if axis not in ("sequences", "tokens")]
            sort: Literal["state", "step"] = "step" if len(rest) < 2 else "state"
            by_name[name] = Values(sort, entries_of(values), axis=rest[0] if rest else "")
    return by_name | {
        name: Values("state", entries_of(_numpy(contents)[present]), axis="slots") for name, contents in memory.items()
    }


def _attention(trace: Mapping[str, torch.Tensor], axes: _Axes) -> list[tuple[str, NDArray[np.float64]]]:
    """Return the first trace with two token axes as ``[sequences, layers, tokens, tokens]``, and its layer axis."""
    for name, names in axes.items():
        if name in trace and names.count("tokens") == 2:
            tokens = [place for place, axis in enumerate(names) if axis == "tokens"]
            values = np.moveaxis(_numpy(trace[name]), tokens, (-2, -1))
            rest = [axis for axis in names[1:] if axis != "tokens"]
            sizes = (len(values), math.prod(values.shape[1:-2]), *values.shape[-2:])
            return [(rest[0].removesuffix("s") if rest else "layer", values.reshape(sizes))]
    return []


def _with_attention(read: ReadSequence, weights: NDArray[np.float64], mark: str) -> ReadSequence:
    positions = len(read.words) + bool(mark)
    if not read.words or positions > LONGEST_ATTENTION:
        return replace(read, too_long=positions > LONGEST_ATTENTION)
    return replace(read, attention=weights[:, :positions, :positions], mark=mark)


def _sequences(model: Model, batch: Batch, forest: Forest) -> list[ReadSequence]:
    """Return the sequences of a batch as the encoder read them, with their induced trees."""
    encoder: Any = model.encoder
    if isinstance(batch, TokenBatch):
        words = model.vocabulary.leaves
        rows = zip(batch.token.tolist(), batch.lengths.tolist(), strict=True)
        return [ReadSequence([words[token] for token in row[:count]], list(range(count))) for row, count in rows]
    form = getattr(encoder, "form", model.task.token_form)
    table = token_table(model.vocabulary, form)
    tokens = forest_tokens(forest, form, model.vocabulary)
    reads = []
    for number, (first, last) in enumerate(zip(tokens.begin[:-1], tokens.begin[1:], strict=True)):
        node = np.where(tokens.node[first:last] < 0, -1, tokens.node[first:last] - forest.begin[number])
        reads.append(ReadSequence([table[token] for token in tokens.token[first:last].tolist()], node.tolist()))
    if getattr(encoder, "joint", False):
        sizes = np.diff(forest.begin).tolist()
        return [_as_one(*pair) for pair in zip(reads[::2], reads[1::2], sizes[::2], strict=True)]
    if getattr(encoder, "can_induce_trees", False):
        try:
            trees = encoder.induced_trees(batch)
        except GraphError:  # what it computed is not finite
            return reads
        reads = [_with_induced(*parts) for parts in zip(reads, trees, forest, strict=True)]
    return reads


def _as_one(left: ReadSequence, right: ReadSequence, num_left: int) -> ReadSequence:
    """Return a pair as the one sequence that a cross-encoder reads."""
    start, delimiter, extract = _MARKS
    moved = [node if node < 0 else node + num_left for node in right.node]
    return ReadSequence([start, *left.words, delimiter, *right.words, extract], [-1, *left.node, -1, *moved, -1])


def _with_induced(read: ReadSequence, induced: Tree, gold: Tree) -> ReadSequence:
    try:
        f1 = sentence_f1(remove_brackets(gold, ()), remove_brackets(induced))
    except TreememError:  # the encoder read tokens that are not leaves of the gold tree
        f1 = None
    return replace(read, induced=induced, f1=f1)


def _numpy(tensor: torch.Tensor) -> NDArray[Any]:
    return (tensor.double() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
