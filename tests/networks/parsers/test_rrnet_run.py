"""The Recurrent-Recursive Network: engines, what it is without constituents, and the gradient of its policy."""

from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same
from networks.parsers.test_spinn_run import ENGINES, LENGTHS, uniform_of
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.rrnet.run import PolicyWeights, RRNetWeights, run_rrnet
from treemem.networks.parsers.spinn.equations import Policy

SIZE, HIDDEN = 4, 3


def tensors(seed: int = 0, policy: bool = True) -> list[Tensor]:
    torch.manual_seed(seed)
    shapes: list[tuple[int, ...]] = [(4 * SIZE, SIZE), (4 * SIZE,), (4 * SIZE, SIZE)]
    if policy:
        shapes += [(HIDDEN, 3 * SIZE), (HIDDEN,), (HIDDEN,), (HIDDEN,), (2, HIDDEN), (2,)]
    return [torch.randn(shape).double() for shape in shapes]


def weights(of: list[Tensor]) -> RRNetWeights:
    policy = PolicyWeights(Affine(*of[3:5]), Affine(*of[5:7]), Affine(*of[7:])) if len(of) > 3 else None
    return RRNetWeights(Affine(*of[:2]), of[2], policy)


def inputs_of(lengths: tuple[int, ...], longer: int = 1) -> Tensor:
    torch.manual_seed(1)
    inputs = torch.randn(len(lengths), max(lengths, default=0) + longer, SIZE).double()
    for row, length in enumerate(lengths):
        inputs[row, length:] = torch.nan
    return inputs


def run(lengths: tuple[int, ...], engine: SequenceEngine, seed: int, sort: str) -> dict[str, Tensor]:
    inputs = inputs_of(lengths).requires_grad_()
    own = [each.requires_grad_() for each in tensors(seed, policy=sort != "given")]
    length = torch.tensor(lengths, dtype=torch.int64)
    given = policy = None
    if sort.startswith("given"):
        steps = max(2 * inputs.shape[1] - 1, 0)
        given = torch.randint(0, 2, (len(lengths), steps), generator=torch.Generator().manual_seed(seed))
    elif sort == "sampled":
        policy = Policy(0.7, uniform_of(lengths, seed, engine))
    found = run_rrnet(inputs, length, weights(own), given=given, policy=policy, engine=engine)
    outputs = [found.roots, *([] if found.logits is None else [found.logits])]
    weighted = [(torch.cos(torch.arange(each.numel())).view(each.shape) * each).sum() for each in outputs]
    torch.stack([*weighted, 0 * own[0].sum()]).sum().backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (inputs, *own)]
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    results = {f"output {number}": each.detach() for number, each in enumerate(outputs)}
    return {**results, "actions": found.actions, "chosen": found.chosen, **named}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("sort", ["given", "given, policy", "greedy", "sampled"])
def test_the_fused_engine_equals_the_naive_one(sort: str, lengths: tuple[int, ...]) -> None:
    """The naive engine reads sequence by sequence, so the batch has no effect either."""
    expected, found = (run(lengths, engine, 0, sort) for engine in ENGINES)
    assert_same(found, expected, "")


@pytest.mark.parametrize("engine", ENGINES)
def test_without_constituents_it_is_an_lstm(engine: SequenceEngine) -> None:
    own = tensors(policy=False)
    lstm = torch.nn.LSTM(SIZE, SIZE, batch_first=True).double()
    with torch.no_grad():
        for parameter, value in zip(lstm.parameters(), (own[0], own[2], own[1], torch.zeros(4 * SIZE)), strict=True):
            parameter.copy_(value)
    inputs = inputs_of((5, 5), longer=0)
    given = torch.tensor([[0, 0, 1, 0, 1, 0, 1, 0, 1]]).expand(2, -1)
    found = run_rrnet(inputs, torch.tensor([5, 5]), weights(own), given=given, engine=engine)
    _, (hidden, cell) = lstm(inputs)
    torch.testing.assert_close(found.roots, torch.cat([hidden[0], cell[0]], 1))


def test_a_constituent_is_read_like_a_token_from_the_state_before_it() -> None:
    own = tensors(policy=False)
    inputs = inputs_of((3,), longer=0)
    found = run_rrnet(inputs, torch.tensor([3]), weights(own), given=torch.tensor([[0, 0, 0, 1, 1]]))
    inner = run_rrnet(inputs[:, 1:], torch.tensor([2]), weights(own), given=torch.tensor([[0, 0, 1]])).roots
    again = torch.cat([inputs[:, :1], inner[:, None, :SIZE]], 1)
    flat = run_rrnet(again, torch.tensor([2]), weights(own), given=torch.tensor([[0, 0, 1]])).roots
    torch.testing.assert_close(found.roots, flat)
