"""The hidden size with which a network has about a given number of weights."""

from __future__ import annotations

import math

from treemem.errors import RecipeError
from treemem.model import weights_of
from treemem.networks import NetworkConfig
from treemem.task import Task

_DIVISORS = ("num_heads", "chunk_size")  # options that must divide the hidden size


def number_of_weights(task: Task, network: NetworkConfig) -> int:
    """Return the number of weights of a network with the task's head, without memory for them."""
    return sum(weight.numel() for weight in weights_of(task, network).values())


def matched_width(task: Task, network: NetworkConfig, weights: int, *, tolerance: float = 0.1) -> NetworkConfig:
    """Return the network at the hidden size whose number of weights is nearest to ``weights``.

    All other options stay. The hidden size is a multiple of the number of heads and of the chunk size.

    Args:
        task: gives the vocabulary and the head, whose weights count too.
        network: the network; its hidden size does not matter.
        weights: the number to match.
        tolerance: the largest difference, as a fraction of ``weights``.

    Raises:
        RecipeError: no hidden size comes within the tolerance.
    """
    step = math.lcm(*(int(network.options.get(name, 1)) for name in _DIVISORS))

    def at(steps: int) -> NetworkConfig:
        return network.replace(hidden_size=steps * step)

    def count(steps: int) -> int:
        return number_of_weights(task, at(steps))

    low, high = 1, 2
    while count(high) < weights:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < weights else (low, middle)
    nearest = min((low, high), key=lambda steps: abs(count(steps) - weights))
    matched = count(nearest)
    if abs(matched - weights) > tolerance * weights:
        raise RecipeError(
            f"no hidden size gives {network.network} within {tolerance:.0%} of {weights:,} weights; the nearest, "
            f"{nearest * step}, gives {matched:,}; choose another number of weights"
        )
    return at(nearest)
