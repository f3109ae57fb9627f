"""Tree networks of recursiveMemNet, the code published with Arabshahi et al. 2020."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from treemem.checked_options import checked_flag
from treemem.conversion.plan import Piece, Plan, checked_network_options, linear
from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions
from treemem.trees.equation_labels import BINARY_FUNCTIONS, LEAF_LABELS, NUMBER, UNARY_FUNCTIONS
from treemem.trees.vocabulary import Vocabulary

TASK = "equation_verification"
TABLE = "Symbol.weight"
_NUMBER_MODULES = {"Number_enc": "encoder.leaves.number", "Number_dec": "head.decoder"}
_SHARED_STACKS = {1: "unary_stack", 2: "binary_stack"}
_PUBLISHED_ORDER = {name: place for place, name in enumerate((*UNARY_FUNCTIONS, *BINARY_FUNCTIONS))}
_VALUED_LEAVES = ("Symbol", "Integer", "Rational", "Float")
# The weights by which a function's module is known, of one child or two; the first network that fits counts.
_SIGNATURES = {
    "StackLSTMTrees": ("h_memory_linear.weight",),
    "StackNNTreesMem2out": ("o_linear.weight",),
    "StackNNTrees": ("memory_linear.weight",),
    "LSTMTrees": ("forget.weight", "forget_left_by_left.weight"),
    "NNTrees": ("linear.weight",),
}
_COVERED = "NNTrees, LSTMTrees, StackNNTrees with full_stack and StackNNTreesMem2out"


class Function(NamedTuple):
    """A function with weights of its own: its name, its arity, and its place among the functions of that arity."""

    name: str
    arity: int
    set: int


class NetworkPlan(NamedTuple):
    """A network and where its weights go, its leaves' and its head's excepted."""

    config: NetworkConfig
    pieces: Sequence[Piece]
    number_activation: str = "sigmoid"


def plan_equation_network(
    weights: PublishedWeights, options: Mapping[str, Any], task_options: Mapping[str, Any], words: Sequence[str] | None
) -> Plan:
    """What a state dict of recursiveMemNet becomes.

    Functions, their arities, sizes, gates and actions are told by names and shapes.

    Args:
        weights: the state dict.
        options: of the network, what the weights do not say.
        task_options: ``numeric``: keep the encoder and the decoder of numbers, which the authors train only with
            ``--numeric``.
        words: the leaves in the order of the rows of the embedding table, spelled as in the published code
            (``Integer_2``) or as here (``Integer:2``); the authors' 34 by default.

    Raises:
        CheckpointError: weights of a network that is not covered, or that fit no network.
        RecipeError: options that are missing or that do not apply.
    """
    for name in task_options:
        if name != "numeric":
            raise RecipeError(f"{name} is no option of {TASK} that a conversion takes; numeric is the only one")
    numeric = checked_flag("numeric", task_options.get("numeric", False))
    sort, arities = _functions(weights)
    vocabulary = Vocabulary(_leaves(weights, words), arities.items(), number=NUMBER if numeric else None)
    functions = [
        Function(name, arity, vocabulary.kind_index(vocabulary.find(name, arity)[0]))  # type: ignore[index]
        for name, arity in arities.items()
    ]
    size = weights.matrix(TABLE)[1]
    found = _NETWORKS[sort](weights, functions, size, options)
    config = found.config.replace(hidden_size=size)
    pieces = [*found.pieces, Piece(TABLE, "encoder.leaves.embedding.weight")]
    pieces.append(Piece("bias", "head.equality.bias" if numeric else "head.bias"))
    of_numbers = [
        piece
        for theirs, ours in _NUMBER_MODULES.items()
        for number, layer in enumerate(("first", "second"), start=1)
        for piece in linear(f"{theirs}.linear{number}", f"{ours}.{layer}")
    ]
    if not numeric:
        return Plan(TASK, {}, config, vocabulary, pieces, left=frozenset(piece.name for piece in of_numbers))
    config = config.replace(number_activation=found.number_activation)
    told = {"numeric": True, "decoder_activation": found.number_activation}
    return Plan(TASK, told, config, vocabulary, [*pieces, *of_numbers])


def _leaves(weights: PublishedWeights, words: Sequence[str] | None) -> list[str]:
    """The leaf of each row of the embedding table, as spelled here."""
    rows = weights.matrix(TABLE)[0]
    leaves = list(LEAF_LABELS if words is None else words)
    if rows != len(leaves):
        whose = "the published code has" if words is None else "words names"
        raise weights.refusal(f"{TABLE} has {rows} rows, and {whose} {len(leaves)} leaves; give words, one a row")
    spelled = {_published_spelling(label): label for label in LEAF_LABELS}
    return [spelled.get(word, word) for word in leaves]


def _published_spelling(label: str) -> str:
    """``Integer:2`` as ``Integer_2``, and ``Pi:pi`` as ``Pi``."""
    name, _, value = label.partition(":")
    return f"{name}_{value}" if name in _VALUED_LEAVES else name


def _functions(weights: PublishedWeights) -> tuple[str, dict[str, int]]:
    """The class of the published network, and the arity of each function, in the published order.

    Raises:
        CheckpointError: no function, functions of different networks, or a network that is not covered.
    """
    if "layer" in weights.modules:
        raise weights.refusal(f"it is a sequence baseline, LSTMchain or RNNchain, which is not covered; {_COVERED} are")
    others = {"Symbol", *_NUMBER_MODULES, *_SHARED_STACKS.values()}
    names = [name for name in weights.modules if name not in others]
    names = [name for name in names if not name.endswith("_stack") or name.removesuffix("_stack") not in names]
    names.sort(key=lambda name: _PUBLISHED_ORDER.get(name, len(_PUBLISHED_ORDER)))
    if not names:
        raise weights.refusal("it has leaves, and no function")
    sorts = {name: _sort_of(weights, name) for name in names}
    if len(set(sorts.values())) > 1:
        raise weights.refusal(f"its functions are those of {' and '.join(sorted(set(sorts.values())))}, not of one")
    return sorts[names[0]], {name: _arity_of(weights, name, sort) for name, sort in sorts.items()}


def _sort_of(weights: PublishedWeights, name: str) -> str:
    """The class of the published network that a module is of."""
    for sort, signatures in _SIGNATURES.items():
        if any(f"{name}.{signature}" in weights.tensors for signature in signatures):
            if sort in _NETWORKS:
                return sort
            raise weights.refusal(f"it is of {sort}, which is not covered; {_COVERED} are")
    raise weights.refusal(f"{name} is the module of no network that is covered; {_COVERED} are")


def _arity_of(weights: PublishedWeights, name: str, sort: str) -> int:
    """How many children a function has."""
    size = weights.matrix(TABLE)[1]
    if sort == "LSTMTrees":
        return 2 if f"{name}.{_SIGNATURES[sort][1]}" in weights.tensors else 1
    signature = f"{name}.{_SIGNATURES[sort][0]}"
    width = weights.matrix(signature)[1]
    if width not in (size, 2 * size):
        aside = "; stacks of single numbers, as of --stack-type simple, are not covered" if "Stack" in sort else ""
        raise weights.refusal(
            f"{signature} is of width {width}, neither {size} for one child nor {2 * size} for two{aside}"
        )
    return width // size


def _rows(begin: int, count: int) -> slice:
    return slice(begin, begin + count)


def _tree_rnn(
    weights: PublishedWeights, functions: Sequence[Function], size: int, options: Mapping[str, Any]
) -> NetworkPlan:
    given = checked_network_options("TreeRNN", options, {"activation": '"sigmoid" in the scripts'}, ["dropout"])
    pieces = [
        piece
        for function in functions
        for piece in linear(f"{function.name}.linear", f"encoder.cell.maps.{function.arity}", (function.set,))
    ]
    return NetworkPlan(NetworkConfig("TreeRNN", given), pieces)


def _tree_lstm(
    weights: PublishedWeights, functions: Sequence[Function], size: int, options: Mapping[str, Any]
) -> NetworkPlan:
    """In the published code ``data`` is the input gate and ``input`` what it lets in."""
    given = checked_network_options("TreeLSTM", options, {}, ["dropout"])
    pieces: list[Piece] = []
    for name, arity, own in functions:
        module = f"encoder.cell.maps.{arity}"
        if arity == 1:
            for place, gate in enumerate(("data", "forget", "output", "input")):
                pieces += linear(f"{name}.{gate}", module, (own, _rows(place * size, size)))
            continue
        gates = {
            "data_bias": ("data_left", "data_right"),
            "forget_bias_left": ("forget_left_by_left", "forget_left_by_right"),
            "forget_bias_right": ("forget_right_by_left", "forget_right_by_right"),
            "output_bias": ("output_left", "output_right"),
            "input_bias": ("input_left", "input_right"),
        }
        for place, (bias, children) in enumerate(gates.items()):
            rows = _rows(place * size, size)
            pieces.append(Piece(f"{name}.{bias}", f"{module}.bias", (own, rows)))
            for position, child in enumerate(children):
                where = (own, rows, _rows(position * size, size))
                pieces.append(Piece(f"{name}.{child}.weight", f"{module}.weight", where))
    return NetworkPlan(NetworkConfig("TreeLSTM", given), pieces)


def _stack_tree_rnn(
    weights: PublishedWeights, functions: Sequence[Function], size: int, options: Mapping[str, Any]
) -> NetworkPlan:
    arities = sorted({function.arity for function in functions})
    stacks = {arity: _SHARED_STACKS[arity] for arity in arities}
    gated = [name for name in weights.tensors if ".gate_linear" in name]
    if gated:
        raise weights.refusal(f"{gated[0]} is of a gated stack, which is not covered; --stack-type full_stack is")
    given = checked_network_options(
        "StackTreeRNN",
        options,
        {"activation": '--tree-node-activation, "sigmoid" by default', "stack_size": "--memory-size, 5 by default"},
        ["dropout"],
    )
    no_op = f"{next(iter(stacks.values()))}.no_op_linear.weight" in weights.tensors
    pieces: list[Piece] = []
    for name, arity, own in functions:
        pieces += linear(f"{name}.linear", f"encoder.cell.maps.{arity}", (own,))
        pieces += linear(f"{name}.memory_linear", f"encoder.cell.memory_maps.{arity}", (own,))
    for arity, stack in stacks.items():
        control, rows = f"encoder.cell.control_maps.{arity}", f"encoder.cell.row_maps.{arity}"
        pieces += linear(f"{stack}.input_linear", control, (0, _rows(0, size)))
        pieces += linear(f"{stack}.action", control, (0, _rows(size, 2 + no_op)))
        for place, action in enumerate(("push", "pop", "no_op")[: 2 + no_op]):
            pieces += linear(f"{stack}.{action}_linear", rows, (0, _rows(place * size, size)))
    return NetworkPlan(NetworkConfig("StackTreeRNN", {**given, "no_op": no_op}), pieces, "relu")


def _stack_tree_lstm(
    weights: PublishedWeights, functions: Sequence[Function], size: int, options: Mapping[str, Any]
) -> NetworkPlan:
    first = functions[0].name
    present = weights.tensors.keys()
    scalar = f"{first}_stack.action.weight" in present
    gated_top_k = f"{first}.pos_linear_1.weight" in present
    told: dict[str, Any] = {
        "actions": "scalar" if scalar else "elementwise",
        "input_gate": f"{first}_stack.data_linear.weight" in present,
        "gated_top_k": gated_top_k,
    }
    if gated_top_k:
        told["top_k"] = sum(name.startswith(f"{first}.pos_linear_") and name.endswith(".weight") for name in present)
    elif f"{first}.pos_linear.weight" in present:
        told["top_k"] = weights.matrix(f"{first}.pos_linear.weight")[0]
    needed = {
        "stack_size": "--memory-size, 5 in the scripts",
        "activation": '--stack-node-activation, "tanh" in the scripts',
        "output_activation": '--tree-node-activation, "tanh" in the scripts',
    }
    if scalar:
        # The names and shapes of a queue, and of a stack without pop, are those of a stack with two actions.
        needed |= {"no_pop": "--no-pop, false by default", "queue": "true for --stack-type queue, false for stack"}
        told["no_op"] = weights.matrix(f"{first}_stack.action.weight")[0] == 3
    else:
        needed["normalize"] = "--normalize-action, true in the script of normalize+no-op"
        told["no_pop"] = f"{first}_stack.pop_gate_linear.weight" not in present
        told["no_op"] = not told["no_pop"] and f"{first}_stack.no_op_gate_linear.weight" in present
    given = checked_network_options("StackTreeLSTM", options, needed, ["dropout"])
    config = NetworkConfig("StackTreeLSTM", {**told, **given})
    blocks_of = {name: value for name, value in config.options.items() if name not in ("normalize", "dropout")}
    stack = StackTreeLSTMOptions(**blocks_of)
    pieces = [piece for function in functions for piece in _stack_tree_lstm_pieces(function, stack, size)]
    return NetworkPlan(config, pieces)


def _stack_tree_lstm_pieces(function: Function, stack: StackTreeLSTMOptions, size: int) -> Iterator[Piece]:
    """The weights of one function, those of its stack included."""
    name, arity, own = function
    begin = {block: rows.start for block, rows in stack.blocks(arity, size).items()}
    found: list[tuple[str, int, int]] = []  # published module, first row, rows
    gates = ["gate_linear"] if arity == 1 else ["gate_linear_l", "gate_linear_r"]
    found += [(f"_stack.{gate}", begin["forget"] + place * size, size) for place, gate in enumerate(gates)]
    if stack.actions == "scalar":
        found.append(("_stack.action", begin["actions"], len(stack.action_names)))
    else:
        for place, action in enumerate(stack.action_names):
            found.append((f"_stack.{action}_gate_linear", begin["actions"] + place * size, size))
    found += [(".o_linear", begin["output"], size), ("_stack.input_linear", begin["update"], size)]
    if stack.input_gate:
        found.append(("_stack.data_linear", begin["input"], size))
    if stack.gated_top_k:
        found += [(f".pos_linear_{row + 1}", begin["readout"] + row * size, size) for row in range(stack.top_k)]
    elif stack.top_k > 1:
        found.append((".pos_linear", begin["readout"], stack.top_k))
    for module, row, count in found:
        yield from linear(f"{name}{module}", f"encoder.cell.maps.{arity}", (own, _rows(row, count)))


_NETWORKS: dict[str, Callable[[PublishedWeights, Sequence[Function], int, Mapping[str, Any]], NetworkPlan]] = {
    "NNTrees": _tree_rnn,
    "LSTMTrees": _tree_lstm,
    "StackNNTrees": _stack_tree_rnn,
    "StackNNTreesMem2out": _stack_tree_lstm,
}
