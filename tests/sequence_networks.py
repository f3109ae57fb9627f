"""Sequence networks in double precision, and everything that an engine computes of them."""

from __future__ import annotations

from typing import Any

import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.networks import NetworkConfig
from treemem.networks.sequence_encoder import SequenceEncoder
from treemem.schedule.tree_batch import TreeBatch

SIZE = 6
NEEDS_TREES = ("gold", "predicted")


def drawn(network: Any, seed: int = 0, std: float = 0.7) -> Any:
    """Draw every parameter, as one that starts at 0 or 1 would hide mistakes; in double precision."""
    torch.manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return network.double()


def made(name: str, seed: int = 0, **options: Any) -> Any:
    """A network of a width of 6 with drawn weights."""
    torch.manual_seed(seed)
    network = NetworkConfig(name, {"hidden_size": SIZE, **options}).build(VOCABULARY)
    assert isinstance(network, SequenceEncoder)
    return drawn(network, seed)


def padded_inputs(lengths: tuple[int, ...], size: int, longer: int = 1) -> torch.Tensor:
    """Random vectors ``[sequences, longest + longer, size]``, NaN after each sequence."""
    longest = max(lengths, default=0) + longer
    inputs = torch.randn(len(lengths), longest, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs[torch.arange(longest) >= torch.tensor(lengths, dtype=torch.int64)[:, None]] = torch.nan
    return inputs


def with_gradients(outputs: dict[str, torch.Tensor], leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs, and the gradients of a sum that weighs them; 0 where there is none."""
    learned = [each for each in outputs.values() if each.requires_grad]
    places = [torch.arange(each.numel(), dtype=each.dtype, device=each.device) for each in learned]
    weights = [torch.cos(0.7 * place).view(each.shape) for place, each in zip(places, learned, strict=True)]
    total = sum((each.nan_to_num() * weight).sum() for each, weight in zip(learned, weights, strict=True))
    if torch.is_tensor(total):
        total.backward()
    gradients = {
        f"gradient of {name}": torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()
        for name, leaf in leaves.items()
    }
    return {name: each.detach() for name, each in {**outputs, **gradients}.items()}


def results(network: Any, lengths: tuple[int, ...], engine: str, device: Any = "cpu") -> dict[str, torch.Tensor]:
    """All outputs and losses, and the gradient of the inputs and of every parameter; padding is NaN."""
    network.engine = engine
    network.zero_grad()
    leaves = dict(network.named_parameters())
    if network.options.get("transitions") in NEEDS_TREES:
        forest = random_forest(seed=len(lengths), num_trees=len(lengths), size=max(lengths, default=0) + 1)
        read = network(TreeBatch.from_forest(forest, VOCABULARY).to(device), trace=True)
        found = {"encoding": read.root}
    else:
        dtype = next(network.parameters()).dtype
        inputs = padded_inputs(lengths, network.embedding_size).to(device, dtype).requires_grad_()
        leaves["inputs"] = inputs
        read = network.read(inputs, torch.tensor(lengths, dtype=torch.int64), trace=True)
        found = {"encoding": read.encoding}
    found |= {"outputs": read.outputs} | {name: each.sum for name, each in read.auxiliary_losses.items()} | read.trace
    return with_gradients(found, leaves)


def runs_in_cpp(tensor: torch.Tensor) -> bool:
    """Whether C++ has a part in the gradients of a tensor."""
    waiting, seen = [tensor.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return any("_Native" in node.name() for node in seen)
