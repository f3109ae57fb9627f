"""Every operation and layer as a case that runs on a device or, on a plain engine, on the CPU."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from engine_parity import REFERENCE
from torch import Tensor, nn

from treemem import Forest, TreeBatch, Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.networks import NetworkConfig, every_network
from treemem.networks.memories.controllers.cells import run_cell
from treemem.networks.memories.neural_stack.equations import End, naive_run
from treemem.networks.memories.neural_stack.run import known_actions
from treemem.nn import (
    DIORA,
    LSTM,
    ONLSTM,
    PRPN,
    AttentiveReader,
    ClassifierHead,
    ComparisonHead,
    DeepLSTMReader,
    DoublyLinkedList,
    EqualityHead,
    GRUCell,
    ImpatientReader,
    LanguageModel,
    LSTMCell,
    Memory,
    MemoryCell,
    MemoryRNN,
    NeuralDeque,
    NeuralQueue,
    NeuralStack,
    NondeterministicStack,
    NumberDecoder,
    ONLSTMCell,
    OrderedMemory,
    ReadOnlyMemory,
    RegisterMemory,
    RegressionHead,
    RelationHead,
    SequenceToSequence,
    StepCell,
    SuperpositionStack,
    TransformerLanguageModel,
    TreeLSTM,
    TreeNetwork,
    UniversalTransformer,
    WordByWordAttention,
)
from treemem.ops import State

SIZE = 4
VOCABULARY = Vocabulary(["x", "y"], [("f", 2), ("g", 1), ("h", 3)])
SYMBOLS = Vocabulary(["</s>", "|||", "a", "b"], [])

Named = dict[str, Tensor]
Run = Callable[[Any, Named, bool], Named]
"""From a module, inputs and whether to take the plain engine to outputs by name."""


class Case(NamedTuple):
    """A computation with its parameters and inputs, all of which get gradients."""

    module: nn.Module
    inputs: Named
    run: Run


def forest_of_height(height: int) -> Forest:
    """Three trees: one with a level for each step of the height, a leaf, and one of four levels."""
    tree = "x"
    for level in range(height):
        tree = f"(f {tree} y)" if level % 2 else f"(g {tree})"
    return Forest.from_trees([tree, "x", "(h y (f x y) (g (g x)))", "(f y x)"])


def device_of(module: nn.Module) -> torch.device:
    """The device of a module's parameters."""
    return next(module.parameters()).device


def set_engine(module: nn.Module, plain: bool) -> None:
    """Choose the engine of every layer that has several."""
    for each in module.modules():
        if hasattr(each, "engine"):
            each.engine = "auto" if not plain else REFERENCE if isinstance(each, TreeNetwork) else "naive"


def network_case(make: Callable[[], nn.Module], length: int, **options: Any) -> Case:
    """A network over trees of a height, which sequence encoders read as tokens."""
    forest = forest_of_height(length)

    def run(network: nn.Module, inputs: Named, plain: bool) -> Named:
        set_engine(network, plain)
        batch = TreeBatch.from_forest(forest, VOCABULARY, **options).to(device_of(network))
        output = network(batch, *inputs.values())
        losses = {name: each.sum for name, each in output.auxiliary_losses.items()}
        return {"root": output.root, "outputs": output.outputs, **losses}

    module = make()
    size = getattr(module, "input_size", None)
    return Case(module, {"feat": torch.randn(forest.num_nodes, size)} if size else {}, run)


def policy_case(config: NetworkConfig, length: int) -> Case:
    """The likeliest trees of a network that samples them in training, and the policy that chooses them."""

    def run(network: Any, _: Named, plain: bool) -> Named:
        set_engine(network, plain)
        batch = TreeBatch.from_forest(forest_of_height(length), VOCABULARY).to(device_of(network))
        output = network(batch, trace=True)
        return {"root": output.root, **{name: output.trace[name] for name in ("log_probability", "entropy", "joined")}}

    return Case(config.build(VOCABULARY).eval(), {}, run)


class UserCell(nn.Module):
    """A cell without the split form."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(arity * SIZE, SIZE) for arity in (1, 2, 3))

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": torch.tanh(x)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        children_h = children["h"].flatten(1)
        return {"h": torch.tanh(self.maps[children_h.shape[1] // SIZE - 1](children_h))}


def user_network() -> TreeNetwork:
    return TreeNetwork(UserCell(), vocabulary=VOCABULARY, embedding_size=SIZE)


def parts_case(length: int) -> Case:
    """A tree layer that keeps the roots only and runs large trees part by part."""

    def run(network: Any, _: Named, plain: bool) -> Named:
        set_engine(network, plain)
        batch = TreeBatch.from_forest(forest_of_height(length), VOCABULARY)
        return {"root": network(batch).root if plain else network(batch, keep="roots", rows_at_once=6).root}

    return Case(TreeLSTM(SIZE, VOCABULARY), {}, run)


def known_actions_case(end: End, length: int) -> Case:
    """A neural stack or queue over known actions."""

    def run(_: nn.Module, inputs: Named, plain: bool) -> Named:
        if plain:
            return {"readouts": naive_run(*inputs.values(), end)[0]}
        return {"readouts": known_actions(*inputs.values(), end)}

    value, push, pop = torch.randn(3, length, SIZE), torch.rand(3, length), torch.rand(3, length)
    return Case(nn.Identity(), {"value": value, "push": push, "pop": pop}, run)


def cell_case(make: Callable[[], StepCell], length: int) -> Case:
    """A recurrent cell over sequences of different lengths."""

    def run(cell: Any, inputs: Named, _: bool) -> Named:
        lengths = torch.tensor([length, 1, length - 1])
        outputs, state = run_cell(cell, inputs["x"], lengths=lengths)
        after, _ = cell(inputs["x"][:, 0], state)
        return {"first": outputs[:, 0], "after": after}

    return Case(make(), {"x": torch.randn(3, length, SIZE)}, run)


def with_memory(memory: Memory, size: int = SIZE) -> MemoryCell:
    return MemoryCell(partial(LSTMCell, hidden_size=SIZE), memory, SIZE, size)


def attention_case(form: Any, length: int) -> Case:
    """A memory that is only read."""

    def run(cell: Any, inputs: Named, _: bool) -> Named:
        rows = inputs["rows"]
        state = cell.initial(3)
        filled = cell.memories[0].filled(rows, to_device(torch.tensor([2, length, 1]), rows.device))
        outputs, _ = run_cell(cell, inputs["x"], state._replace(memories=(filled,)))
        return {"outputs": outputs}

    return Case(
        with_memory(ReadOnlyMemory(SIZE, form)), {name: torch.randn(3, length, SIZE) for name in ("rows", "x")}, run
    )


def transduction_case(options: dict[str, Any], training: bool, length: int) -> Case:
    """A sequence-to-sequence network: logits in training, else what it writes."""

    def run(network: Any, _: Named, plain: bool) -> Named:
        network.train(training)
        source = TokenBatch.from_sequences([[2, 3] * length, [2], [3, 3, 2]])
        target = TokenBatch.from_sequences([[3, 2] * length, [3, 0], [2, 0]])
        batch = TokenBatch(source.token, source.lengths, target=target).to(device_of(network))
        output = network(batch)
        if training:
            return {"root": output.root, "logits": output.outputs}
        written = TokenBatch.from_sequences(output.decoded)
        return {"root": output.root, "written": written.token.to(output.root.dtype)}

    network = SequenceToSequence(SIZE, SYMBOLS, memory_size=SIZE, embedding_size=SIZE, **options)
    return Case(network, {}, run)


def language_model_case(make: Callable[[], nn.Module], length: int) -> Case:
    """A language model on a batch with padding that continues another."""

    def run(network: Any, _: Named, plain: bool) -> Named:
        set_engine(network, plain)
        device = device_of(network)
        first = network(TokenBatch.from_sequences([[1, 2], [3, 0], [2, 2]]).to(device))
        batch = TokenBatch.from_sequences([[2, 3] * length, [2], [3, 3, 2]]).to(device)
        output = network(batch.with_state(first.state))
        losses = {name: loss.mean for name, loss in output.auxiliary_losses.items()}
        return {"root": output.root, "logits": output.outputs, **losses}

    return Case(make(), {}, run)


def head_case(head: nn.Module, trees: int, labels: Tensor, length: int) -> Case:
    """A head and its loss; the number of examples is the length."""
    labels = labels.repeat(length)

    def run(module: Any, inputs: Named, _: bool) -> Named:
        scores = module(inputs["encodings"])
        own = to_device(labels, scores.device)
        own = own.to(scores).view_as(scores) if own.is_floating_point() else own
        loss = module.loss if hasattr(module, "loss") else EqualityHead.loss if scores.dim() == 1 else nn.MSELoss()
        return {"scores": scores, "loss": loss(scores, own)}

    return Case(head, {"encodings": torch.randn(len(labels), trees, SIZE)}, run)


def _cases() -> dict[str, Callable[[int], Case]]:
    named: dict[str, Callable[[int], Case]] = {}
    for name, config in every_network(12).items():
        few = {"slots": 4} if config.network == "OrderedMemory" else {}
        layers = {"num_layers": 2} if config.network == "Transformer" else {}
        is_random = "noise" in inspect.signature(config.constructor()).parameters
        noise: dict[str, Any] = {"noise": False} if is_random else {}  # which each engine draws in its own order
        if config.options.get("transitions") == "reinforced" or config.network == "RRNet":
            noise = {"temperature": 1e-9}  # so that samples are certain
        if config.network == "DisjointTreeLSTM":
            named[name] = partial(policy_case, config)
            continue
        named[name] = partial(network_case, partial(config.replace(**few, **layers, **noise).build, VOCABULARY))
    makes: dict[str, Callable[[], nn.Module]] = {
        "Ordered Memory of both directions": lambda: OrderedMemory(
            SIZE, VOCABULARY, slots=3, bidirectional=True, padding="right flipped"
        ),
        "Ordered Memory, left": lambda: OrderedMemory(SIZE, VOCABULARY, slots=3, padding="left", skip=1e-3),
        "ON-LSTM of two layers": lambda: ONLSTM(SIZE, VOCABULARY, chunk_size=2, num_layers=2),
        "LSTM of both directions": lambda: LSTM(SIZE, VOCABULARY, num_layers=2, bidirectional=True),
        "RNN with a superposition stack": lambda: MemoryRNN(
            SIZE, VOCABULARY, cell="RNN", memory="superposition", memory_options={"depth": 4}
        ),
        "LSTM, loop": lambda: LSTM(SIZE, VOCABULARY, update_dropout=1e-30),
        "DIORA, MLP": lambda: DIORA(SIZE, VOCABULARY, composition="mlp"),
        "Universal Transformer with ACT": lambda: UniversalTransformer(SIZE, VOCABULARY, num_heads=2, act=True),
        "Tree-LSTM, both ways": lambda: TreeLSTM(SIZE, VOCABULARY, direction="both"),
        "own cell": user_network,
    }
    named |= {name: partial(network_case, make) for name, make in makes.items()}
    for reader in (WordByWordAttention, AttentiveReader, ImpatientReader, DeepLSTMReader):
        named[reader.__name__] = partial(network_case, partial(reader, SIZE, VOCABULARY), trees_per_example=2)
    featured = lambda: TreeLSTM(SIZE, VOCABULARY, input_size=3, node_features=True)  # noqa: E731
    named["Tree-LSTM with features"] = partial(network_case, featured, share_subtrees=False)
    named["Tree-LSTM, part by part"] = parts_case
    ends: tuple[End, ...] = ("top", "bottom")
    named |= {f"known actions, {end}": partial(known_actions_case, end) for end in ends}
    memories: dict[str, Callable[[], Memory]] = {
        "stack": NeuralStack,
        "queue": NeuralQueue,
        "deque": NeuralDeque,
        "superposition stack": lambda: SuperpositionStack(3, top_k=2),
        "doubly linked list": lambda: DoublyLinkedList(5),
        "nondeterministic stack": NondeterministicStack,
        "nondeterministic stack of vectors": lambda: NondeterministicStack(2, 2, vectors=True),
        "registers": lambda: RegisterMemory(3),
        "registers, cosine": lambda: RegisterMemory(3, similarity="cosine", key_size=2, write="erase-and-add"),
        "registers, straight-through": lambda: RegisterMemory(3, addressing="straight-through"),
    }
    for name, memory in memories.items():
        named[f"memory cell, {name}"] = partial(cell_case, lambda memory=memory: with_memory(memory()))
    cells = {"GRU": partial(GRUCell, SIZE, SIZE), "ON-LSTM": partial(ONLSTMCell, SIZE, SIZE, chunk_size=2)}
    named |= {f"cell, {name}": partial(cell_case, cell) for name, cell in cells.items()}
    named |= {f"attention, {form}": partial(attention_case, form) for form in ("dot", "bilinear", "additive")}
    for name, options in {
        "transduction": {"memory": "stack"},
        "transduction with attention": {"encoder": "separate", "attention": "dot", "output": "pointer"},
        "transduction, bidirectional": {"cell": "GRU", "encoder": "bidirectional", "attention": "bilinear"},
    }.items():
        named[name] = partial(transduction_case, options, True)
        named[f"{name}, decoding"] = partial(transduction_case, {**options, "beam_size": 2}, False)
    for name, options in {"ON-LSTM": {"chunk_size": 2}, "LSTM": {"cell": "LSTM"}}.items():
        named[f"language model, {name}"] = partial(
            language_model_case, lambda options=options: LanguageModel(SIZE, SYMBOLS, num_layers=2, **options)
        )
    named["language model, Transformer"] = partial(
        language_model_case,
        lambda: TransformerLanguageModel(SIZE, SYMBOLS, layers="1.superposition-3.1", num_heads=2),
    )
    named["PRPN"] = partial(language_model_case, lambda: PRPN(SIZE, SYMBOLS, slots=3, hard=False, residual_blocks=1))
    equal, classes, numbers = torch.tensor([1, 0]), torch.tensor([2, -1]), torch.tensor([0.5, 2.0])
    heads: dict[str, tuple[Callable[[], nn.Module], int, Tensor]] = {
        "equality, dot": (EqualityHead, 2, equal),
        "equality, cosine": (lambda: EqualityHead("cosine"), 2, equal),
        "equality, distance": (lambda: EqualityHead("distance"), 2, equal),
        "comparison": (lambda: ComparisonHead(SIZE), 2, equal),
        "relation": (lambda: RelationHead(SIZE, 3, features="differences"), 2, classes),
        "classifier": (lambda: ClassifierHead(SIZE, 3), 1, classes),
        "regression": (lambda: RegressionHead(SIZE), 1, numbers),
        "number": (lambda: NumberDecoder(SIZE), 1, numbers),
    }
    for name, (head, trees, labels) in heads.items():
        named[f"head, {name}"] = lambda length, head=head, trees=trees, labels=labels: head_case(
            head(), trees, labels, length
        )
    return named


CASES = _cases()


def placed(case: Case, device: torch.device | str, dtype: torch.dtype) -> Case:
    """A copy of a case on a device."""
    inputs = {name: value.to(device, dtype) for name, value in case.inputs.items()}
    return case._replace(module=copy.deepcopy(case.module).to(device, dtype), inputs=inputs)


def outcome(case: Case, plain: bool = False) -> Named:
    """Every output, and every gradient of a sum that weighs them."""
    inputs = {name: value.clone().requires_grad_() for name, value in case.inputs.items()}
    outputs = case.run(case.module, inputs, plain)
    losses = []
    for value in outputs.values():
        place = torch.arange(value.numel(), dtype=torch.float64, device=value.device)
        losses.append((value.double() * torch.cos(0.7 * place).view(value.shape)).sum())
    torch.stack([loss for loss in losses if loss.requires_grad]).sum().backward()
    found = dict(outputs)
    for name, leaf in [*case.module.named_parameters(), *inputs.items()]:
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: value.detach() for name, value in found.items()}
