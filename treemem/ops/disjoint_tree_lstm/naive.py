"""Parser and composition as published, over one sequence."""

from __future__ import annotations

import torch

from treemem.ops.affine import Affine
from treemem.ops.choices import Noise, first_highest
from treemem.ops.disjoint_tree_lstm.weights import ParserWeights, compose


def naive_parse(
    leaves: torch.Tensor, weights: ParserWeights, noise: Noise | None = None, given: list[int] | None = None
) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """Choose pair after pair.

    Args:
        leaves: of the parser, ``[tokens, 2 * hidden_size]``, at least one.
        weights: of the parser.
        noise: is added to the scores before a choice; of a step with more than one pair.
        given: the places of the pairs to choose.

    Returns:
        The places of the chosen pairs, and the log probability of each choice and the entropy of its distribution,
        ``[tokens - 1]``.
    """
    nodes = leaves
    places: list[int] = []
    log_probabilities, entropies = [leaves.new_zeros(0)], [leaves.new_zeros(0)]
    for num_pairs in range(len(leaves) - 1, 0, -1):
        composed = compose(nodes[:-1], nodes[1:], weights.cell)
        scores = composed.chunk(2, 1)[0] @ weights.query
        if given is not None:
            place = given[len(places)]
        else:
            noisy = scores if noise is None or num_pairs == 1 else scores + noise((1, num_pairs))[0]
            place = int(first_highest(noisy))
        log_probability = scores.log_softmax(0)
        log_probabilities.append(log_probability[place, None])
        entropies.append(-(log_probability.exp() * log_probability).sum(0, keepdim=True))
        nodes = torch.cat([nodes[:place], composed[place, None], nodes[place + 2 :]])
        places.append(place)
    return places, torch.cat(log_probabilities), torch.cat(entropies)


def naive_composition(leaves: torch.Tensor, cell: Affine, places: list[int]) -> torch.Tensor:
    """Return the root ``[2 * hidden_size]`` of the pairs at ``places``, of leaves ``[tokens, 2 * hidden_size]``."""
    nodes = list(leaves.split(1))
    for place in places:
        nodes[place : place + 2] = [compose(nodes[place], nodes[place + 1], cell)]
    return nodes[0][0]
