"""Parser and composition over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.engines.affine import Affine, linear
from treemem.engines.cell import Product, State
from treemem.engines.choices import Noise
from treemem.engines.product_input import children_in_order
from treemem.engines.propagate import run_rows
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import LongestFirst
from treemem.networks.parsers.disjoint_tree_lstm.equations import ParserWeights, naive_composition, naive_parse
from treemem.networks.parsers.disjoint_tree_lstm.plan import TreePlan
from treemem.networks.parsers.gumbel_tree_lstm.cuda import cuda_trees
from treemem.networks.parsers.native_pairs import native_pairs
from treemem.networks.trees.tree_lstm.equations import bounded_tree_lstm_step
from treemem.schedule.schedule import Schedule


class Choices(NamedTuple):
    """The steps of the parser, each ``[sequences, longest - 1]`` and 0 where there is no step.

    Attributes:
        log_probability: of the pair that was chosen.
        entropy: of the distribution over the pairs.
    """

    log_probability: torch.Tensor
    entropy: torch.Tensor


def choose_trees(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: ParserWeights,
    *,
    noise: Noise | None = None,
    engine: SequenceEngine = "auto",
) -> torch.Tensor:
    """Return the places of the pairs that the parser chooses, int64 ``[sequences, longest - 1]``.

    Choices have no gradients. A place counts the pairs of a step from 0; after the last step it is 0.

    Args:
        leaves: of the parser, ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``, on the right of each sequence
            padding of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of the parser.
        noise: is added to the scores: Gumbel noise gives a sample. Of a step and the sequences that still have a pair.
        engine: ``"fused"`` (``"auto"``), in C++ or kernels where they can be used, or ``"naive"``. They give the same
            results.
    """
    order, inner = LongestFirst(lengths, leaves.device), max(leaves.shape[1] - 1, 0)
    if not order.sizes:
        return order.lengths_there.new_zeros(len(leaves), inner)
    sorted_leaves = order.of(leaves)
    with torch.no_grad():
        places = None if engine == "naive" else _fast_places(sorted_leaves, order, weights, noise)
        if places is None:
            places = naive_parse(sorted_leaves, order, weights, noise=noise)[0]
    return order.back(places, inner)


def _fast_places(
    leaves: torch.Tensor, order: LongestFirst, weights: ParserWeights, noise: Noise | None
) -> torch.Tensor | None:
    """Parse in kernels or in C++; None if they cannot be used."""
    trees = cuda_trees(leaves, order, weights.cell, weights.query, None, noise, bounded=True)
    if trees is not None:
        return trees[2]
    given = leaves, order.lengths, order.sizes, weights.cell, weights.query
    native = native_pairs(*given, temperature=None, noise=noise, bounded=True)
    return None if native is None else native.tensors.places


def choices_of(
    leaves: torch.Tensor, plan: TreePlan, weights: ParserWeights, *, engine: SequenceEngine = "auto"
) -> Choices:
    """Return the log probabilities of the choices that make given trees, with gradients.

    Args:
        leaves, weights, engine: see :func:`choose_trees`.
        plan: the trees.
    """
    sequences, steps = plan.places.shape
    if not steps:
        return Choices(*leaves.new_zeros(2, sequences, 0))
    if engine == "naive":
        order = LongestFirst(plan.lengths, leaves.device)
        if not order.sizes:
            return Choices(*leaves.new_zeros(2, sequences, steps))
        _, *choices = naive_parse(order.of(leaves), order, weights, given=order.of(plan.places))
        return Choices(*(order.back(choice, steps) for choice in choices))
    flat = leaves.reshape(-1, leaves.shape[2])
    hidden = compose_levels(flat, plan.pairs, weights.cell)["h"]
    scores = functional.pad(hidden @ weights.query, (0, 1), value=-torch.inf)
    log_probability = scores[plan.candidates].log_softmax(1)
    chosen = log_probability.gather(1, plan.places.take(plan.choices)[:, None]).squeeze(1)
    log_probability = log_probability.masked_fill(plan.candidates == len(hidden), 0)
    entropy = -(log_probability.exp() * log_probability).sum(1)
    nothing = leaves.new_zeros(sequences * steps)
    return Choices(*(nothing.index_copy(0, plan.choices, part).view(sequences, steps) for part in (chosen, entropy)))


def compose_trees(
    leaves: torch.Tensor, plan: TreePlan, cell: Affine, *, engine: SequenceEngine = "auto"
) -> torch.Tensor:
    """Return the roots ``[h; c]`` of given trees, ``[sequences, 2 * hidden_size]``; 0 for an empty sequence.

    Args:
        leaves: of the composition, ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``.
        plan: the trees.
        cell: of the composition.
        engine: see :func:`choose_trees`.
    """
    order = LongestFirst(plan.lengths, leaves.device)
    if not order.sizes:
        return leaves.new_zeros(leaves.shape[0], leaves.shape[2])
    if engine == "naive":
        return order.back(naive_composition(order.of(leaves), order, cell, order.of(plan.places)))
    states = compose_levels(leaves.reshape(-1, leaves.shape[2]), plan.trees, cell)
    roots = torch.cat([states[name].index_select(0, plan.trees.row_of_root) for name in ("h", "c")], 1)
    return roots.masked_fill(to_device(plan.lengths == 0, leaves.device)[:, None], 0)


def compose_levels(leaves: torch.Tensor, schedule: Schedule, cell: Affine) -> State:
    """Return ``h`` and ``c`` of all rows, each ``[rows, hidden_size]``.

    Args:
        leaves: ``[h; c]``, ``[leaf rows, 2 * hidden_size]``.
        schedule: the rows; inner ones have two children.
        cell: see ``compose``, which is bounded.
    """
    return run_rows(_Cell(cell), schedule, leaves)


class _Cell(torch.nn.Module):
    """Leaves are their inputs; inner nodes are composed as by ``compose``."""

    def __init__(self, cell: Affine) -> None:
        super().__init__()
        self._cell = cell

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        hidden, cell = x.chunk(2, 1)
        return {"h": hidden, "c": cell}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return self.step({"gates": linear(children["h"].flatten(1), self._cell)}, children)

    def products(self, arity: int) -> tuple[Product, ...]:
        return (Product("gates", "gates", children_in_order, None),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"gates": (self._cell.weight[None], self._cell.bias[None])}

    def step(self, products: State, children: State) -> State:
        return bounded_tree_lstm_step(products, children)

    def formula_key(self) -> str:
        return "disjoint Tree-LSTM"
