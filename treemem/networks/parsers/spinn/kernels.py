"""Transitions in Triton: all steps in one launch; each program takes a sequence.

The weights fit into caches. What one thread writes and others read goes through memory, with barriers between. Nodes
have numbers in all sequences, ``2 * longest`` in each: leaves, compositions, and the empty node, which stands where
there is nothing and is 0. ``CELL`` and ``TRACKER`` are printed steps.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _product(weight, width, begin, output, there, vector, d, wide):
    """``weight[output, begin:] @ vector``, a block ``[outputs, 1]``; ``weight`` is ``[..., width]``."""
    of_weight = tl.load(weight + output * width + begin + d, there & wide, 0.0)
    return tl.sum(of_weight * vector, 1, keep_dims=True)


@triton.jit
def _back(weight, width, begin, vector, OUTPUTS: tl.constexpr, d, wide, TILE: tl.constexpr):
    """``vector @ weight[:, begin:]``, a block ``[1, positions]``; the vector is in memory."""
    total = tl.where(wide, 0.0, 0.0).to(vector.dtype.element_ty)
    for first in range(0, OUTPUTS, TILE):
        output = first + tl.arange(0, TILE)[:, None]
        there = output < OUTPUTS
        of_weight = tl.load(weight + output * width + begin + d, there & wide, 0.0)
        total += tl.sum(of_weight * tl.load(vector + output, there, 0.0), 0, keep_dims=True)
    return total


@triton.jit
def _four(pointer, size, d, wide):
    """Four vectors that follow each other."""
    return (
        tl.load(pointer + d, wide, 0.0),
        tl.load(pointer + size + d, wide, 0.0),
        tl.load(pointer + 2 * size + d, wide, 0.0),
        tl.load(pointer + 3 * size + d, wide, 0.0),
    )


@triton.jit(do_not_specialize=["longest"])
def transitions(
    lengths, given, uniform, temperature, cell, cell_bias, inputs, inputs_bias, lateral, to_cell, transition,
    transition_bias, node_states, gates, tracked, tracker_gates, actions, chosen, tops, made_of, stack, roots, last,
    longest,
    H: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr, OF_TRACKER: tl.constexpr, TILE: tl.constexpr,
    CELL: tl.constexpr, TRACKER: tl.constexpr,
):  # fmt: skip
    """Run a sequence forwards.

    Args:
        lengths: int64 ``[sequences]``.
        given, uniform: transitions, int64, or uniform numbers, ``[sequences, steps]``; or None.
        temperature: of the choices, one number.
        cell, ..., transition_bias: see ``SPINNWeights`` and ``TrackerWeights``.
        node_states: ``[h; c]``, ``[sequences, 2 * longest, 2 * H]``, 0 but for the leaves; gets the compositions.
        gates: get the preactivations of compositions, ``[sequences, longest, 5 * H]``.
        tracked, tracker_gates: get ``[h; c]`` and preactivations of the tracker, ``[sequences, steps, ...]``.
        actions, chosen: get the transitions, int64 ``[sequences, steps]``.
        tops: get the top of the buffer and the two topmost node_states, int64 ``[sequences, steps, 3]``.
        made_of: gets the nodes and the step of compositions, int64 ``[sequences, longest, 3]``.
        stack: memory, int64 ``[sequences, longest + 2]``; two empty nodes lie at the bottom.
        roots, last: get the states of the roots, ``[sequences, 2 * H]``, and their numbers.
        H, T: widths of nodes and tracker; T is 0 without a tracker.
    """
    sequence, steps = tl.program_id(0).to(tl.int64), 2 * longest - 1
    length = tl.load(lengths + sequence)
    d, t = tl.arange(0, BLOCK)[None, :], tl.arange(0, OF_TRACKER)[None, :]
    wide, of_tracker = d < H, t < T
    leaf = sequence * 2 * longest
    empty = leaf + 2 * longest - 1
    stack += sequence * (longest + 2)
    tl.store(stack, empty)
    tl.store(stack + 1, empty)
    depth, taken, made = length * 0, length * 0, length * 0
    hidden = tl.zeros([1, OF_TRACKER], node_states.dtype.element_ty)
    memory = hidden
    for step in range(2 * length - 1):
        tl.debug_barrier()
        token = sequence * steps + step
        top = tl.where(taken < length, leaf + taken, empty)
        first, second = tl.load(stack + depth + 1), tl.load(stack + depth)
        tl.store(tops + 3 * token, top)
        tl.store(tops + 3 * token + 1, first)
        tl.store(tops + 3 * token + 2, second)
        right = tl.load(node_states + first * 2 * H + d, wide, 0.0)
        left = tl.load(node_states + second * 2 * H + d, wide, 0.0)
        if T:
            of_top = tl.load(node_states + top * 2 * H + d, wide, 0.0)
            for begin in range(0, 4 * T, TILE):
                output = begin + tl.arange(0, TILE)[:, None]
                there = output < 4 * T
                gate = tl.load(inputs_bias + output, there, 0.0)
                gate += _product(inputs, 3 * H, 0, output, there, of_top, d, wide)
                gate += _product(inputs, 3 * H, H, output, there, right, d, wide)
                gate += _product(inputs, 3 * H, 2 * H, output, there, left, d, wide)
                gate += _product(lateral, T, 0, output, there, hidden, t, of_tracker)
                tl.store(tracker_gates + token * 4 * T + output, gate, there)
            tl.debug_barrier()
            blocks = _four(tracker_gates + token * 4 * T, T, t, of_tracker)
            states = TRACKER(blocks, (hidden, memory), (), (), of_tracker, T)
            hidden, memory = tl.where(of_tracker, states[0], 0.0), tl.where(of_tracker, states[1], 0.0)
            tl.store(tracked + token * 2 * T + t, hidden, of_tracker)
            tl.store(tracked + token * 2 * T + T + t, memory, of_tracker)
        if given is not None:
            choice = tl.load(given + token)
        else:
            # The difference of the logits of reduce and shift.
            weight = tl.load(transition + 2 * T + t, of_tracker, 0.0) - tl.load(transition + t, of_tracker, 0.0)
            of_memory = tl.load(transition + 3 * T + t, of_tracker, 0.0)
            of_memory -= tl.load(transition + T + t, of_tracker, 0.0)
            logit = tl.sum(weight * hidden + of_memory * memory) + tl.load(transition_bias + 1)
            shift = 1 / (1 + tl.exp((logit - tl.load(transition_bias)) / tl.load(temperature)))
            above = 0 * shift + 0.5
            if uniform is not None:
                above = tl.load(uniform + token)
            choice = tl.where(above > shift, 1, 0).to(tl.int64)
        action = tl.where(depth < 2, 0, tl.where(taken < length, choice, 1))
        tl.store(chosen + token, choice)
        tl.store(actions + token, action)
        if action == 1:
            composition = sequence * longest + made
            for begin in range(0, 5 * H, TILE):
                output = begin + tl.arange(0, TILE)[:, None]
                there = output < 5 * H
                gate = tl.load(cell_bias + output, there, 0.0)
                gate += _product(cell, 2 * H, 0, output, there, left, d, wide)
                gate += _product(cell, 2 * H, H, output, there, right, d, wide)
                if T:
                    gate += _product(to_cell, T, 0, output, there, hidden, t, of_tracker)
                tl.store(gates + composition * 5 * H + output, gate, there)
            tl.debug_barrier()
            block = gates + composition * 5 * H
            products = _four(block, H, d, wide) + (tl.load(block + 4 * H + d, wide, 0.0),)
            of_left = tl.load(node_states + second * 2 * H + H + d, wide, 0.0)
            of_right = tl.load(node_states + first * 2 * H + H + d, wide, 0.0)
            h, c = CELL(products, (left, right, of_left, of_right), (), (), wide, H)
            node = node_states + (leaf + longest + made) * 2 * H + d
            tl.store(node, h, wide)
            tl.store(node + H, c, wide)
            tl.store(made_of + 3 * composition, second)
            tl.store(made_of + 3 * composition + 1, first)
            tl.store(made_of + 3 * composition + 2, token)
        reduces = action == 1
        tl.store(stack + tl.where(reduces, depth, depth + 2), tl.where(reduces, leaf + longest + made, leaf + taken))
        depth = depth + tl.where(reduces, -1, 1)
        made = made + tl.where(reduces, 1, 0)
        taken = taken + tl.where(reduces, 0, 1)
    tl.debug_barrier()
    root = tl.load(stack + 2)
    tl.store(last + sequence, root)
    tl.store(roots + sequence * 2 * H + d, tl.load(node_states + root * 2 * H + d, wide, 0.0), wide)
    tl.store(roots + sequence * 2 * H + H + d, tl.load(node_states + root * 2 * H + H + d, wide, 0.0), wide)


@triton.jit
def _add(pointer, value, mask):
    tl.store(pointer, tl.load(pointer, mask, 0.0) + value, mask)


@triton.jit(do_not_specialize=["longest"])
def transitions_backward(
    lengths, cell, inputs, lateral, to_cell, node_states, gates, tracked, tracker_gates, actions, tops,
    d_nodes, d_gates, d_tracked, d_tracker_gates, longest,
    H: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr, OF_TRACKER: tl.constexpr, TILE: tl.constexpr,
    CELL_BACKWARD: tl.constexpr, TRACKER_BACKWARD: tl.constexpr,
):  # fmt: skip
    """Run a sequence backwards.

    Args:
        lengths, ..., tops: as in the forward pass.
        d_nodes: gradients of the nodes; those of the roots come in.
        d_gates, d_tracker_gates: get those of preactivations; begin with 0.
        d_tracked: of the tracker's states; or None.
    """
    sequence, steps = tl.program_id(0).to(tl.int64), 2 * longest - 1
    length = tl.load(lengths + sequence)
    d, t = tl.arange(0, BLOCK)[None, :], tl.arange(0, OF_TRACKER)[None, :]
    wide, of_tracker = d < H, t < T
    leaf = sequence * 2 * longest
    made = length - 1
    d_hidden = tl.zeros([1, OF_TRACKER], node_states.dtype.element_ty)
    d_memory = d_hidden
    for back in range(2 * length - 1):
        step = 2 * length - 2 - back
        token = sequence * steps + step
        tl.debug_barrier()
        first, second = tl.load(tops + 3 * token + 1), tl.load(tops + 3 * token + 2)
        action = tl.load(actions + token)
        made = made - tl.where(action == 1, 1, 0)
        of_gates = d_gates + (sequence * longest + made) * 5 * H
        if action == 1:
            node = (leaf + longest + made) * 2 * H + d
            block = gates + (sequence * longest + made) * 5 * H
            products = _four(block, H, d, wide) + (tl.load(block + 4 * H + d, wide, 0.0),)
            of_left = tl.load(node_states + second * 2 * H + H + d, wide, 0.0)
            of_right = tl.load(node_states + first * 2 * H + H + d, wide, 0.0)
            states = 0.0, tl.load(node_states + node + H, wide, 0.0)
            d_states = tl.load(d_nodes + node, wide, 0.0), tl.load(d_nodes + node + H, wide, 0.0)
            gradients = CELL_BACKWARD(products, (0.0, 0.0, of_left, of_right), (), (), states, d_states, wide, H)
            for at in tl.static_range(5):
                tl.store(of_gates + at * H + d, gradients[at], wide)
            _add(d_nodes + second * 2 * H + H + d, gradients[7], wide)
            _add(d_nodes + first * 2 * H + H + d, gradients[8], wide)
            tl.debug_barrier()
            _add(d_nodes + second * 2 * H + d, _back(cell, 2 * H, 0, of_gates, 5 * H, d, wide, TILE), wide)
            _add(d_nodes + first * 2 * H + d, _back(cell, 2 * H, H, of_gates, 5 * H, d, wide, TILE), wide)
            if T:
                d_hidden += _back(to_cell, T, 0, of_gates, 5 * H, t, of_tracker, TILE)
        if T:
            if d_tracked is not None:
                d_hidden += tl.load(d_tracked + token * 2 * T + t, of_tracker, 0.0)
                d_memory += tl.load(d_tracked + token * 2 * T + T + t, of_tracker, 0.0)
            blocks = _four(tracker_gates + token * 4 * T, T, t, of_tracker)
            before = tl.load(tracked + (token - 1) * 2 * T + T + t, of_tracker & (step > 0), 0.0)
            after = tl.load(tracked + token * 2 * T + T + t, of_tracker, 0.0)
            of_states = TRACKER_BACKWARD(
                blocks, (0.0, before), (), (), (0.0, after), (d_hidden, d_memory), of_tracker, T
            )
            of_blocks = d_tracker_gates + token * 4 * T
            for at in tl.static_range(4):
                tl.store(of_blocks + at * T + t, of_states[at], of_tracker)
            d_memory = tl.where(of_tracker, of_states[5], 0.0)
            tl.debug_barrier()
            d_hidden = _back(lateral, T, 0, of_blocks, 4 * T, t, of_tracker, TILE)
            for at in tl.static_range(3):
                read = d_nodes + tl.load(tops + 3 * token + at) * 2 * H + d
                _add(read, _back(inputs, 3 * H, at * H, of_blocks, 4 * T, d, wide, TILE), wide)
