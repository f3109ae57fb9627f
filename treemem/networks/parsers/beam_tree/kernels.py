"""The search with a beam in Triton: the choices of a step, and what is composed.

Nodes, pairs and compositions have numbers; see ``search.py``. ``width`` is ``longest - 1``, the most pairs of a beam.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _next(values, left, bottom, rounding, column, SIZE: tl.constexpr):
    """The next place of each row in the order of ``engines.choices.highest``.

    Args:
        values: ``[rows, SIZE]``.
        left: where values are that have not been taken.
        bottom: the lowest of the values that count as equal; infinity at first.
        rounding: how far apart values may be that follow each other and count as equal.

    Returns:
        The place, and ``bottom``, ``[rows, 1]``.
    """
    is_empty = tl.max((left & (values >= bottom)).to(tl.int32), 1, keep_dims=True) == 0
    bottom = tl.where(is_empty, tl.max(tl.where(left, values, float("-inf")), 1, keep_dims=True), bottom)
    lower = tl.min(tl.where(left & (values >= bottom - rounding), values, bottom), 1, keep_dims=True)
    while tl.max((lower < bottom).to(tl.int32)) > 0:
        bottom = lower
        lower = tl.min(tl.where(left & (values >= bottom - rounding), values, bottom), 1, keep_dims=True)
    return tl.min(tl.where(left & (values >= bottom), column, SIZE), 1, keep_dims=True), bottom


@triton.jit(
    do_not_specialize=[
        "step", "beams", "picks", "new_beams", "going_on", "first_group", "next_group", "first_node", "first_pair",
        "num_leaves", "longest",
    ],
    do_not_specialize_on_alignment=["noise", "candidate_noise", "parents", "places"],
)  # fmt: skip
def choose(
    step, beams, picks, new_beams, going_on, first_group, next_group, first_node, first_pair, num_leaves, longest,
    lengths, nodes, nodes_after, groups, scores, totals, totals_after, noise, candidate_noise, parents, places,
    children, pairs, states, inputs, lineage, lineage_after, origins, origins_after,
    last_nodes, last_totals, last_lineage, last_origins,
    BY_CHILDREN: tl.constexpr, MOST: tl.constexpr, BEAMS: tl.constexpr, LONGEST: tl.constexpr,
    ROUNDING: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Choose the new beams of a sequence, and gather what the next compositions multiply.

    Args:
        step: from 0.
        beams, picks, new_beams: how many there are, how many pairs each proposes, how many follow.
        going_on: how many sequences have another step.
        first_group, next_group: where the pairs of this and of the next step begin.
        first_node, first_pair: the first numbers of new nodes and pairs.
        lengths: int64 ``[sequences]``.
        nodes, nodes_after: of the beams, int64 ``[sequences, MOST, longest]``.
        groups: pairs of each beam of each step, int64 ``[groups, width]``; -1 is padding.
        scores: of pairs.
        totals, totals_after: log probabilities of the beams, ``[sequences, MOST]``.
        noise, candidate_noise: ``[sequences, beams, pairs]`` and ``[sequences, beams, picks]``; or None.
        parents, places: get the beam and the pair of each new beam, int64 ``[sequences, new_beams]``.
        children: of compositions, int64 ``[compositions, 2]``; get those of the new ones, if pairs are scored by their
            children.
        pairs: nodes of pairs, int64 ``[pairs, 2]``.
        states: of nodes, ``[nodes, H]``.
        inputs: what compositions multiply, ``[compositions, 2 * H]``.
        lineage, lineage_after: the choices of each beam, int64 ``[sequences, MOST, width]``: places in ``groups``.
        origins, origins_after: with which beam each began, int64 ``[sequences, MOST]``.
        last_nodes, last_totals, last_lineage, last_origins: get what the last beams have.
        BY_CHILDREN: whether pairs are scored by their children.
        MOST: number of beams.
    """
    sequence, width = tl.program_id(0).to(tl.int64), longest - 1
    num_pairs, count = width - step, tl.load(lengths + sequence) - 1 - step
    beam, column = tl.arange(0, BEAMS)[:, None], tl.arange(0, LONGEST)[None, :]
    pick = tl.arange(0, BEAMS)[None, :]
    is_beam = beam < beams
    there, group = is_beam & (column < count), first_group + sequence * beams + beam
    score = tl.load(scores + tl.load(groups + group * width + column, there, 0), there, float("-inf"))
    score = score - tl.where(is_beam, tl.max(score, 1, keep_dims=True), 0.0)
    log_probability = score - tl.log(tl.where(is_beam, tl.sum(tl.exp(score), 1, keep_dims=True), 1.0))
    ranked = log_probability
    left = is_beam & (column < num_pairs)
    if noise is not None:
        ranked += tl.load(noise + (sequence * beams + beam) * num_pairs + column, left, 0.0)
    rounding = ROUNDING * tl.max(tl.where(there, tl.abs(ranked), 0.0), 1, keep_dims=True)
    bottom = tl.full([BEAMS, 1], float("inf"), score.dtype)
    of_picks = tl.zeros([BEAMS, BEAMS], tl.int32)
    candidates = tl.full([BEAMS, BEAMS], float("-inf"), score.dtype)
    total = tl.load(totals + sequence * MOST + beam, is_beam, float("-inf"))
    for at in range(picks):
        place, bottom = _next(ranked, left, bottom, rounding, column, LONGEST)
        left = left & (column != place)
        own = tl.sum(tl.where((column == place) & there, log_probability, 0.0), 1, keep_dims=True)
        of_picks = tl.where(pick == at, place, of_picks)
        candidates = tl.where((pick == at) & (place < count), total + own, candidates)

    # Candidates in one row. If there are no more than beams, they stay in their order.
    number = tl.arange(0, BEAMS * BEAMS)[None, :]
    is_candidate = (number // BEAMS < beams) & (number % BEAMS < picks)
    candidates, of_picks = tl.reshape(candidates, [1, BEAMS * BEAMS]), tl.reshape(of_picks, [1, BEAMS * BEAMS])
    is_present = is_candidate & (candidates != float("-inf"))
    ranks = candidates
    if candidate_noise is not None:
        at_noise = candidate_noise + (sequence * beams + number // BEAMS) * picks + number % BEAMS
        ranks += tl.load(at_noise, is_candidate, 0.0)
    are_few = tl.sum(is_present.to(tl.int32), 1, keep_dims=True) <= MOST
    ranks = tl.where(are_few & is_present, 0.0, ranks)
    lowest = tl.full([1, 1], float("inf"), score.dtype)
    of_candidates = ROUNDING * tl.max(tl.where(is_present, tl.abs(ranks), 0.0), 1, keep_dims=True)
    parent, place = tl.zeros([BEAMS, 1], tl.int32), tl.zeros([BEAMS, 1], tl.int32)
    total = tl.full([BEAMS, 1], float("-inf"), score.dtype)
    for new in range(new_beams):
        taken, lowest = _next(ranks, is_candidate, lowest, of_candidates, number, BEAMS * BEAMS)
        is_candidate = is_candidate & (number != taken)
        is_taken = number == taken
        parent = tl.where(beam == new, tl.minimum(taken // BEAMS, beams - 1), parent)
        place = tl.where(beam == new, tl.sum(tl.where(is_taken, of_picks, 0), 1, keep_dims=True), place)
        total = tl.where(beam == new, tl.sum(tl.where(is_taken, candidates, 0.0), 1, keep_dims=True), total)
    place = tl.minimum(place, num_pairs - 1)

    # The numbers of the new beams.
    is_new = beam < new_beams
    is_last = is_new & (count == 1)
    row, of_beam = sequence * new_beams + beam, sequence * MOST + beam
    old_group, old_beam = first_group + sequence * beams + parent, sequence * MOST + parent
    old_pairs, old_nodes = groups + old_group * width, nodes + old_beam * longest
    tl.store(parents + row, parent.to(tl.int64), is_new)
    tl.store(places + row, place.to(tl.int64), is_new)
    tl.store(totals_after + of_beam, total, is_new)
    composed = first_node + row
    if not BY_CHILDREN:
        composed = num_leaves + tl.maximum(tl.load(old_pairs + place, is_new, 0), 0)
    is_node = is_new & (column < num_pairs)
    after = tl.load(old_nodes + column + (column > place), is_node, 0)
    tl.store(nodes_after + of_beam * longest + column, tl.where(column == place, composed, after), is_node)
    origin = tl.load(origins + old_beam, is_new, 0)
    tl.store(origins_after + of_beam, origin, is_new)
    choices = tl.load(lineage + old_beam * width + column, is_new & (column < step), 0)
    choices = tl.where(column == step, old_group * width + place, choices)
    tl.store(lineage_after + of_beam * width + column, choices, is_new & (column <= step))
    tl.store(last_lineage + of_beam * width + column, choices, is_last & (column <= step))
    tl.store(last_nodes + of_beam, composed, is_last)
    tl.store(last_totals + of_beam, total, is_last)
    tl.store(last_origins + of_beam, origin, is_last)

    # New pairs. At an end one of them is of nodes that are not adjacent; no choice sees it.
    has_pairs = is_new & (num_pairs > 1)
    on_left = tl.load(old_nodes + place - 1, has_pairs & (place > 0), 0)
    on_left = tl.where(place > 0, on_left, composed)
    has_right = place + 1 < num_pairs
    on_right = tl.where(has_right, tl.load(old_nodes + place + 2, has_pairs & has_right, 0), composed)
    new_pair = first_pair + 2 * row
    tl.store(pairs + 2 * new_pair, on_left, has_pairs)
    tl.store(pairs + 2 * new_pair + 1, composed, has_pairs)
    tl.store(pairs + 2 * new_pair + 2, composed, has_pairs)
    tl.store(pairs + 2 * new_pair + 3, on_right, has_pairs)
    follows = tl.load(old_pairs + column + (column > place), is_new & (column + 1 < count), -1)
    follows = tl.where(column == place, new_pair + 1, tl.where(column == place - 1, new_pair, follows))
    follows = tl.where(column + 1 < count, follows, -1)
    goes_on = is_new & (sequence < going_on) & (column < width)
    tl.store(groups + (next_group + row) * width + column, follows, goes_on)

    d = tl.arange(0, BLOCK)[None, :]
    if BY_CHILDREN:
        wide = is_new & (d < H)
        made = first_node - num_leaves + row
        left_child, right_child = tl.load(old_nodes + place, is_new, 0), tl.load(old_nodes + place + 1, is_new, 0)
        tl.store(children + 2 * made, left_child, is_new)
        tl.store(children + 2 * made + 1, right_child, is_new)
        tl.store(inputs + made * 2 * H + d, tl.load(states + left_child * H + d, wide, 0.0), wide)
        tl.store(inputs + made * 2 * H + H + d, tl.load(states + right_child * H + d, wide, 0.0), wide)
    else:
        wide = has_pairs & (d < H)
        of_composed, of_pair = tl.load(states + composed * H + d, wide, 0.0), inputs + new_pair * 2 * H + d
        tl.store(of_pair, tl.load(states + on_left * H + d, wide, 0.0), wide)
        tl.store(of_pair + H, of_composed, wide)
        tl.store(of_pair + 2 * H, of_composed, wide)
        tl.store(of_pair + 3 * H, tl.load(states + on_right * H + d, wide, 0.0), wide)


@triton.jit(do_not_specialize=["first", "first_pair", "num_leaves"])
def compose(
    first, first_pair, num_leaves, gates, children, states, gain, shift, pairs, scored, weight, bias, scores,
    H: tl.constexpr, BLOCK: tl.constexpr, SCORED: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take the step of a composition; score it, or gather what scores the two pairs that it is in.

    Args:
        first: the composition of the first program.
        first_pair: the first of its pairs.
        gates: preactivations of the compositions, ``[programs, 4 * H]``.
        children, states, pairs, scores: see :func:`choose`.
        gain, shift: of the layer norm.
        scored: gets the first entries of the nodes of each pair, ``[2 * programs, 2 * SCORED]``; or None.
        weight, bias: of the score of a composition; or None.
    """
    program = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)[None, :]
    wide = d < H
    gate = gates + program * 4 * H + d
    products = (
        tl.load(gate, wide, 0.0),
        tl.load(gate + H, wide, 0.0),
        tl.load(gate + 2 * H, wide, 0.0),
        tl.load(gate + 3 * H, wide, 0.0),
    )
    composition = first + program
    left = tl.load(states + tl.load(children + 2 * composition) * H + d, wide, 0.0)
    right = tl.load(states + tl.load(children + 2 * composition + 1) * H + d, wide, 0.0)
    norm = tl.load(gain + d, wide, 0.0), tl.load(shift + d, wide, 0.0)
    results = STEP(products, (left, right), (), norm, wide, H)
    h = results[0]
    tl.store(states + (num_leaves + composition) * H + d, h, wide)
    if weight is not None:
        score = tl.sum(tl.where(wide, h * tl.load(weight + d, wide, 0.0), 0.0), 1) + tl.load(bias)
        tl.store(scores + composition + tl.arange(0, 1), score)
    if scored is not None:
        is_scored = d < SCORED
        pair = pairs + 2 * (first_pair + 2 * program)
        on_left, on_right = tl.load(pair), tl.load(pair + 3)
        row = scored + 4 * program * SCORED + d
        tl.store(row, tl.load(states + on_left * H + d, is_scored, 0.0), is_scored)
        tl.store(row + SCORED, h, is_scored)
        tl.store(row + 2 * SCORED, h, is_scored)
        tl.store(row + 3 * SCORED, tl.load(states + on_right * H + d, is_scored, 0.0), is_scored)
