"""The recurrences as they stand in the paper, in logarithms."""

from __future__ import annotations

import torch

from treemem.networks.memories.nondeterministic_stack.logarithms import difference, log_sum


def naive_readings(
    push: torch.Tensor,
    replace: torch.Tensor,
    pop: torch.Tensor,
    value: torch.Tensor | None = None,
    bottom: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distribution over states and top symbols after every step (DuSell & Chiang 2022, 2023).

    ``weights[i -> t][q, x -> r, y]`` is the total weight of the runs that begin at time ``i`` in state ``q`` with ``x``
    on top, put a symbol on top of that, and are at time ``t`` in state ``r`` with ``y`` in that place, on top.

    Args:
        push: logarithms of weights, ``[batch, time, states, symbols, states, symbols]``: from a state and a top symbol
            to a state and the symbol that comes on top.
        replace: the same, for the symbol that takes the place of the top symbol.
        pop: ``[batch, time, states, symbols, states]``.
        value: vectors that are pushed together with the symbols, ``[batch, time, size]``.
        bottom: the vector at the bottom, ``[size]``.

    Returns:
        The logarithms of the probabilities of a state and a top symbol, ``[batch, time, states, symbols]``, and the
        mean of the top vector in each, ``[batch, time, states, symbols, size]``. Size is 0 without vectors. They are
        minus infinity and 0 where no run is left.
    """
    batch, time, states, symbols = push.shape[:4]
    if value is None or bottom is None:
        value, bottom = push.new_zeros(batch, time, 0), push.new_zeros(0)
    never = push.new_full((batch, 1, states, symbols, states, symbols), -torch.inf)
    start = never[:, 0, 0, 0].clone()
    start[:, 0, 0] = 0
    weights, vectors = [never.clone()], []  # at time t: [batch, starts, q, x, r, y]; the first start is -1
    weights[0][:, 0, 0, 0, 0, 0] = 0
    vectors.append(bottom.expand(*weights[0].shape, -1))  # the mean of the top vector over these runs
    reached = [start, start]  # alpha at times -1 and 0
    logarithms, means = [], []
    for step in range(time):
        last = weights[-1]
        joint = last[..., None, None] + replace[:, step, None, None, None]  # [batch, i, q, x, s, z, r, y]
        terms = [_sum(joint, vectors[-1][..., None, None, :], (4, 5))]
        for k in range(step):
            gone = log_sum(last[:, k + 1, :, :, :, :, None] + pop[:, step, None, None], (3, 4))  # [batch, u, y, r]
            joint = weights[k][..., None] + gone[:, None, None, None]  # [batch, i, q, x, u, y, r]
            total, top = _sum(joint, vectors[k][..., None, :], (4,))
            total, top = total.transpose(4, 5), top.transpose(4, 5)
            missing = last.shape[1] - total.shape[1]
            total = torch.cat([total, never.expand(-1, missing, -1, -1, -1, -1)], 1)
            top = torch.cat([top, top.new_zeros(batch, missing, *top.shape[2:])], 1)
            terms.append((total, top))
        total, top = _sum(torch.stack([each for each, _ in terms]), torch.stack([each for _, each in terms]), (0,))
        pushed = value[:, step, None, None, None, None, None].expand(-1, 1, *push.shape[2:], -1)
        weights.append(torch.cat([total, push[:, step, None]], 1))
        vectors.append(torch.cat([top, pushed], 1))
        before = torch.stack(reached, 1)[..., None, None] + weights[-1]  # alpha[i] at each start i
        total, top = _sum(before, vectors[-1], (1, 2, 3))
        reached.append(total)
        logarithms.append(difference(total, log_sum(total, (1, 2))[:, None, None]))
        means.append(top)
    if not time:
        return push.new_zeros(batch, 0, states, symbols), push.new_zeros(batch, 0, states, symbols, bottom.shape[-1])
    return torch.stack(logarithms, 1), torch.stack(means, 1)


def _sum(values: torch.Tensor, vectors: torch.Tensor, axes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logarithm of the sum of weights, and the mean of vectors by these weights."""
    total = log_sum(values, axes)
    finite = torch.where(total.isinf(), 0, total)
    for axis in axes:
        finite = finite.unsqueeze(axis)
    return total, ((values - finite).exp()[..., None] * vectors).sum(axes)
