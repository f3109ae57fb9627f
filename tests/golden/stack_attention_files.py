"""Checks of golden files of stack attention, one function for each sort of file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from golden.learned_weights import check_gradients, load
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays
from torch import nn
from torch.nn import functional

from treemem.networks.sequences.stack_attention.sublayers import (
    NondeterministicSublayer,
    StackLayer,
    StackSublayer,
    SuperpositionSublayer,
)
from treemem.nn import SequenceToSequenceTransformer, StackAttentionTransformer, TransformerLanguageModel
from treemem.trees.vocabulary import Vocabulary

_MAPS = {
    "action_layer.linear": "actions",
    "input_to_pushed_vector_layer.linear": "value",
    "stack_reading_to_output_layer.linear": "output",
    "bottom_vector_logits": "bottom",
}
_LAYER = {
    "stack.action": "stack.actions",
    "stack.pushed_vector": "stack.value",
    "stack.reading_to_output": "stack.output",
    "stack.bottom_vector_logits": "stack.bottom",
    "stack_norm": "stack_norm",
    "feedforward_norm": "feedforward_norm",
    "feedforward.linear1": "hidden_map",
    "feedforward.linear2": "output_map",
}
_DECODER_LAYER = {
    **{theirs: ours for theirs, ours in _LAYER.items() if ours.startswith("stack.")},
    "stack_norm": "norm1",
    "cross_norm": "norm2",
    "cross_attention": "multihead_attn",
    "cross_attention.out_proj": "multihead_attn.out_proj",
    "feedforward_norm": "norm3",
    "feedforward.linear1": "linear1",
    "feedforward.linear2": "linear2",
}
_STANDARD = ("self_attn", "self_attn.out_proj", "linear1", "linear2", "norm1", "norm2")
_STANDARD_DECODER = (*_STANDARD, "multihead_attn", "multihead_attn.out_proj", "norm3")


def _sublayer(arrays: Arrays, action: str, value: str) -> StackSublayer:
    hidden_size, value_size = arrays[f"param.{action}.weight"].shape[1], arrays[f"param.{value}.weight"].shape[0]
    if "states" in arrays:
        return NondeterministicSublayer(hidden_size, int(arrays["states"]), int(arrays["symbols"]), value_size)
    return SuperpositionSublayer(hidden_size, value_size)


def check_stack(arrays: Arrays) -> None:
    """A sublayer by itself: actions, readouts, outputs and gradients."""
    stack = _sublayer(arrays, "action_layer.linear", "input_to_pushed_vector_layer.linear").double()
    inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
    ours = load(stack, arrays, _MAPS)
    if isinstance(stack, SuperpositionSublayer):
        same(stack.weights(inputs), arrays["actions"], "actions")
    same(stack.readouts(inputs), arrays["reading"], "readouts")
    _check_outputs(arrays, stack, ours, inputs)


def check_layer(arrays: Arrays) -> None:
    """A whole layer."""
    stack = _sublayer(arrays, "stack.action", "stack.pushed_vector")
    feedforward_size, hidden_size = arrays["param.feedforward.linear1.weight"].shape
    layer = StackLayer(stack, hidden_size, feedforward_size, 0.0).double()
    inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
    _check_outputs(arrays, layer, load(layer, arrays, _LAYER), inputs)


def _check_outputs(arrays: Arrays, module: nn.Module, ours: dict[str, str], inputs: torch.Tensor) -> None:
    outputs = module(inputs)
    same(outputs, arrays["output"], "outputs")
    (outputs * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    check_gradients(arrays, module, ours, inputs, "outputs", 1e-10)


class _WithOutput(nn.Module):
    def __init__(self, network: StackAttentionTransformer, symbols: int) -> None:
        super().__init__()
        self.network, self.output = network, nn.Linear(network.hidden_size, symbols)

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.output(self.network.read(vectors, lengths).outputs)
        return logits


def check_language_model(arrays: Arrays) -> None:
    """A language model: its logits are a map of the outputs, of their own or by the embeddings."""
    embeddings, symbols = arrays["param.embeddings"], arrays["logits"].shape[2]
    vocabulary = Vocabulary([str(number) for number in range(len(embeddings))], [("f", 2)])
    options: dict[str, Any] = {
        "layers": str(arrays["layers"]),
        "num_heads": int(arrays["heads"]),
        "feedforward_size": arrays["param.layer0.linear1.weight"].shape[0],
        "form": "leaves",
    }
    model: nn.Module
    if "param.output.weight" in arrays:
        network = StackAttentionTransformer(embeddings.shape[1], vocabulary, causal=True, read="last", **options)
        model, prefix = _WithOutput(network, symbols).double(), "network."
    else:
        model, prefix = TransformerLanguageModel(embeddings.shape[1], vocabulary, **options).double(), ""
    names = {"embeddings": f"{prefix}embedding.weight", "final_norm": f"{prefix}last_norm", "output": "output"}
    for number in range(len(model.get_submodule(f"{prefix}layers"))):  # type: ignore[arg-type]
        names |= {f"layer{number}.{name}": f"{prefix}layers.{number}.{ours}" for name, ours in _LAYER.items()}
        names |= {f"layer{number}.{name}": f"{prefix}layers.{number}.{name}" for name in _STANDARD}
    ours = load(model, arrays, names)
    tokens, lengths = torch.from_numpy(arrays["tokens"]), torch.from_numpy(arrays["lengths"])
    vectors = functional.embedding(tokens, model.get_parameter(f"{prefix}embedding.weight"))
    logits = model(vectors, lengths) if prefix else model.read(vectors, lengths).outputs[..., :symbols]  # type: ignore[operator]
    present = torch.from_numpy(arrays["mask"]).bool()
    same(logits[present], arrays["logits"][present.numpy()], "logits")
    (logits * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    for theirs, name in ours.items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None, name
        same(gradient, arrays[f"grad.{theirs}"], f"gradient of {name}")


def check_translation(arrays: Arrays) -> None:
    """An encoder and a decoder. Their inputs are scaled, and their embeddings make the logits; ours are two tables."""
    embeddings = torch.from_numpy(arrays["param.embeddings"])
    count, size = embeddings.shape
    end, between = arrays["logits"].shape[2] - 1, int(arrays["target"][0, 0])
    leaves = [{end: "</s>", between: "|||"}.get(number, str(number)) for number in range(count)]
    feedforward_size = len(arrays["param.encoder.layer0.linear1.bias"])
    network = SequenceToSequenceTransformer(
        size, Vocabulary(leaves, []), layers=str(arrays["layers"]), num_heads=int(arrays["heads"]),
        feedforward_size=feedforward_size, norm_first=True,
    ).double()  # fmt: skip
    names = {"embeddings": "embedding.weight"}
    for side, of_stack, of_standard in (("encoder", _LAYER, _STANDARD), ("decoder", _DECODER_LAYER, _STANDARD_DECODER)):
        names[f"{side}.final_norm"] = f"{side}_norm"
        for number in range(len(network.get_submodule(f"{side}_layers"))):  # type: ignore[arg-type]
            theirs, own = f"{side}.layer{number}", f"{side}_layers.{number}"
            names |= {f"{theirs}.{name}": f"{own}.{ours}" for name, ours in of_stack.items()}
            names |= {f"{theirs}.{name}": f"{own}.{name}" for name in of_standard}
    ours = load(network, arrays, names)
    with torch.no_grad():
        network.embedding.weight.copy_(size**0.5 * embeddings)
        network.symbol.weight.copy_(embeddings)
        network.symbol.bias.zero_()
    is_padding = torch.from_numpy(arrays["source_mask"] == 0)
    source = network._encoded(torch.from_numpy(arrays["source"]), is_padding)
    same(source.outputs[~is_padding], arrays["encoder_output"][arrays["source_mask"] == 1], "outputs of the encoder")
    outputs, _ = network._decoded(torch.from_numpy(arrays["target"]), source)
    logits = network.symbol(outputs)[..., : end + 1]
    present = arrays["target_mask"] == 1
    same(logits[torch.from_numpy(present)], arrays["logits"][present], "logits")
    (logits * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    gradients = {theirs: network.get_parameter(name).grad for theirs, name in ours.items()}
    gradients["embeddings"] = size**0.5 * network.embedding.weight.grad + network.symbol.weight.grad  # type: ignore[operator]
    for theirs, gradient in gradients.items():
        same(gradient, arrays[f"grad.{theirs}"], f"gradient of {theirs}")


CHECKS: dict[str, Callable[[Arrays], Any]] = {
    f"stack_{stack}{sort}.npz": check
    for stack in ("superposition", "nondeterministic")
    for sort, check in (("", check_stack), ("_layer", check_layer), ("_lm", check_language_model))
} | {
    "stack_superposition_lm_tied.npz": check_language_model,
    "stack_superposition_translation.npz": check_translation,
}
