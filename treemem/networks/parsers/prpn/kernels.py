"""The reading network of a PRPN in Triton: all steps of a layer in one launch; each program takes a sequence.

The weights fit into caches. What one thread writes and others read goes through memory, with barriers between. The
steps are printed: ``SOFTMAX`` of the slots, as a block ``[1, slots]``, and ``STEP`` of the cell. A history has
``[h; c]`` of the tokens before the first one and of all tokens, ``[slots + longest, 2 * H]``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _multiply(weight, vector, start, result, d, OUTPUTS, H: tl.constexpr, TILE: tl.constexpr):
    """Set ``result = weight @ vector + start``; ``weight`` ``[OUTPUTS, H]``, ``vector`` a block ``[1, positions]``."""
    for first in range(0, OUTPUTS, TILE):
        output = first + tl.arange(0, TILE)[:, None]
        there = output < OUTPUTS
        of_weight = tl.load(weight + output * H + d, there & (d < H), 0.0)
        product = tl.sum(of_weight * vector, 1, keep_dims=True)
        tl.store(result + output, product + tl.load(start + output, there, 0.0), there)


@triton.jit
def _multiply_back(weight, vector, d, OUTPUTS, H: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Return ``vector @ weight`` as a block ``[1, positions]``; the vector is in memory."""
    total = tl.zeros([1, BLOCK], vector.dtype.element_ty)
    for first in range(0, OUTPUTS, TILE):
        output = first + tl.arange(0, TILE)[:, None]
        there = output < OUTPUTS
        of_weight = tl.load(weight + output * H + d, there & (d < H), 0.0)
        total += tl.sum(of_weight * tl.load(vector + output, there, 0.0), 0, keep_dims=True)
    return total


@triton.jit
def _four(pointer, d, wide, H: tl.constexpr):
    """Four vectors that follow each other."""
    return (
        tl.load(pointer + d, wide, 0.0),
        tl.load(pointer + H + d, wide, 0.0),
        tl.load(pointer + 2 * H + d, wide, 0.0),
        tl.load(pointer + 3 * H + d, wide, 0.0),
    )


@triton.jit
def _learned(hidden_gain, hidden_shift, cell_gain, cell_shift, d, wide, H: tl.constexpr):
    """Gains and shifts of the norms, vector by vector."""
    gains, shifts = _four(hidden_gain, d, wide, H), _four(hidden_shift, d, wide, H)
    return gains + shifts + (tl.load(cell_gain + d, wide, 0.0), tl.load(cell_shift + d, wide, 0.0))


@triton.jit(do_not_specialize=["longest"])
def read(
    of_gates, of_keys, gates, key_weight, hidden_weight, hidden_bias, hidden_gain, hidden_shift, cell_gain, cell_shift,
    history, keys, selected, recurrent, longest, scale,
    H: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, TILE: tl.constexpr,
    SOFTMAX: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Run a sequence forwards.

    Args:
        of_gates, of_keys, gates: see ``read_layer``, ``[sequences, longest, ...]``.
        key_weight, hidden_weight, hidden_bias, hidden_gain, hidden_shift, cell_gain, cell_shift: of the layer.
        history: has what is there before the first token, and gets the rest.
        keys, selected, recurrent: get the keys, ``h'`` and ``W h' + b`` of all tokens.
        scale: by what scores are multiplied, one number.
        H, K: width of ``h``, and number of slots.
    """
    sequence = tl.program_id(0).to(tl.int64)
    d, slot, place = tl.arange(0, BLOCK)[None, :], tl.arange(0, SLOTS)[:, None], tl.arange(0, SLOTS)[None, :]
    wide, both = d < H, (slot < K) & (d < H)
    history += sequence * (K + longest) * 2 * H
    learned = _learned(hidden_gain, hidden_shift, cell_gain, cell_shift, d, wide, H)
    for step in range(longest):
        token = sequence * longest + step
        tl.debug_barrier()
        before = tl.load(history + (K + step - 1) * 2 * H + d, wide, 0.0)
        _multiply(key_weight, before, of_keys + token * H, keys + token * H, d, H, H, TILE)
        tl.debug_barrier()
        memory = history + (step + slot) * 2 * H + d
        hidden, cells = tl.load(memory, both, 0.0), tl.load(memory + H, both, 0.0)
        key = tl.load(keys + token * H + d, wide, 0.0)
        scores = tl.trans(tl.sum(hidden * key, 1, keep_dims=True)) * tl.load(scale)
        gate = tl.load(gates + token * K + K - 1 - place, place < K, 0.0)
        weights = SOFTMAX((scores, gate), (), (), (), place < K, K)
        weight = tl.where(slot < K, tl.trans(weights[0]), 0.0)
        own_hidden = tl.sum(weight * hidden, 0, keep_dims=True)
        own_cell = tl.sum(weight * cells, 0, keep_dims=True)
        tl.store(selected + token * H + d, own_hidden, wide)
        _multiply(hidden_weight, own_hidden, hidden_bias, recurrent + token * 4 * H, d, 4 * H, H, TILE)
        tl.debug_barrier()
        products = _four(of_gates + token * 4 * H, d, wide, H) + _four(recurrent + token * 4 * H, d, wide, H)
        h, c = STEP(products, (0.0, own_cell), (), learned, wide, H)
        tl.store(history + (K + step) * 2 * H + d, h, wide)
        tl.store(history + (K + step) * 2 * H + H + d, c, wide)


@triton.jit(do_not_specialize=["longest"])
def read_backward(
    of_gates, gates, key_weight, hidden_weight, hidden_gain, hidden_shift, cell_gain, cell_shift,
    history, keys, recurrent, d_history, d_of_gates, d_keys, d_gates, d_recurrent, d_learned, longest, scale,
    H: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, TILE: tl.constexpr,
    SOFTMAX: tl.constexpr, SOFTMAX_BACKWARD: tl.constexpr, STEP_BACKWARD: tl.constexpr,
):  # fmt: skip
    """Run a sequence backwards.

    Args:
        d_history: comes in as the gradient from outside; that of what is there before the first token is left.
        d_of_gates, d_keys, d_gates, d_recurrent: get gradients of all tokens.
        d_learned: gets those of the norms' gains and shifts, begins with 0, ``[sequences, 10, H]``.
    """
    sequence = tl.program_id(0).to(tl.int64)
    d, slot, place = tl.arange(0, BLOCK)[None, :], tl.arange(0, SLOTS)[:, None], tl.arange(0, SLOTS)[None, :]
    wide, both = d < H, (slot < K) & (d < H)
    history += sequence * (K + longest) * 2 * H
    d_history += sequence * (K + longest) * 2 * H
    d_learned += sequence * 10 * H
    learned = _learned(hidden_gain, hidden_shift, cell_gain, cell_shift, d, wide, H)
    for back in range(longest):
        step = longest - 1 - back
        token = sequence * longest + step
        tl.debug_barrier()
        memory = (step + slot) * 2 * H + d
        hidden, cells = tl.load(history + memory, both, 0.0), tl.load(history + memory + H, both, 0.0)
        key = tl.load(keys + token * H + d, wide, 0.0)
        scores = tl.trans(tl.sum(hidden * key, 1, keep_dims=True)) * tl.load(scale)
        gate = tl.load(gates + token * K + K - 1 - place, place < K, 0.0)
        weights = SOFTMAX((scores, gate), (), (), (), place < K, K)
        weight = tl.where(slot < K, tl.trans(weights[0]), 0.0)
        own_cell = tl.sum(weight * cells, 0, keep_dims=True)

        products = _four(of_gates + token * 4 * H, d, wide, H) + _four(recurrent + token * 4 * H, d, wide, H)
        state = (K + step) * 2 * H + d
        h, c = tl.load(history + state, wide, 0.0), tl.load(history + state + H, wide, 0.0)
        d_states = tl.load(d_history + state, wide, 0.0), tl.load(d_history + state + H, wide, 0.0)
        gradients = STEP_BACKWARD(products, (0.0, own_cell), (), learned, (h, c), d_states, wide, H)
        for at in tl.static_range(4):
            tl.store(d_of_gates + (token * 4 + at) * H + d, gradients[at], wide)
            tl.store(d_recurrent + (token * 4 + at) * H + d, gradients[4 + at], wide)
        for at in tl.static_range(10):
            total = d_learned + at * H + d
            tl.store(total, tl.load(total, wide, 0.0) + gradients[10 + at], wide)
        d_own_cell = tl.where(wide, gradients[9], 0.0)
        tl.debug_barrier()
        d_own_hidden = _multiply_back(hidden_weight, d_recurrent + token * 4 * H, d, 4 * H, H, TILE, BLOCK)
        d_weight = tl.trans(tl.sum(hidden * d_own_hidden + cells * d_own_cell, 1, keep_dims=True))
        of_softmax = SOFTMAX_BACKWARD((scores, gate), (), (), (), weights, (d_weight,), place < K, K)
        tl.store(d_gates + token * K + K - 1 - place, of_softmax[1], place < K)
        d_score = tl.where(slot < K, tl.trans(of_softmax[0]), 0.0) * tl.load(scale)
        tl.store(d_keys + token * H + d, tl.sum(d_score * hidden, 0, keep_dims=True), wide)
        d_memory = d_history + memory
        d_hidden = weight * d_own_hidden + d_score * key
        tl.store(d_memory, tl.load(d_memory, both, 0.0) + d_hidden, both)
        tl.store(d_memory + H, tl.load(d_memory + H, both, 0.0) + weight * d_own_cell, both)
        tl.debug_barrier()
        d_before = d_history + (K + step - 1) * 2 * H + d
        of_key = _multiply_back(key_weight, d_keys + token * H, d, H, H, TILE, BLOCK)
        tl.store(d_before, tl.load(d_before, wide, 0.0) + of_key, wide)
