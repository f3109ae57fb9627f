"""Classifiers with Ordered Memory and ON-LSTM, as in the code of Shen et al. 2019 and 2018."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treemem.conversion.plan import Piece, Plan, checked_network_options, linear
from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.task import TASKS, Task
from treemem.trees.tokens import token_table

TABLE = "embedding.weight"
LISTOPS, LOGIC = "listops", "logical_inference"
# The rows of the embedding table and the classes of each task, in the order of the published code.
WORDS = {
    LISTOPS: ("_PAD", *"0123456789", "[MIN", "[MAX", "[FIRST", "[LAST", "[MED", "[SM", "[PM", "[FLSUM", "]"),
    LOGIC: ("(", ")", *"abcdef", "or", "and", "not", "_PAD"),
}
CLASSES = {LISTOPS: tuple("0123456789"), LOGIC: tuple("<>=^|#v")}
_MEMORY_MAPS = {
    "input_projection.0": "input_map",
    "input_projection.1": "norm",
    "distribution.query.1": "query_map",
    "distribution.query.2": "query_norm",
    "distribution.key.1": "key_map",
    "distribution.key.2": "key_norm",
    "distribution.beta.2": "score_map",
    "cell.input_t.1": "cell_map",
    "cell.input_t.4": "gate_map",
}
# Further names of the layer norm of the input projection.
_SAME_NORM = ("activation", "cell.activation")


def plan_ordered_memory(
    weights: PublishedWeights, options: Mapping[str, Any], task_options: Mapping[str, Any], words: Sequence[str] | None
) -> Plan:
    """Return the plan for a state dict of Ordered-Memory's ``listops.py`` or ``proplog.py``.

    Args:
        weights: the state dict.
        options: options of the network that do not follow from the weights.
        task_options: must be empty.
        words: the token of each row of the embedding table; None: those of the authors.

    Raises:
        CheckpointError: the model is not covered.
        RecipeError: options are missing or do not apply.
    """
    width, input_size = weights.matrix("encoder.OM_forward.input_projection.0.weight")
    directions = {"encoder.OM_forward": "encoder.forward_memory", "encoder.OM_backward": "encoder.backward_memory"}
    bidirectional = any(weight.startswith("encoder.OM_backward.") for weight in weights.tensors)
    if not bidirectional:
        del directions["encoder.OM_backward"]
    needed = {"slots": "--nslot, 21 for ListOps and 12 for logic by default"}
    optional = ["evaluation_slots", "padding", "dropout", "memory_dropout", "input_dropout"]
    given = checked_network_options("OrderedMemory", options, needed, optional)
    sizes = {"hidden_size": width, "embedding_size": input_size, "bidirectional": bidirectional}
    pieces = [
        piece
        for theirs, ours in directions.items()
        for published, name in _MEMORY_MAPS.items()
        for piece in linear(f"{theirs}.{published}", f"{ours}.{name}")
    ]
    copies = frozenset(
        f"{theirs}.{module}.{part}" for theirs in directions for module in _SAME_NORM for part in ("weight", "bias")
    )
    network = NetworkConfig("OrderedMemory", {**sizes, **given})
    return _classifier(weights, task_options, words, network, pieces, width * len(directions), copies)


def plan_on_lstm(
    weights: PublishedWeights, options: Mapping[str, Any], task_options: Mapping[str, Any], words: Sequence[str] | None
) -> Plan:
    """Return the plan for a state dict of Ordered-Neurons' ``listops.py`` or ``proplog.py``, as above."""
    sizes, chunk_size = _layers(weights)
    needed = {"weight_dropout": "--wdrop, 0 for logic and 0.1 for ListOps by default; it scales weights in evaluation"}
    given = checked_network_options("ONLSTM", options, needed, ["dropout", "input_dropout", "output_dropout"])
    read_options = {"layer_sizes": sizes, "chunk_size": chunk_size, "embedding_size": weights.matrix(TABLE)[1]}
    pieces: list[Piece] = []
    for place in range(len(sizes)):
        pieces += linear(f"encoder.cells.{place}.ih.0", f"encoder.stack.layers.{place}.of_input")
        pieces += linear(f"encoder.cells.{place}.hh", f"encoder.stack.layers.{place}.of_hidden")
    network = NetworkConfig("ONLSTM", {"hidden_size": sizes[-1], **read_options, **given})
    return _classifier(weights, task_options, words, network, pieces, sizes[-1], frozenset())


def _layers(weights: PublishedWeights) -> tuple[list[int], int]:
    """Return the width of each layer, and the number of units of a master unit.

    A layer of ``n`` master units and ``H`` units has ``2 n + 4 H`` rows.
    """
    shapes: list[tuple[int, int]] = []
    while not shapes or f"encoder.cells.{len(shapes)}.hh.weight" in weights.tensors:
        shapes.append(weights.matrix(f"encoder.cells.{len(shapes)}.hh.weight"))
    rows, size = shapes[0]
    masters = (rows - 4 * size) // 2
    if masters < 1:
        raise weights.refusal(f"encoder.cells.0.hh.weight is [{rows}, {size}], not a layer of ON-LSTM")
    return [size for _, size in shapes], size // masters


def _classifier(
    weights: PublishedWeights,
    task_options: Mapping[str, Any],
    words: Sequence[str] | None,
    network: NetworkConfig,
    pieces: list[Piece],
    size: int,
    unused: frozenset[str],
) -> Plan:
    """Return the plan of an encoder of width ``size`` with the embedding table and the head of its task."""
    if task_options:
        raise RecipeError(f"{next(iter(task_options))} is not an option of this conversion; leave it out")
    name, last = (LOGIC, "mlp.4") if "mlp.4.weight" in weights.tensors else (LISTOPS, "mlp.1")
    task = TASKS.find(name)()
    pieces = [*pieces, _embedding_piece(weights, name, task, words)]
    order = [CLASSES[name].index(label) for label in task.class_names or ()]
    pieces.append(Piece(f"{last}.weight", "head.classify.weight", (), (order,), (len(order), size)))
    pieces.append(Piece(f"{last}.bias", "head.classify.bias", (), (order,), (len(order),)))
    if name == LOGIC:
        # The published features are [l; r; l * r; |l - r|]; here the last two change places.
        product, distance = slice(2 * size, 3 * size), slice(3 * size, 4 * size)
        for ours, theirs in ((slice(2 * size), slice(2 * size)), (product, distance), (distance, product)):
            columns = (slice(None), ours), (slice(None), theirs)
            pieces.append(Piece("mlp.1.weight", "head.compare.weight", *columns, (size, 4 * size)))
        pieces.append(Piece("mlp.1.bias", "head.compare.bias"))
    return Plan(name, {}, network, task.vocabulary, pieces, unused)


def _embedding_piece(weights: PublishedWeights, name: str, task: Task, words: Sequence[str] | None) -> Piece:
    """Return the rows of the tokens of the task. Other tokens, such as padding, are not used."""
    table = weights.words_of(TABLE, words, WORDS[name], "tokens")
    tokens = token_table(task.vocabulary, task.token_form)
    missing = [token for token in tokens if table.count(token) != 1]
    if missing:
        raise RecipeError(f"words must name every token of {name} once: {', '.join(missing)}")
    order = [table.index(token) for token in tokens]
    return Piece(TABLE, "encoder.embedding.weight", (), (order,), weights.matrix(TABLE))
