"""A layer of a Transformer written out from the equations of Vaswani et al. 2017, for one sequence without padding."""

from __future__ import annotations

import math

import torch


def normalized(values: torch.Tensor, norm: torch.nn.LayerNorm) -> torch.Tensor:
    """Layer norm of ``[tokens, size]``."""
    mean = values.mean(1, keepdim=True)
    variance = ((values - mean) ** 2).mean(1, keepdim=True)
    return (values - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias


def attended(values: torch.Tensor, attention: torch.nn.MultiheadAttention) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention of every head, ``[tokens, size]``, and the mean weights, ``[tokens, tokens]``."""
    size, heads = values.shape[1], []
    width = size // attention.num_heads
    query, key, value = (
        values @ attention.in_proj_weight[begin : begin + size].T + attention.in_proj_bias[begin : begin + size]
        for begin in (0, size, 2 * size)
    )
    all_weights = torch.zeros(len(values), len(values), dtype=values.dtype)
    for head in range(attention.num_heads):
        own = slice(head * width, (head + 1) * width)
        powers = torch.exp(query[:, own] @ key[:, own].T / math.sqrt(width))
        weights = powers / powers.sum(1, keepdim=True)
        all_weights = all_weights + weights / attention.num_heads
        heads.append(weights @ value[:, own])
    return torch.cat(heads, 1) @ attention.out_proj.weight.T + attention.out_proj.bias, all_weights


def mapped(values: torch.Tensor, layer: torch.nn.TransformerEncoderLayer) -> torch.Tensor:
    """The two-layer map of each position."""
    hidden = values @ layer.linear1.weight.T + layer.linear1.bias
    return hidden * (hidden > 0) @ layer.linear2.weight.T + layer.linear2.bias


def reference_layer(values: torch.Tensor, layer: torch.nn.TransformerEncoderLayer) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of a layer for ``[tokens, size]``, and the mean weights of its heads."""
    if layer.norm_first:
        of_attention, weights = attended(normalized(values, layer.norm1), layer.self_attn)
        values = values + of_attention
        return values + mapped(normalized(values, layer.norm2), layer), weights
    of_attention, weights = attended(values, layer.self_attn)
    values = normalized(values + of_attention, layer.norm1)
    return normalized(values + mapped(values, layer), layer.norm2), weights


def sine_and_cosine(number: int, size: int) -> torch.Tensor:
    """The vector of a number, ``[size]``."""
    entries = []
    for index in range(size):
        angle = number / 10000 ** ((index - index % 2) / size)
        entries.append(math.cos(angle) if index % 2 else math.sin(angle))
    return torch.tensor(entries, dtype=torch.float64)


def gradients(module: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradient of every parameter, 0 where the loss does not depend on it."""
    module.zero_grad()
    loss.backward()
    return {
        f"gradient of {name}": torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in module.named_parameters()
    }


def fixed_weights(values: torch.Tensor) -> torch.Tensor:
    """A loss that reads every entry with a weight of its own."""
    return (values * torch.cos(torch.arange(values.numel())).view(values.shape)).sum()
