"""SPINN: the gradient of its policy, and the normalisation of the authors' code."""

from __future__ import annotations

import pytest
import torch
from device_cases import VOCABULARY, network_case, outcome, placed
from engine_parity import assert_same
from fake_device import DEVICE, fake_device
from sequence_networks import SIZE, drawn, made, padded_inputs, with_gradients
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks import NetworkConfig
from treemem.networks.parsers.spinn.batched import normalised
from treemem.networks.parsers.spinn.equations import Policy, SPINNWeights
from treemem.networks.parsers.spinn.run import policy_steps, run_transitions
from treemem.schedule.tree_batch import TreeBatch

TRACKER = 3
NORMALISED = NetworkConfig("SPINN", {"hidden_size": 6, "tracker_size": 3, "normalisation": "batch"})


def weights(scale: float = 1.0) -> SPINNWeights:
    return drawn(made("SPINN", transitions="reinforced", tracker_size=TRACKER), std=scale).weights()


def norms() -> tuple[Affine, ...]:
    torch.manual_seed(2)
    shapes = (2, SIZE), (3, SIZE), (1, TRACKER)
    return tuple(Affine(*torch.randn(2, *shape).double()) for shape in shapes)


@pytest.mark.parametrize("sort", ["gold", "predicted"])
def test_without_the_normalisation_itself_the_normalised_run_equals_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    monkeypatch.setattr("treemem.networks.parsers.spinn.batched.normalised", lambda values, norm: values)
    network, lengths = made("SPINN", transitions="reinforced", tracker_size=TRACKER), (5, 1, 9, 0, 2, 3)
    given = torch.randint(0, 2, (6, 19), generator=torch.Generator().manual_seed(0)) if sort == "gold" else None
    found = []
    for own in ((), norms()):
        network.zero_grad()
        leaves = padded_inputs(lengths, 2 * SIZE).requires_grad_()
        run = run_transitions(leaves, torch.tensor(lengths), network.weights()._replace(norms=own), given=given)
        found.append(with_gradients(run._asdict(), {"leaves": leaves, **dict(network.named_parameters())}))
    assert_same(found[1], found[0], sort)


def test_a_part_is_normalised_over_all_its_entries() -> None:
    torch.manual_seed(0)
    values, (gain, bias) = 3 * torch.randn(5, 2, 4).double() + 1, torch.randn(2, 2, 4).double()
    found = normalised(values, Affine(gain, bias))
    for part in range(2):
        own = values[:, part].numpy()
        standard = torch.from_numpy((own - own.mean()) / (own.std(ddof=1) + 1e-5))
        torch.testing.assert_close(found[:, part], gain[part] * standard + bias[part])
    equal = torch.zeros(5, 2, 4, dtype=torch.float64, requires_grad=True)
    start = normalised(equal, Affine(gain, bias))
    torch.testing.assert_close(start, bias.expand(5, 2, 4))
    start.sum().backward()
    assert equal.grad is not None
    assert equal.grad.isfinite().all()


@pytest.mark.parametrize("engine", ["naive", "fused"])
def test_the_normalisation_reads_all_sequences_that_are_not_empty_in_any_order(engine: SequenceEngine) -> None:
    """Given are left-branching trees: what a tree becomes depends on a sequence that ended long ago."""
    own, lengths = weights()._replace(norms=norms()), torch.tensor([4, 0, 1, 2])
    leaves, given = padded_inputs((4, 0, 1, 2), 2 * SIZE), torch.ones(4, 9, dtype=torch.int64)

    def roots(rows: list[int]) -> Tensor:
        return run_transitions(leaves[rows], lengths[rows], own, given=given[: len(rows)], engine=engine).roots

    expected = roots([0, 1, 2, 3])
    assert not expected[1].any()
    for rows in ([3, 2, 0, 1], [2, 0, 3]):
        torch.testing.assert_close(roots(rows), expected[rows])
    assert not torch.allclose(roots([0, 3])[0], expected[0])
    torch.testing.assert_close(roots([2]), expected[2:3])  # of one token; nothing is composed


@pytest.mark.parametrize("options", [{"transitions": "gold", "tracker_size": 0}, {"transitions": "predicted"}], ids=str)
def test_normalised_networks_start_like_plain_ones_train_and_say_why_they_need_the_batch(options: dict) -> None:
    torch.manual_seed(0)
    network = NORMALISED.replace(**options).build(VOCABULARY)
    torch.manual_seed(0)
    plain = NORMALISED.replace(**options, normalisation="none").build(VOCABULARY)
    for name, value in plain.state_dict().items():
        assert torch.equal(network.state_dict()[name], value), name
    assert (network.needs_whole_batch, plain.needs_whole_batch) == ("normalisation='batch'", None)
    batch = TreeBatch.from_trees(["x", "(f x y)", "(h (g x) (f y x) y)", "y"], VOCABULARY)
    assert not torch.allclose(network.eval()(batch).root, plain.eval()(batch).root)
    states = network.train()(batch)
    assert not torch.allclose(states.root, plain.train()(batch).root)
    torch.stack([states.root.sum(), *(each.mean for each in states.auxiliary_losses.values())]).sum().backward()
    assert all(each.grad is not None and bool(each.grad.isfinite().all()) for each in network.parameters())
    for gain, bias in network.norms.weights():
        gain.data += 1
        bias.data += 1
    network.reset_parameters()
    assert all(bool((gain == 1).all()) and not bias.any() for gain, bias in network.norms.weights())


def test_normalised_a_device_gives_the_same() -> None:
    torch.manual_seed(0)
    case = network_case(lambda: NORMALISED.replace(transitions="predicted").build(VOCABULARY), 3)
    expected = outcome(placed(case, "cpu", torch.float64))
    with fake_device():
        found = {name: value.cpu() for name, value in outcome(placed(case, DEVICE, torch.float64)).items()}
    assert_same(found, expected, "")


TREES_OF_FOUR = [
    [0, 0, 1, 0, 1, 0, 1],
    [0, 0, 0, 1, 1, 0, 1],
    [0, 0, 1, 0, 0, 1, 1],
    [0, 0, 0, 1, 0, 1, 1],
    [0, 0, 0, 0, 1, 1, 1],
]


def log_probabilities(own: SPINNWeights, temperature: float) -> Tensor:
    """Those of all trees of four leaves, under the policy's free choices."""
    leaves = padded_inputs((4,), 2 * SIZE, longer=0).expand(5, -1, -1)
    lengths = torch.full((5,), 4)
    found = run_transitions(leaves, lengths, own, given=torch.tensor(TREES_OF_FOUR))
    assert found.actions.tolist() == TREES_OF_FOUR
    steps = policy_steps(found, lengths, temperature)
    found_log = (steps.log_probability * steps.free).sum(1)
    torch.testing.assert_close(found_log.exp().sum(), torch.ones(()).double())
    return found_log


@pytest.mark.parametrize("baseline", [0.0, 1.7])
def test_the_credited_steps_give_the_gradient_of_the_expected_reward(baseline: float) -> None:
    """The expectation over all trees of four leaves, each with a reward of its own."""
    network = made("SPINN", transitions="reinforced", tracker_size=TRACKER)
    log_probability = log_probabilities(network.weights(), 0.8)
    learned, reward = [*network.tracker.parameters()], torch.tensor([1.0, -0.5, 2.0, 0.3, 0.9]).double()
    expectation = (log_probability.exp() * reward).sum()
    estimate = (log_probability.exp().detach() * (reward - baseline) * log_probability).sum()
    exact, found = (
        torch.autograd.grad(each, learned, retain_graph=True, materialize_grads=True)
        for each in (expectation, estimate)
    )
    torch.testing.assert_close(found, exact)


def test_sampled_transitions_have_the_probabilities_of_the_policy() -> None:
    count, own = 4000, weights(scale=0.3)
    generator = torch.Generator().manual_seed(0)

    def uniform(shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    leaves = padded_inputs((4,), 2 * SIZE, longer=0).expand(count, -1, -1)
    sampled = run_transitions(leaves, torch.full((count,), 4), own, policy=Policy(1.3, uniform)).actions
    share = torch.tensor([(sampled == torch.tensor(each)).all(1).double().mean() for each in TREES_OF_FOUR])
    torch.testing.assert_close(share.double(), log_probabilities(own, 1.3).exp(), atol=0.03, rtol=0)
