"""The most memory that a step of training holds at once."""

from __future__ import annotations

import torch

from benchmarks.device import peak_of
from benchmarks.problem import Problem
from benchmarks.products import rows_of_a_node
from benchmarks.ways import Way


def peak_bytes(problem: Problem, way: Way) -> int:
    """The most bytes of tensors that a step of training holds at once on the device of the problem.

    What was there before does not count, nor do the gradients of the parameters, which are what the step is for.

    Args:
        problem: whose parameters are trained.
        way: how; its first step is not measured.
    """
    way.train()
    problem.zero_grad()
    gradients = sum(each.numel() * each.element_size() for each in problem.parameters().values())
    if problem.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(problem.device)
        before = torch.cuda.memory_allocated(problem.device)
        way.train()
        return torch.cuda.max_memory_allocated(problem.device) - before - gradients
    return peak_of(way.train) - gradients


def least_bytes(problem: Problem) -> int:
    """Bytes of what any backward pass needs of the first batch: states, gates and one gathered input for each row."""
    schedule, cell = problem.step(0).batch.schedule, problem.cell
    weights = {key: weight for key, (weight, _) in cell.weights().items()}
    leaf = cell.leaf(weights[next(iter(weights))].new_zeros(1, problem.layer.input_size or cell.hidden_size), 0)
    numbers = schedule.num_rows * sum(state[0].numel() for state in leaf.values())
    leaf_map = getattr(cell, "leaf_map", None)
    if leaf_map is not None:
        numbers += schedule.num_leaf_rows * sum(leaf_map.weight.shape[1:])
    for level in schedule.levels[1:]:
        for segment in level.segments:
            for product in cell.products(segment.arity):
                rows = (segment.end - segment.begin) * rows_of_a_node(cell, segment.arity, segment.kind)[product.name]
                numbers += rows * sum(weights[product.weights].shape[1:])
    return numbers * next(iter(weights.values())).element_size()
