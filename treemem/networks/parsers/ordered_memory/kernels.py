"""What the Ordered Memory computes between products, in Triton: candidates, attention and memory, and their gradients.

All tensors hold rows of ``D`` numbers, but for those of slots. Of each step there are

- *tokens*: a row for each sequence;
- *pairs*: a row for each composed slot and sequence, slot by slot from ``first`` on;
- *held* rows: the same from the slot ``front`` on, which is ``first`` of the next step. Slots below hold what the slot
  ``front`` holds.

Arguments named for these say where the rows of the step begin. The steps are printed from ``printed.py``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treemem.engines.cuda.functions import running_sums

_SLOT_NUMBERS = ["size", "below_row", "token", "held", "pair", "slot", "next_row"]
_STEP_NUMBERS = ["token", "size", "query_row", "front", "first", "held", "pair"]
_STEP_NUMBERS += ["before_token", "before_held", "before_size", "before_front"]


@triton.jit(do_not_specialize=_SLOT_NUMBERS)
def compose(
    mapped, cumulative, below, memories, elements, gain, shift, candidates, following, factors,
    size, below_row, token, held, pair, slot, next_row, next_stride,
    S: tl.constexpr, SKIP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compose a slot; a program takes ``ROWS`` sequences.

    Args:
        mapped: what the last map of the cell gives, by pair.
        cumulative: ``cp``, ``[tokens, S]``.
        below: what the slot below holds, from ``below_row`` on.
        memories, elements: ``M``, held rows; ``x``, tokens.
        gain, shift: of the layer norm; None if the cell has no gates, and ``mapped`` one vector.
        candidates: gets ``C``, held rows.
        following: gets the same for the product of the slot above, from ``next_row`` on, with ``factors`` of dropout.
        size: number of sequences.
        pair, held, slot: of the slot.
        SKIP: smaller ``cp`` count as 0.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    d = tl.arange(0, BLOCK)[None, :]
    rows, wide = row < size, d < D
    there = rows & wide
    products, children, learned = _of_slot(
        mapped, cumulative, below, memories, elements, gain, shift,
        row, below_row, token, held, pair, slot, d, rows, wide, S, SKIP, D,
    )  # fmt: skip
    (candidate,) = STEP(products, children, (), learned, wide, D)
    tl.store(candidates + (held + row) * D + d, candidate, there)
    if factors is not None:
        candidate *= tl.load(factors + (next_row + row) * next_stride + d, there, 0.0)
    tl.store(following + (next_row + row) * next_stride + d, candidate, there)


@triton.jit
def _of_slot(
    mapped, cumulative, below, memories, elements, gain, shift,
    row, below_row, token, held, pair, slot, d, rows, wide, S: tl.constexpr, SKIP: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """What the step of a slot reads: products and the share of what is composed, children, and learned vectors."""
    there = rows & wide
    share = tl.load(cumulative + (token + row) * S + slot, rows, 0.0)
    share = tl.where(share < SKIP, 0.0, share)
    children = (
        tl.load(below + (below_row + row) * D + d, there, 0.0),
        tl.load(memories + (held + row) * D + d, there, 0.0),
        tl.load(elements + (token + row) * D + d, there, 0.0),
    )
    maps: tl.constexpr = 1 if gain is None else 4
    of_row = mapped + (pair + row) * (maps * D) + d
    first = tl.load(of_row, there, 0.0)
    others = () if gain is None else (
        tl.load(of_row + D, there, 0.0), tl.load(of_row + 2 * D, there, 0.0), tl.load(of_row + 3 * D, there, 0.0),
    )  # fmt: skip
    learned = () if gain is None else (tl.load(gain + d, wide, 0.0), tl.load(shift + d, wide, 0.0))
    return (first,) + others + (share,), children, learned


@triton.jit(do_not_specialize=[*_SLOT_NUMBERS, "d_row", "above_row"])
def compose_backward(
    mapped, cumulative, below, memories, elements, gain, shift, factors, key_factors,
    d_above, d_following, d_candidates, d_read, d_mapped, d_cumulative, d_below, d_memories, d_elements, d_learned,
    size, below_row, token, held, pair, slot, next_row, d_row, above_row,
    S: tl.constexpr, SKIP: tl.constexpr, FRONT: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compose a slot backwards.

    Args:
        mapped, cumulative, below, memories, elements, gain, shift, size, below_row, token, held, pair, slot, SKIP: as
            in the forward pass.
        factors, key_factors: of dropout, of what the cells and the keys read, pairs and held rows; or None.
        d_above: gradients of the candidate from outside or, element by element, from the slot above, from ``above_row``
            on; or None.
        d_following: and those of ``following``, of each sequence; None for the last slot.
        d_candidates, d_read: and those from the next step, by its memory and its keys, from ``d_row`` on.
        d_mapped: gets gradients, by pair; it may be the memory of ``mapped``.
        d_cumulative, d_memories, d_elements: are added to; the gradients of memories from ``d_row`` on.
        d_below: gets those of the slot below, element by element, of each sequence; None if that is the element.
        d_learned: ``[programs, 2, D]``, is added to.
        FRONT: whether the element is also held by the slot below.
    """
    T: tl.constexpr = mapped.dtype.element_ty
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    d = tl.arange(0, BLOCK)[None, :]
    rows, wide = row < size, d < D
    there = rows & wide
    products, children, learned = _of_slot(
        mapped, cumulative, below, memories, elements, gain, shift,
        row, below_row, token, held, pair, slot, d, rows, wide, S, SKIP, D,
    )  # fmt: skip
    at, of_element = (d_row + row) * D + d, (token + row) * D + d
    d_candidate = _from_next_step(d_candidates, d_read, key_factors, at, (held + row) * D + d, there)
    if d_above is not None:
        d_candidate += tl.load(d_above + (above_row + row) * D + d, there, 0.0)
    if d_following is not None:
        d_candidate += _dropped(d_following + row * D + d, factors, (next_row + row) * (2 * D) + d, there)
    gradients = STEP(products, children, (), learned, (0.0,), (d_candidate,), wide, D)
    tl.debug_barrier()  # all threads have read what gradients may be stored over
    maps: tl.constexpr = 1 if gain is None else 4
    for block in tl.static_range(maps):
        tl.store(d_mapped + (pair + row) * (maps * D) + block * D + d, gradients[block], there)
    of_share = (token + row) * S + slot
    is_skipped = tl.load(cumulative + of_share, rows, 0.0) < SKIP
    d_share = tl.where(is_skipped, 0.0, gradients[maps]) + tl.load(d_cumulative + of_share, rows, 0.0)
    tl.store(d_cumulative + of_share, d_share, rows)
    d_element = gradients[maps + 3] + tl.load(d_elements + of_element, there, 0.0)
    if d_below is None:
        d_element += gradients[maps + 1]
        if FRONT:
            d_element += _from_next_step(
                d_candidates, d_read, key_factors, at - size * D, (held - size + row) * D + d, there
            )
    else:
        tl.store(d_below + row * D + d, gradients[maps + 1] + tl.zeros([ROWS, BLOCK], T), there)
    tl.store(d_elements + of_element, d_element, there)
    tl.store(d_memories + at, tl.load(d_memories + at, there, 0.0) + gradients[maps + 2], there)
    if gain is not None:
        for vector in tl.static_range(2):
            total = tl.sum(tl.where(there, gradients[maps + 4 + vector], 0.0), 0, keep_dims=True)
            target = d_learned + (tl.program_id(0) * 2 + vector) * D + d
            tl.store(target, tl.load(target, wide, 0.0) + total, wide)


@triton.jit
def _from_next_step(d_candidates, d_read, key_factors, at, held, there):
    return tl.load(d_candidates + at, there, 0.0) + _dropped(d_read + at, key_factors, held, there)


@triton.jit
def _dropped(values, factors, at, there):
    value = tl.load(values, there, 0.0)
    if factors is not None:
        value *= tl.load(factors + at, there, 0.0)
    return value


@triton.jit(do_not_specialize=_STEP_NUMBERS)
def attend(
    keys, queries, weight, gain, shift, score_factors, factors, elements, below,
    candidates, memories, scores, pointers, cumulative, both,
    token, size, query_row, front, first, before_token, before_held, before_size, before_front, held, pair,
    S: tl.constexpr, SKIP: tl.constexpr, BELOW_THRESHOLD: tl.constexpr,
    D: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Attend to the slots of the step before, and rewrite the memory; a program takes a sequence.

    Args:
        keys: of candidates, held rows of the step before.
        queries: from ``query_row`` on.
        weight, gain, shift: of the score; gain and shift are None if it has no layer norm.
        score_factors, factors: of dropout, of what scores read, held rows of the step before, and of what cells read,
            by pair; or None.
        elements, below: ``x``, and what the product of the first slot reads of it, tokens.
        candidates, memories: ``C`` and ``M``, held rows: those of the step before are read. ``M`` is set, and ``C`` of
            ``front`` if it is not composed.
        scores, pointers, cumulative: are set, ``[tokens, S]``.
        both: gets what products read by pair: of all slots the memory, of the first one the element too.
        before_token, before_held, before_size, before_front: of the step before.
        S, SLOTS: number of slots, and a power of 2 that is not less.
    """
    T: tl.constexpr = keys.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    slot, d = tl.arange(0, SLOTS)[:, None], tl.arange(0, BLOCK)[None, :]
    wide = d < D
    read, now = (slot >= before_front) & (slot < S), (slot >= front) & (slot < S)
    source = before_held + tl.maximum(slot - before_front, 0) * before_size + row
    products, dropout, learned = _of_scores(
        keys, queries + (query_row + row) * D, weight, gain, shift, score_factors, source, d, read, wide, D
    )
    (score,) = STEP(products, (), dropout, learned, wide, D)
    reach = _reach(cumulative + (before_token + row) * S, slot, S, BELOW_THRESHOLD)
    score = tl.where(read, score, float("-inf"))
    within = tl.exp(score - tl.max(score, 0, keep_dims=True)) * reach
    pointer = within / tl.maximum(tl.sum(within, 0, keep_dims=True), tl.full([1, 1], 1e-12, T), tl.PropagateNan.ALL)
    total = running_sums(pointer, 0)
    of_slot = (token + row) * S + slot
    tl.store(scores + of_slot, score, slot < S)
    tl.store(pointers + of_slot, pointer, slot < S)
    tl.store(cumulative + of_slot, total, slot < S)
    onward = _onward(pointer, total, slot, S, SKIP)
    old = tl.load(memories + source * D + d, now & wide, 0.0)
    memory = old + onward * (tl.load(candidates + source * D + d, now & wide, 0.0) - old)
    target = held + (slot - front) * size + row
    tl.store(memories + target * D + d, memory, now & wide)
    target = (pair + (slot - first) * size + row) * (2 * D) + d
    composed = (slot >= first) & (slot < S) & wide
    if factors is not None:
        memory *= tl.load(factors + target + D, composed, 0.0)
    tl.store(both + target + D, memory, composed)
    tl.store(both + (pair + row) * (2 * D) + d, tl.load(below + (token + row) * D + d, wide, 0.0), wide)
    element = tl.load(elements + (token + row) * D + d, wide, 0.0)
    tl.store(candidates + (held + row) * D + d, element, wide & (front < first))


@triton.jit
def _of_scores(keys, query, weight, gain, shift, score_factors, source, d, read, wide, D: tl.constexpr):
    """What the step of the scores reads: products, factors of dropout, and learned vectors."""
    products = tl.load(keys + source * D + d, read & wide, 0.0), tl.load(query + d, wide, 0.0)
    factor = tl.full(products[0].shape, 1.0, products[0].dtype)
    if score_factors is not None:
        factor = tl.load(score_factors + source * D + d, read & wide, 0.0)
    vector = tl.load(weight + d, wide, 0.0)
    learned = (vector,) if gain is None else (vector, tl.load(gain + d, wide, 0.0), tl.load(shift + d, wide, 0.0))
    return products, (factor,), learned


@triton.jit
def _reach(cumulative, slot, S: tl.constexpr, BELOW_THRESHOLD: tl.constexpr):
    """``m``: ``cp`` of the slot above, 0 below a threshold, and 1 for the last slot."""
    reach = tl.load(cumulative + slot + 1, slot < S - 1, 1.0)
    return tl.where(reach > BELOW_THRESHOLD, reach, 0.0)


@triton.jit
def _onward(pointer, total, slot, S: tl.constexpr, SKIP: tl.constexpr):
    """``rcp``, where slots with a smaller ``cp`` than ``SKIP`` but the last have no ``p`` and no ``cp``."""
    is_skipped = (total < SKIP) & (slot < S - 1)
    last = tl.sum(tl.where(slot == S - 1, total, 0.0), 0, keep_dims=True)
    return last + tl.where(is_skipped, 0.0, pointer - total)


@triton.jit(do_not_specialize=[*_STEP_NUMBERS, "d_before_row"])
def attend_backward(
    keys, queries, weight, gain, shift, score_factors, factors, candidates, memories, scores, pointers, cumulative,
    d_pointers, d_cumulative, d_both, d_candidates, d_memories, d_keys, d_queries, d_learned,
    token, size, query_row, front, first, before_token, before_held, before_size, before_front, held, pair,
    d_before_row,
    S: tl.constexpr, SKIP: tl.constexpr, BELOW_THRESHOLD: tl.constexpr,
    D: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take :func:`attend` backwards; a program takes a sequence of the step before, which may have ended there.

    Args:
        keys, queries, weight, gain, shift, score_factors, factors, candidates, memories, scores, pointers, cumulative,
        token, size, query_row, front, first, before_token, before_held, before_size, before_front, pair, S, SLOTS: as
            in the forward pass.
        d_pointers: gradients from outside; None: 0.
        d_cumulative: gradients; those of the step before are added to.
        d_both: those of the products' inputs that are memory, pairs from 0 on.
        d_candidates, d_memories: held rows. Gradients of memories are read from ``held`` on; both get those of the step
            before from ``d_before_row`` on.
        d_keys, d_queries: are set; keys that are not read have 0.
        d_learned: ``[sequences, vectors, D]``, is added to.
    """
    T: tl.constexpr = keys.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    goes_on = row < size
    slot, d = tl.arange(0, SLOTS)[:, None], tl.arange(0, BLOCK)[None, :]
    wide = d < D
    kept = (slot >= before_front) & (slot < S)
    read, now = kept & goes_on, (slot >= front) & (slot < S) & goes_on
    source = before_held + tl.maximum(slot - before_front, 0) * before_size + row
    of_slot = (token + row) * S + slot
    slots = (slot < S) & goes_on

    d_memory = tl.load(d_memories + (held + (slot - front) * size + row) * D + d, now & wide, 0.0)
    composed = (slot >= first) & (slot < S) & goes_on & wide
    of_product = (slot - first) * size + row
    d_memory += _dropped(d_both + of_product * D + d, factors, (pair + of_product) * (2 * D) + D + d, composed)
    pointer, total = tl.load(pointers + of_slot, slots, 0.0), tl.load(cumulative + of_slot, slots, 0.0)
    onward = _onward(pointer, total, slot, S, SKIP)
    old = tl.load(memories + source * D + d, now & wide, 0.0)
    new = tl.load(candidates + source * D + d, now & wide, 0.0)
    d_onward = tl.sum(d_memory * (new - old), 1, keep_dims=True)
    d_new = _with_slots_below(onward * d_memory, slot, before_front)
    d_old = _with_slots_below((1 - onward) * d_memory, slot, before_front)
    target = (d_before_row + (slot - before_front) * before_size + row) * D + d
    tl.store(d_candidates + target, d_new, kept & wide)
    tl.store(d_memories + target, d_old, kept & wide)

    d_used = tl.where((total < SKIP) & (slot < S - 1), 0.0, d_onward)
    d_total = tl.load(d_cumulative + of_slot, slots, 0.0) - d_used
    d_total += tl.where(slot == S - 1, tl.sum(d_onward, 0, keep_dims=True), 0.0)
    d_pointer = d_used + running_sums(d_total, 0, True)
    if d_pointers is not None:
        d_pointer += tl.load(d_pointers + of_slot, slots, 0.0)
    score = tl.load(scores + of_slot, slots, float("-inf"))
    reach = _reach(cumulative + (before_token + row) * S, slot, S, BELOW_THRESHOLD)
    largest = tl.max(score, 0, keep_dims=True)
    strength = tl.where(read, tl.exp(score - largest), 0.0)
    within = strength * reach
    divisor = tl.sum(within, 0, keep_dims=True)
    smallest = tl.full([1, 1], 1e-12, T)
    d_divisor = -tl.sum(d_pointer * pointer, 0, keep_dims=True)
    d_within = (d_pointer + tl.where(divisor < smallest, 0.0, d_divisor)) / tl.maximum(divisor, smallest)
    of_reach = (before_token + row) * S + slot + 1
    limited = read & (slot < S - 1) & (reach > 0)
    d_reach = tl.load(d_cumulative + of_reach, limited, 0.0) + d_within * strength
    tl.store(d_cumulative + of_reach, d_reach, limited)

    peak = tl.where(read & (score == largest), 1.0, 0.0)
    d_score = d_within * within
    d_largest = tl.sum(d_score, 0, keep_dims=True) / tl.maximum(tl.sum(peak, 0, keep_dims=True), 1.0)
    d_score = tl.where(read, d_score - peak * d_largest, 0.0)
    products, dropout, learned = _of_scores(
        keys, queries + (query_row + row) * D, weight, gain, shift, score_factors, source, d, read, wide & goes_on, D
    )
    gradients = STEP(products, (), dropout, learned, (0.0,), (d_score,), wide, D)
    tl.debug_barrier()  # all threads have read what gradients may be stored over
    tl.store(d_keys + source * D + d, tl.where(read, gradients[0], 0.0), kept & wide)
    d_query = tl.sum(tl.where(read, gradients[1], 0.0), 0, keep_dims=True)
    tl.store(d_queries + (query_row + row) * D + d, d_query, wide & goes_on)
    vectors: tl.constexpr = 1 if gain is None else 3
    for vector in tl.static_range(vectors):
        of_row = d_learned + (row * vectors + vector) * D + d
        gradient = tl.sum(tl.where(read, gradients[2 + vector], 0.0), 0, keep_dims=True)
        tl.store(of_row, tl.load(of_row, wide, 0.0) + gradient, wide)


@triton.jit
def _with_slots_below(values, slot, front):
    """Add the values of slots below ``front`` to its own: they hold the same."""
    return tl.where(slot == front, tl.sum(tl.where(slot <= front, values, 0.0), 0, keep_dims=True), values)
