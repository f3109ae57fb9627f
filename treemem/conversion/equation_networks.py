"""Tree networks of recursiveMemNet, the code of Arabshahi et al. 2020."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from treemem.conversion.plan import Piece, Plan, checked_network_options, linear
from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.networks.trees.stack_tree_lstm.equations import StackTreeLSTMOptions
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS, LEAF_LABELS, NUMBER, UNARY_FUNCTIONS
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)
TASK = "equation_verification"
TABLE = "Symbol.weight"
_NUMBER_MODULES = {"Number_enc": "encoder.leaves.number", "Number_dec": "head.decoder"}
_SHARED_STACKS = {1: "unary_stack", 2: "binary_stack"}
_PUBLISHED_ORDER = {name: place for place, name in enumerate((*UNARY_FUNCTIONS, *BINARY_FUNCTIONS))}
_VALUED_LEAVES = ("Symbol", "Integer", "Rational", "Float")
_COVERED = "NNTrees, LSTMTrees, StackNNTrees with full_stack and StackNNTreesMem2out are covered"


class _Published(NamedTuple):
    """A published network: its name here, and the weights that identify its modules of one and two children."""

    network: str
    signatures: tuple[str, ...]
    needed: Mapping[str, str] = {}
    number_activation: str = "sigmoid"


# A module belongs to the first network whose signature it has.
_NETWORKS = (
    _Published("StackTreeLSTM", ("o_linear.weight",), {
        "stack_size": "--memory-size, 5 in the scripts",
        "activation": '--stack-node-activation, "tanh" in the scripts',
        "output_activation": '--tree-node-activation, "tanh" in the scripts',
    }),
    _Published("StackTreeRNN", ("memory_linear.weight",), {
        "activation": '--tree-node-activation, "sigmoid" by default', "stack_size": "--memory-size, 5 by default",
    }, "relu"),
    _Published("TreeLSTM", ("forget.weight", "forget_left_by_left.weight")),
    _Published("TreeRNN", ("linear.weight",), {"activation": '"sigmoid" in the scripts'}),
)  # fmt: skip
# In the published code, "data" is the input gate and "input" the update.
_UNARY_GATES = ("data", "forget", "output", "input")
_BINARY_GATES = {  # bias to the prefix of the weights of its two children
    "data_bias": "data_",
    "forget_bias_left": "forget_left_by_",
    "forget_bias_right": "forget_right_by_",
    "output_bias": "output_",
    "input_bias": "input_",
}


class Function(NamedTuple):
    """A function with its own weights: its name, its arity, and its index among the functions of that arity."""

    name: str
    arity: int
    set: int


def plan_equation_network(
    weights: PublishedWeights, options: Mapping[str, Any], task_options: Mapping[str, Any], words: Sequence[str] | None
) -> Plan:
    """Return the plan for a state dict of recursiveMemNet.

    Args:
        weights: the state dict.
        options: options of the network that do not follow from the weights.
        task_options: ``numeric``: keep the encoder and decoder of numbers, which the authors train with ``--numeric``.
        words: the leaf of each row of the embedding table, in the published form (``Integer_2``) or the one of this
            library (``Integer:2``); None: the 34 leaves of the authors.

    Raises:
        CheckpointError: the network is not covered.
        RecipeError: options are missing or do not apply.
    """
    for name in task_options:
        if name != "numeric":
            raise RecipeError(f"{name} is not an option of {TASK} for a conversion; numeric is the only one")
    numeric = bool(task_options.get("numeric", False))
    published, arities = _functions(weights)
    vocabulary = Vocabulary(_leaves(weights, words), arities.items(), number=NUMBER if numeric else None)
    functions = [
        Function(name, arity, vocabulary.kind_index(vocabulary.find(name, arity)[0]))  # type: ignore[index]
        for name, arity in arities.items()
    ]
    size = weights.matrix(TABLE)[1]
    read_options, needed = _options(weights, published, functions)
    given = checked_network_options(published.network, options, needed, ["dropout"])
    config = NetworkConfig(published.network, {"hidden_size": size, **read_options, **given})
    pieces = [Piece(TABLE, "encoder.leaves.embedding.weight")]
    pieces += [Piece("bias", "head.equality.bias" if numeric else "head.bias")]
    pieces += _pieces(config, functions, size)
    of_numbers = [
        piece
        for theirs, ours in _NUMBER_MODULES.items()
        for number, layer in enumerate(("first", "second"), start=1)
        for piece in linear(f"{theirs}.linear{number}", f"{ours}.{layer}")
    ]
    if not numeric:
        _logger.info("%s: the encoder and decoder of numbers are left out", weights.source)
        return Plan(TASK, {}, config, vocabulary, pieces, frozenset(piece.name for piece in of_numbers))
    activation = published.number_activation
    config = config.replace(number_activation=activation)
    return Plan(TASK, {"numeric": True, "decoder_activation": activation}, config, vocabulary, pieces + of_numbers)


def _leaves(weights: PublishedWeights, words: Sequence[str] | None) -> list[str]:
    """Return the label of each row of the embedding table."""
    leaves = weights.words_of(TABLE, words, LEAF_LABELS, "leaves")
    spelled = {_published_spelling(label): label for label in LEAF_LABELS}
    return [spelled.get(word, word) for word in leaves]


def _published_spelling(label: str) -> str:
    """Return ``Integer_2`` for ``Integer:2``, and ``Pi`` for ``Pi:pi``."""
    name, _, value = label.partition(":")
    return f"{name}_{value}" if name in _VALUED_LEAVES else name


def _functions(weights: PublishedWeights) -> tuple[_Published, dict[str, int]]:
    """Return the published network, and the arity of each function, in the published order.

    Raises:
        CheckpointError: there is no function, or the network is not covered.
    """
    others = {"Symbol", *_NUMBER_MODULES, *_SHARED_STACKS.values()}
    modules = dict.fromkeys(name.partition(".")[0] for name in weights.tensors if "." in name)
    names = [name for name in modules if name not in others]
    names = [name for name in names if not name.endswith("_stack") or name.removesuffix("_stack") not in names]
    names.sort(key=lambda name: _PUBLISHED_ORDER.get(name, len(_PUBLISHED_ORDER)))
    for published in _NETWORKS:
        if names and any(f"{names[0]}.{signature}" in weights.tensors for signature in published.signatures):
            return published, {name: _arity_of(weights, name, published) for name in names}
    raise weights.refusal(f"{names[0] if names else 'it'} is not a module of a covered network; {_COVERED}")


def _arity_of(weights: PublishedWeights, name: str, published: _Published) -> int:
    """Return the number of children of a function."""
    size = weights.matrix(TABLE)[1]
    first, *of_two = published.signatures
    if of_two:
        return 2 if f"{name}.{of_two[0]}" in weights.tensors else 1
    width = weights.matrix(f"{name}.{first}")[1]
    if width not in (size, 2 * size):
        raise weights.refusal(f"{name}.{first} has width {width}, not {size} for one child or {2 * size} for two")
    return width // size


def _options(
    weights: PublishedWeights, published: _Published, functions: Sequence[Function]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options that follow from the weights, and those that the user must give."""
    present, first, needed = weights.tensors.keys(), functions[0].name, dict(published.needed)
    if published.network == "StackTreeRNN":
        stack = _SHARED_STACKS[min(function.arity for function in functions)]
        return {"no_op": f"{stack}.no_op_linear.weight" in present}, needed
    if published.network != "StackTreeLSTM":
        return {}, needed
    scalar, gated_top_k = f"{first}_stack.action.weight" in present, f"{first}.pos_linear_1.weight" in present
    options: dict[str, Any] = {
        "actions": "scalar" if scalar else "elementwise",
        "input_gate": f"{first}_stack.data_linear.weight" in present,
        "gated_top_k": gated_top_k,
    }
    if gated_top_k:
        options["top_k"] = sum(name.startswith(f"{first}.pos_linear_") and name.endswith(".weight") for name in present)
    elif f"{first}.pos_linear.weight" in present:
        options["top_k"] = weights.matrix(f"{first}.pos_linear.weight")[0]
    if scalar:
        # A queue and a stack without pop have the weights of a stack with two actions.
        needed |= {"no_pop": "--no-pop, false by default", "queue": "true for --stack-type queue, false for stack"}
        options["no_op"] = weights.matrix(f"{first}_stack.action.weight")[0] == 3
    else:
        needed["normalize"] = "--normalize-action, true in the script of normalize+no-op"
        options["no_pop"] = f"{first}_stack.pop_gate_linear.weight" not in present
        options["no_op"] = not options["no_pop"] and f"{first}_stack.no_op_gate_linear.weight" in present
    return options, needed


def _pieces(config: NetworkConfig, functions: Sequence[Function], size: int) -> Iterator[Piece]:
    """Yield the places of the weights of the functions and of their shared stacks."""
    rules: Iterator[tuple[str, str, int, int | None]]
    for name, arity, width in functions:
        if config.network == "TreeLSTM" and arity == 2:
            yield from _binary_lstm_pieces(name, width, size)
            continue
        if config.network == "TreeLSTM":
            rules = ((f".{gate}", "maps", place * size, size) for place, gate in enumerate(_UNARY_GATES))
        elif config.network == "StackTreeLSTM":
            rules = ((suffix, "maps", begin, count) for suffix, begin, count in _stack_blocks(config, arity, size))
        else:
            maps = {".linear": "maps", ".memory_linear": "memory_maps"}
            rules = ((s, m, 0, None) for s, m in maps.items() if m == "maps" or config.network == "StackTreeRNN")
        for suffix, maps_name, begin, count in rules:
            rows = slice(begin, None if count is None else begin + count)
            yield from linear(f"{name}{suffix}", f"encoder.cell.{maps_name}.{arity}", (width, rows))
    for arity in {function.arity for function in functions} if config.network == "StackTreeRNN" else ():
        stack, actions = _SHARED_STACKS[arity], ("push", "pop", "no_op")[: 2 + config.options["no_op"]]
        control, row_maps = f"encoder.cell.control_maps.{arity}", f"encoder.cell.row_maps.{arity}"
        yield from linear(f"{stack}.input_linear", control, (0, slice(size)))
        yield from linear(f"{stack}.action", control, (0, slice(size, size + len(actions))))
        for place, action in enumerate(actions):
            yield from linear(f"{stack}.{action}_linear", row_maps, (0, slice(place * size, (place + 1) * size)))


def _binary_lstm_pieces(name: str, width: int, size: int) -> Iterator[Piece]:
    for place, (bias, prefix) in enumerate(_BINARY_GATES.items()):
        rows = slice(place * size, (place + 1) * size)
        yield Piece(f"{name}.{bias}", "encoder.cell.maps.2.bias", (width, rows))
        for child, columns in (("left", slice(size)), ("right", slice(size, 2 * size))):
            yield Piece(f"{name}.{prefix}{child}.weight", "encoder.cell.maps.2.weight", (width, rows, columns))


def _stack_blocks(config: NetworkConfig, arity: int, size: int) -> Iterator[tuple[str, int, int]]:
    """Yield suffix, first row and number of rows of the modules of a function with a stack."""
    of_sets = ("hidden_size", "normalize", "dropout")
    stack = StackTreeLSTMOptions(**{name: value for name, value in config.options.items() if name not in of_sets})
    begin = {block: rows.start for block, rows in stack.blocks(arity, size).items()}
    for place, gate in enumerate(["gate_linear"] if arity == 1 else ["gate_linear_l", "gate_linear_r"]):
        yield f"_stack.{gate}", begin["forget"] + place * size, size
    if stack.actions == "scalar":
        yield "_stack.action", begin["actions"], len(stack.action_names)
    else:
        for place, action in enumerate(stack.action_names):
            yield f"_stack.{action}_gate_linear", begin["actions"] + place * size, size
    yield ".o_linear", begin["output"], size
    yield "_stack.input_linear", begin["update"], size
    if stack.input_gate:
        yield "_stack.data_linear", begin["input"], size
    if stack.gated_top_k:
        for row in range(stack.top_k):
            yield f".pos_linear_{row + 1}", begin["readout"] + row * size, size
    elif stack.top_k > 1:
        yield ".pos_linear", begin["readout"], stack.top_k
