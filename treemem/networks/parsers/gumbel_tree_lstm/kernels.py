"""Pairs of nodes in Triton: composed, scored, chosen; and all of it backwards.

Nodes and pairs have numbers. Leaves are the first nodes, and pair ``p`` becomes the node ``num_leaves + p``. A node has
a row ``[h; c]``. A pair is composed once, when its children are known.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treemem.engines.cuda.functions import running_sums


@triton.jit
def _gates_and_cells(pair, gates, children, states, d, wide, H: tl.constexpr):
    """The preactivations of a pair, and ``c`` of its children."""
    gate, cell = gates + pair * 5 * H + d, states + H + d
    products = (
        tl.load(gate, wide, 0.0),
        tl.load(gate + H, wide, 0.0),
        tl.load(gate + 2 * H, wide, 0.0),
        tl.load(gate + 3 * H, wide, 0.0),
        tl.load(gate + 4 * H, wide, 0.0),
    )
    left = tl.load(cell + tl.load(children + 2 * pair) * 2 * H, wide, 0.0)
    right = tl.load(cell + tl.load(children + 2 * pair + 1) * 2 * H, wide, 0.0)
    return products, (0.0, 0.0, left, right)


@triton.jit(do_not_specialize=["first", "num_leaves"])
def compose(
    first, gates, children, states, query, scores, num_leaves,
    H: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take the step of a pair and score it.

    Args:
        first: the pair of the first program.
        gates: preactivations of the cell, ``[pairs, 5 * H]``.
        children: int64 ``[pairs, 2]``.
        states: of all nodes, ``[nodes, 2 * H]``.
        query: of the scores, ``[H]``.
        scores: of all pairs.
    """
    pair = (first + tl.program_id(0)).to(tl.int64)
    d = tl.arange(0, BLOCK)[None, :]
    wide = d < H
    products, of_children = _gates_and_cells(pair, gates, children, states, d, wide, H)
    h, c = STEP(products, of_children, (), (), wide, H)
    node = states + (num_leaves + pair) * 2 * H + d
    tl.store(node, h, wide)
    tl.store(node + H, c, wide)
    score = tl.sum(tl.where(wide, h * tl.load(query + d, wide, 0.0), 0.0), 1)
    tl.store(scores + pair + tl.arange(0, 1), score)


@triton.jit(do_not_specialize=["num_leaves"])
def pair_gradients(
    gates, children, states, query, d_scores, d_pairs, d_gates, d_cells, num_leaves,
    H: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take the step of a pair backwards.

    Args:
        d_scores: gradients of the pairs' scores; None: 1.
        d_pairs: gradients of the pairs' states that do not come from their scores, ``[pairs, 2 * H]``; or None.
        d_gates: gets those of the preactivations.
        d_cells: gets those of ``c`` of the children, ``[pairs, 2 * H]``; or None.
    """
    pair = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)[None, :]
    wide = d < H
    d_h = tl.load(query + d, wide, 0.0)
    d_c = 0 * d_h
    if d_scores is not None:
        d_h = d_h * tl.load(d_scores + pair)
    if d_pairs is not None:
        d_h += tl.load(d_pairs + pair * 2 * H + d, wide, 0.0)
        d_c += tl.load(d_pairs + pair * 2 * H + H + d, wide, 0.0)
    _step_backward(pair, pair, gates, children, states, d_h, d_c, d_gates, d_cells, num_leaves, d, wide, H, STEP)


@triton.jit
def _step_backward(
    pair, row, gates, children, states, d_h, d_c, d_gates, d_cells, num_leaves, d, wide,
    H: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Leave the gradients of preactivations and cells in a row."""
    products, of_children = _gates_and_cells(pair, gates, children, states, d, wide, H)
    cell = tl.load(states + (num_leaves + pair) * 2 * H + H + d, wide, 0.0)
    enter, forget_left, forget_right, output, update, _, _, left, right = STEP(
        products, of_children, (), (), (0.0, cell), (d_h, d_c), wide, H
    )
    d_gate = d_gates + row * 5 * H + d
    tl.store(d_gate, enter, wide)
    tl.store(d_gate + H, forget_left, wide)
    tl.store(d_gate + 2 * H, forget_right, wide)
    tl.store(d_gate + 3 * H, output, wide)
    tl.store(d_gate + 4 * H, update, wide)
    if d_cells is not None:
        tl.store(d_cells + row * 2 * H + d, left, wide)
        tl.store(d_cells + row * 2 * H + H + d, right, wide)


@triton.jit(
    do_not_specialize=["step", "first", "going_on", "num_leaves", "longest"],
    do_not_specialize_on_alignment=["nodes", "nodes_after", "pairs", "pairs_after", "noise", "probability"],
)
def choose(
    step, first, going_on, lengths, nodes, nodes_after, pairs, pairs_after, children, states, scores, noise,
    probability, places, chosen, compositions, roots, inputs, num_leaves, longest, temperature,
    H: tl.constexpr, BLOCK: tl.constexpr, LONGEST: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    """Choose a pair of a sequence, and gather what the two pairs around it multiply.

    Args:
        step: from 1.
        first: the first number of a new pair; each sequence has two.
        going_on: how many sequences have pairs after the choice.
        lengths: int64 ``[sequences]``.
        nodes, nodes_after: from left to right, int64 ``[sequences, longest]``, before and after the choice.
        pairs, pairs_after: pairs of adjacent nodes.
        noise, probability: of the pairs, ``[sequences, longest - step]``; or None.
        places, chosen: get the place and the pair, int64 ``[sequences, longest - 1]``.
        compositions: gets the state, ``[sequences, longest - 1, 2 * H]``.
        roots: gets it if it is the last one, ``[sequences, 2 * H]``.
        inputs: what the cell multiplies, ``[pairs, 2 * H]``.
        temperature: of the probability, one number; or None.
        ROUNDING: how far apart scores may be by rounding alone, as a part of the largest one.
    """
    sequence = tl.program_id(0).to(tl.int64)
    count = tl.load(lengths + sequence) - step
    i = tl.arange(0, LONGEST)
    there = i < count
    nodes += sequence * longest
    pairs += sequence * longest
    pair = tl.load(pairs + i, there, 0)
    score = tl.load(scores + pair, there, float("-inf"))
    if noise is not None:
        score += tl.load(noise + sequence * (longest - step) + i, there, 0.0)
    highest = tl.max(score, 0)
    rounding = ROUNDING * tl.max(tl.where(there, tl.abs(score), 0.0), 0)
    place = tl.min(tl.where(there & (score >= highest - rounding), i, LONGEST), 0)
    place = tl.where(place < LONGEST, place, 0)
    if probability is not None:
        weight = tl.where(there, tl.exp((score - highest) / tl.load(temperature)), 0.0)
        tl.store(probability + sequence * (longest - step) + i, weight / tl.sum(weight, 0), there)
    taken = tl.sum(tl.where(i == place, pair, 0), 0)
    own = num_leaves + taken
    at = sequence * (longest - 1) + step - 1
    tl.store(places + at, place)
    tl.store(chosen + at, taken)
    tl.store(
        nodes_after + sequence * longest + i,
        tl.where(i == place, own, tl.load(nodes + i + (i > place), there, 0)),
        there,
    )
    new = first + 2 * sequence
    after = tl.load(pairs + i + (i > place), i + 1 < count, 0)
    after = tl.where(i == place, new + 1, tl.where(i == place - 1, new, after))
    tl.store(pairs_after + sequence * longest + i, after, i + 1 < count)
    # At an end one of the new pairs is of nodes that are not adjacent. No choice sees it.
    left, right = tl.load(nodes + tl.maximum(place - 1, 0)), tl.load(nodes + tl.minimum(place + 2, count))
    goes_on = sequence < going_on
    tl.store(children + 2 * new, left, goes_on)
    tl.store(children + 2 * new + 1, own, goes_on)
    tl.store(children + 2 * new + 2, own, goes_on)
    tl.store(children + 2 * new + 3, right, goes_on)
    d = tl.arange(0, BLOCK)
    wide = d < H
    h, c = tl.load(states + own * 2 * H + d, wide, 0.0), tl.load(states + own * 2 * H + H + d, wide, 0.0)
    tl.store(compositions + at * 2 * H + d, h, wide)
    tl.store(compositions + at * 2 * H + H + d, c, wide)
    tl.store(roots + sequence * 2 * H + d, h, wide & (count == 1))
    tl.store(roots + sequence * 2 * H + H + d, c, wide & (count == 1))
    of_pairs = inputs + new * 2 * H + d
    tl.store(of_pairs, tl.load(states + left * 2 * H + d, wide, 0.0), wide & goes_on)
    tl.store(of_pairs + H, h, wide & goes_on)
    tl.store(of_pairs + 2 * H, h, wide & goes_on)
    tl.store(of_pairs + 3 * H, tl.load(states + right * 2 * H + d, wide, 0.0), wide & goes_on)


@triton.jit(
    do_not_specialize=["step", "num_leaves", "longest"],
    do_not_specialize_on_alignment=["nodes", "nodes_after", "pairs", "probability"],
)
def choice_backward(
    step, lengths, nodes, nodes_after, pairs, children, states, gates, chosen, probability, of_h, of_c,
    d_states, d_roots, d_compositions, d_scores, d_pairs, d_gates, d_cells, scratch, num_leaves, longest, temperature,
    H: tl.constexpr, BLOCK: tl.constexpr, LONGEST: tl.constexpr, PART: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take a choice backwards, and the step of the pair that was chosen.

    Args:
        of_h, of_c: gradients of ``h`` and ``c`` of the children by the pair's score, ``[pairs, 2 * H]``; None if
            choices have no gradients.
        d_states: gradients of the nodes; those of the scores' children are added.
        d_roots: of the roots, ``[sequences, 2 * H]``, or None.
        d_compositions: of the compositions, ``[sequences, longest - 1, 2 * H]``, or None.
        d_scores: of the scores; are added.
        d_pairs: gets the gradient of the pair's state, ``[pairs, 2 * H]``.
        d_gates, d_cells: get those of its preactivations, and of ``c`` of its children, ``[sequences, ...]``.
        scratch: ``[sequences, longest]``.
        PART: so many numbers of all nodes are read at a time.
    """
    sequence = tl.program_id(0).to(tl.int64)
    count = tl.load(lengths + sequence) - step
    at = sequence * (longest - 1) + step - 1
    taken = tl.load(chosen + at)
    d = tl.arange(0, BLOCK)[None, :]
    wide = d < H
    own = d_states + (num_leaves + taken) * 2 * H + d
    d_h, d_c = tl.load(own, wide, 0.0), tl.load(own + H, wide, 0.0)
    if d_roots is not None:
        is_root = wide & (count == 1)
        d_h += tl.load(d_roots + sequence * 2 * H + d, is_root, 0.0)
        d_c += tl.load(d_roots + sequence * 2 * H + H + d, is_root, 0.0)
    if d_compositions is not None:
        d_h += tl.load(d_compositions + at * 2 * H + d, wide, 0.0)
        d_c += tl.load(d_compositions + at * 2 * H + H + d, wide, 0.0)
    tl.store(d_pairs + taken * 2 * H + d, d_h, wide)
    tl.store(d_pairs + taken * 2 * H + H + d, d_c, wide)
    _step_backward(taken, sequence, gates, children, states, d_h, d_c, d_gates, d_cells, num_leaves, d, wide, H, STEP)
    if of_h is not None:
        i = tl.arange(0, LONGEST)[:, None]
        there = i < count
        nodes += sequence * longest
        pairs += sequence * longest
        pair, after = tl.load(pairs + i, there, 0), tl.load(nodes_after + sequence * longest + i, there, 0)
        left, right = tl.load(nodes + i, there, 0), tl.load(nodes + i + 1, there, 0)
        of_composed = tl.zeros([LONGEST, 1], states.dtype.element_ty)
        stays, moves = of_composed, of_composed
        for begin in range(0, 2 * H, PART):
            k = begin + tl.arange(0, PART)[None, :]
            both = there & (k < 2 * H)
            gradient = tl.load(d_states + after * 2 * H + k, both, 0.0)
            composed = tl.load(states + (num_leaves + pair) * 2 * H + k, both, 0.0)
            of_node = gradient
            if d_compositions is not None:
                of_node += tl.load(d_compositions + at * 2 * H + k, k < 2 * H, 0.0)
            of_composed += tl.sum(of_node * composed, 1, keep_dims=True)
            stays += tl.sum(gradient * tl.load(states + left * 2 * H + k, both, 0.0), 1, keep_dims=True)
            moves += tl.sum(gradient * tl.load(states + right * 2 * H + k, both, 0.0), 1, keep_dims=True)
        d_choice = of_composed - stays + running_sums(stays - moves, 0)
        weight = tl.load(probability + sequence * (longest - step) + i, there, 0.0)
        d_score = weight * (d_choice - tl.sum(weight * d_choice, 0, keep_dims=True)) / tl.load(temperature)
        tl.store(d_scores + pair, tl.load(d_scores + pair, there, 0.0) + d_score, there)
        tl.store(scratch + sequence * longest + i, d_score, there)
        tl.debug_barrier()
        # A node is the left child of the pair at its place, and the right one of that before.
        is_left, is_right = there, (i > 0) & (i <= count)
        of_left = tl.load(scratch + sequence * longest + i, is_left, 0.0)
        of_right = tl.load(scratch + sequence * longest + i - 1, is_right, 0.0)
        before, node = tl.load(pairs + i - 1, is_right, 0), tl.load(nodes + i, i <= count, 0)
        for begin in range(0, H, PART):
            k = begin + tl.arange(0, PART)[None, :]
            both = (i <= count) & (k < H)
            at_left, at_right = pair * 2 * H + k, before * 2 * H + H + k
            d_node = d_states + node * 2 * H + k
            to_h = of_left * tl.load(of_h + at_left, both, 0.0) + of_right * tl.load(of_h + at_right, both, 0.0)
            to_c = of_left * tl.load(of_c + at_left, both, 0.0) + of_right * tl.load(of_c + at_right, both, 0.0)
            tl.store(d_node, tl.load(d_node, both, 0.0) + to_h, both)
            tl.store(d_node + H, tl.load(d_node + H, both, 0.0) + to_c, both)


@triton.jit(do_not_specialize=["step", "longest"])
def add_to_children(step, children, chosen, d_hidden, d_cells, d_states, longest, H: tl.constexpr, BLOCK: tl.constexpr):
    """Add gradients of ``h`` and ``c``, ``[sequences, 2 * H]`` each, to those of the children of what was chosen."""
    sequence, child = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pair = tl.load(chosen + sequence * (longest - 1) + step - 1)
    d = tl.arange(0, BLOCK)
    wide = d < H
    node = d_states + tl.load(children + 2 * pair + child) * 2 * H + d
    row = sequence * 2 * H + child * H + d
    tl.store(node, tl.load(node, wide, 0.0) + tl.load(d_hidden + row, wide, 0.0), wide)
    tl.store(node + H, tl.load(node + H, wide, 0.0) + tl.load(d_cells + row, wide, 0.0), wide)
