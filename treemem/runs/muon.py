"""Muon: orthogonalised momentum for the matrices of hidden layers, AdamW for all other weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim.adamw import adamw

from treemem.networks.trees.stacked_linear import StackedLinear

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the polynomial; Jordan et al. 2024
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon for some matrices (Jordan et al. 2024), AdamW for the other weights.

    A step with gradient ``G`` of a matrix ``W [rows, columns]``::

        M = momentum * M + (1 - momentum) * G
        W = (1 - rate * weight_decay) * W - rate * 0.2 * sqrt(max(rows, columns)) * O
        O = orthogonalised((1 - momentum) * G + momentum * M)

    The factor before ``O`` gives updates the size of those of AdamW (Liu et al. 2025), so that one rate fits both.
    ``torch.optim.Muon`` has the same steps, but it orthogonalises in bfloat16, which is slow on CPUs, and takes no
    parameters with blocks or of three dimensions.

    A matrix or block whose gradient is 0, such as the map of a kind that the batch does not have, changes only by its
    weight decay. Otherwise its old momentum, once orthogonalised, would move it at full speed.

    Args:
        weights: the parameters to train.
        blocks: the matrices, and the number of equal blocks of rows that are orthogonalised each by itself. A parameter
            of three dimensions is a number of such matrices.
        lr: the learning rate.
        betas, eps: of AdamW.
        weight_decay: decoupled, of all parameters.
        momentum: of the matrices.
    """

    def __init__(
        self,
        weights: Iterable[Parameter],
        blocks: Mapping[Parameter, int],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        by_blocks: dict[int, list[Parameter]] = {}
        for weight in weights:
            by_blocks.setdefault(blocks.get(weight, 0), []).append(weight)
        groups = [{"params": by_blocks[count], "blocks": count} for count in sorted(by_blocks)]
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "blocks": 0,
            "fused": True,  # torch loads the steps of such a group to the device of its weights
        }  # fmt: skip
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure``, if given, is called first and its result returned."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            gradients = [weight.grad for weight in weights]
            step = self._step_of_matrices if group["blocks"] else self._step_of_others
            step(weights, gradients, group)
        return result

    def _step_of_matrices(self, weights: list[Tensor], gradients: list[Tensor], group: Mapping[str, Any]) -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
            update = torch.lerp(gradient, momentum, group["momentum"])
            shape = -1, weight.shape[-2] // group["blocks"], weight.shape[-1]
            used = gradient.reshape(shape).flatten(1).any(1)[:, None, None]
            direction = orthogonalised(update.reshape(shape)) * used
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.sub_(direction.reshape(weight.shape), alpha=group["lr"] * 0.2 * math.sqrt(max(direction.shape[1:])))

    def _step_of_others(self, weights: list[Tensor], gradients: list[Tensor], group: Mapping[str, Any]) -> None:
        for weight in weights:
            state = self.state[weight]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        first, second, steps = (
            [self.state[weight][name] for weight in weights] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        beta1, beta2 = group["betas"]
        adamw(
            weights, gradients, first, second, [], steps, fused=True, amsgrad=False, beta1=beta1, beta2=beta2,
            lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return matrices of the same singular vectors, with singular values near 1, by five Newton-Schulz steps.

    A singular value of more than 0.002 of the matrix's norm becomes one between 0.68 and 1.21. A smaller one grows at
    most 485-fold. Zero stays zero.

    Args:
        matrices: ``[count, rows, columns]``.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    estimate = matrices.transpose(1, 2) if tall else matrices
    estimate = estimate / torch.linalg.matrix_norm(estimate, keepdim=True).clamp(min=1e-7)
    first, third, fifth = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = estimate @ estimate.transpose(1, 2)
        polynomial = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        estimate = torch.baddbmm(estimate, polynomial, estimate, beta=first)
    return estimate.transpose(1, 2) if tall else estimate


def hidden_matrices(module: nn.Module) -> dict[Parameter, int]:
    """Return the matrices of a network's maps and cells, with the number of blocks of each for :class:`Muon`.

    These are the weights of linear maps, of torch's recurrent layers and of its attention, of two rows and columns at
    least. The gates of a recurrent layer are its blocks, and query, key and value those of attention. Gates in one
    linear map are not divided. An output layer within the network counts as a map. Not among the matrices are
    embeddings and what is tied to them, biases and single vectors; nor are bilinear scores, convolutions and the
    matrices for the parent of downward cells.
    """
    blocks: dict[Parameter, int] = {}
    embedded = {part.weight for part in module.modules() if isinstance(part, nn.Embedding)}
    for part in module.modules():
        if isinstance(part, (nn.Linear, StackedLinear)):
            blocks[cast(Parameter, part.weight)] = 1
        elif isinstance(part, (nn.RNNBase, nn.RNNCellBase)):
            for name, weight in part.named_parameters(recurse=False):
                if name.startswith(("weight_ih", "weight_hh")):
                    blocks[weight] = len(weight) // part.hidden_size
        elif isinstance(part, nn.MultiheadAttention) and part.in_proj_weight is not None:
            blocks[part.in_proj_weight] = 3
    return {weight: count for weight, count in blocks.items() if min(weight.shape[-2:]) > 1 and weight not in embedded}
