from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from treemem.runs.optimisation import averaged_model, plateau_scheduler, rate_factor, rate_scheduler


def factors(steps: int, schedule: str, warmup: float = 0.0) -> list[float]:
    return [rate_factor(step, steps, schedule, warmup) for step in range(steps)]


def test_each_schedule_begins_at_the_full_rate_and_falls_to_zero_after_the_last_step() -> None:
    assert factors(4, "constant") == [1.0, 1.0, 1.0, 1.0]
    assert factors(4, "linear") == [1.0, 0.75, 0.5, 0.25]
    assert factors(4, "cosine") == pytest.approx([1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    for schedule in ("linear", "cosine"):
        assert rate_factor(4, 4, schedule, 0.0) == 0.0


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warmup_rises_to_the_full_rate_and_leaves_the_schedule_the_other_steps(schedule: str) -> None:
    found = factors(10, schedule, 0.45)
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[4:] == factors(6, schedule)


def test_a_scheduler_that_begins_in_the_middle_goes_on_as_the_whole_one() -> None:
    def rates(done: int) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=9.0)
        factor = partial(rate_factor, steps=8, schedule="cosine", warmup=0.25)
        scheduler = rate_scheduler(optimizer, 0.1, factor, done=done)
        found = []
        for _ in range(done, 8):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return found

    assert rates(0) == [0.1 * factor for factor in factors(8, "cosine", 0.25)]
    for done in range(1, 9):
        assert rates(done) == rates(0)[done:]


# From the rate 8, halved after more than one evaluation in a row without a better accuracy: an equal one is no better,
# one that is better by the least is.
ACCURACIES = [0.5, 0.5, 0.50001, 0.4, 0.50001, 0.5, 0.5, 0.6, 0.5]
RATES = [8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 2.0]


def test_the_rate_falls_after_more_evaluations_than_patience_without_a_better_accuracy() -> None:
    groups = [{"params": [torch.zeros(1, requires_grad=True)]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    scheduler = plateau_scheduler(optimizer, 8.0, 0.5, 1, mode="max", values=[])
    found = []
    for accuracy in ACCURACIES:
        scheduler.step(accuracy)
        found.append([group["lr"] for group in optimizer.param_groups])
    assert found == [[rate, rate] for rate in RATES]


def test_a_plateau_scheduler_that_has_seen_accuracies_goes_on_as_the_whole_one() -> None:
    for seen in range(len(ACCURACIES) + 1):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATES[seen - 1] if seen else 1.0)
        scheduler = plateau_scheduler(optimizer, 8.0, 0.5, 1, mode="max", values=ACCURACIES[:seen])
        found = [optimizer.param_groups[0]["lr"]]
        for accuracy in ACCURACIES[seen:]:
            scheduler.step(accuracy)
            found.append(optimizer.param_groups[0]["lr"])
        assert found == [8.0, *RATES][seen:]


def test_a_metric_that_should_fall_lowers_the_rate_when_it_rises() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    plateau_scheduler(optimizer, 8.0, 0.5, 0, mode="min", values=[0.5, 0.4, 0.45, 0.3])
    assert optimizer.param_groups[0]["lr"] == 4.0


def test_a_small_rate_falls_on_a_plateau_like_a_large_one() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    plateau_scheduler(optimizer, 2e-8, 0.5, 0, mode="max", values=[0.5, 0.5, 0.5])
    assert optimizer.param_groups[0]["lr"] == 0.5e-8


def test_the_average_is_that_of_its_formula() -> None:
    model = nn.Linear(2, 1, bias=False)
    average = averaged_model(model, 0.3)
    expected = torch.zeros(0)
    for step in range(5):
        weights = torch.tensor([[step + 1.0, step * step - 2.0]])
        with torch.no_grad():
            model.weight.copy_(weights)
        average.update_parameters(model)
        decay = min(0.3, (1 + step) / (10 + step))  # 0.3 from the fourth step on
        expected = decay * expected + (1 - decay) * weights if step else weights
        torch.testing.assert_close(average.module.weight.detach(), expected)
    assert torch.equal(model.weight.detach(), weights), "the model itself is left as it is"


@pytest.mark.parametrize("stop", [1, 3])
def test_an_average_taken_up_from_its_state_goes_on_to_the_same_weights(stop: int) -> None:
    def averaged(steps: range, state: dict[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        model = nn.Linear(3, 2)
        average = averaged_model(model, 0.999)
        if state is not None:
            average.load_state_dict(state)
        for step in steps:
            torch.manual_seed(step)
            model.reset_parameters()
            average.update_parameters(model)
        return dict(average.state_dict())

    whole, resumed = averaged(range(5)), averaged(range(stop, 5), averaged(range(stop)))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_buffers_are_those_of_the_model() -> None:
    model = nn.BatchNorm1d(2)
    average = averaged_model(model, 0.9)
    for _ in range(3):
        model(torch.randn(4, 2, generator=torch.Generator().manual_seed(1)))
        average.update_parameters(model)
    assert torch.equal(average.module.running_mean, model.running_mean)
