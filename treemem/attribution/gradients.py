"""Gradients of an answer with respect to the vectors of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treemem.data.examples import Examples
from treemem.data.loader import Batch, BatchOptions
from treemem.device_copy import to_device
from treemem.evaluation_mode import in_evaluation_mode
from treemem.task import ModelOutput

if TYPE_CHECKING:
    from treemem.model import Model

_BATCH_SIZE = 256
_FIRST_STEPS, _MOST_STEPS = 32, 256
_TOLERANCE = 0.01  # of the larger value, or of 1


def gradient_times_input(model: Model, examples: Examples, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the score of each node, ``x . df(x)/dx``, float64 ``[nodes]``; NaN for a node without a vector.

    Args:
        model: a model whose encoder reads vectors.
        examples: the trees.
        chosen: the column of the explained answer of each example, ``[examples]``.
    """
    return _products(model, examples, chosen, np.arange(len(examples)), [1.0], [1.0])


def integrated_gradients(
    model: Model, examples: Examples, chosen: NDArray[np.int64], value: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the score of each node, the value of each baseline, and which examples the integral misses.

    A score is ``x . sum_k w_k df(a_k x)/dx``, eq. 1 of Sundararajan et al. 2017 from vectors of 0, by the rule of Gauss
    and Legendre. The number of points starts at 32 and is doubled, at most to 256, for the examples whose scores miss
    ``f(x) - f(0)`` by more than 1 %.

    Args:
        model, examples, chosen: as for :func:`gradient_times_input`.
        value: ``f(x)``, ``[examples]``.
    """
    baseline = np.zeros(len(examples))
    for batch, column in _batches(model, examples, chosen, np.arange(len(examples))):
        baseline[batch.example_ids] = _values(model, batch, column, _Scaled(0.0)).double().cpu().numpy()
    score = np.full(examples.forest.num_nodes, np.nan)
    missed = np.arange(len(examples))
    steps = _FIRST_STEPS
    tolerance = _TOLERANCE * np.maximum(1, np.maximum(np.abs(value), np.abs(baseline)))
    while len(missed) and steps <= _MOST_STEPS:
        points, weights = np.polynomial.legendre.leggauss(steps)
        nodes = examples.nodes_of(missed)
        score[nodes] = _products(model, examples, chosen, missed, ((points + 1) / 2).tolist(), (weights / 2).tolist())[
            nodes
        ]
        total = np.add.reduceat(np.nan_to_num(score), examples.forest.begin[: -1 : examples.trees_per_example])
        missed = missed[~(np.abs(value - baseline - total) <= tolerance)[missed]]
        steps *= 2
    return score, baseline, np.isin(np.arange(len(examples)), missed)


def _products(
    model: Model,
    examples: Examples,
    chosen: NDArray[np.int64],
    numbers: NDArray[np.int64],
    factors: Sequence[float],
    weights: Sequence[float],
) -> NDArray[np.float64]:
    """Return the products of vectors and the weighted sum of gradients at scaled vectors, for the nodes of ``numbers``.

    Args:
        model, examples, chosen: as for :func:`gradient_times_input`.
        numbers: of the examples.
        factors: the vectors are scaled by each of them in turn.
        weights: of the gradients there.

    Returns:
        float64 ``[nodes]``, NaN for nodes without a vector and those of other examples.
    """
    score = np.full(examples.forest.num_nodes, np.nan)
    for batch, column in _batches(model, examples, chosen, numbers):
        nodes = examples.nodes_of(np.asarray(batch.example_ids))
        for factor, weight in zip(factors, weights, strict=True):
            change = _Scaled(factor)
            with torch.enable_grad():
                total = _values(model, batch, column, change).sum()
                gradients = torch.autograd.grad(total, [scaled for _, scaled, _ in change.read], allow_unused=True)
            for (vectors, _, node), gradient in zip(change.read, gradients, strict=True):
                product = vectors.new_zeros(node.shape) if gradient is None else (vectors * gradient).sum(-1)
                is_label = (node >= 0).numpy()
                place = nodes[node.numpy()[is_label]]
                score[place] = np.nan_to_num(score[place]) + weight * product.double().cpu().numpy()[is_label]
    return score


def _batches(
    model: Model, examples: Examples, chosen: NDArray[np.int64], numbers: NDArray[np.int64]
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches in which each node has a row of its own, in evaluation mode, with the columns of their answers."""
    loader = model.loader(examples, numbers, BatchOptions(_BATCH_SIZE, share_subtrees=False))
    # On a GPU the backward pass of torch's LSTM needs training mode, unless cuDNN is off.
    with in_evaluation_mode(model), torch.backends.cudnn.flags(enabled=False):
        for batch in loader.batches():
            yield batch.to(model.device), torch.from_numpy(chosen[batch.example_ids]).to(model.device)


class _Scaled:
    """Reads the vectors of labels times a factor, those of punctuation as they are, and keeps them for gradients."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.read: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, vectors: Tensor, node: Tensor) -> Tensor:
        is_label = to_device(node >= 0, vectors.device)[..., None]
        vectors = vectors.detach()
        scaled = torch.where(is_label, self.factor * vectors, vectors).requires_grad_(torch.is_grad_enabled())
        self.read.append((vectors, scaled, node))
        return scaled


def _values(model: Model, batch: Batch, column: Tensor, change: _Scaled) -> Tensor:
    """Return the value of the explained answers with changed vectors, ``[examples]``."""
    encoded = model.encoder(batch, change_vectors=change)
    kept = model.task.kept(ModelOutput(model.head(encoded), encoded), batch, {})
    return model.task.answer_scores(kept).gather(1, column[:, None])[:, 0]
