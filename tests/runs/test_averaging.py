from __future__ import annotations

import pytest
import torch
from torch import nn

from treemem.runs.averaging import averaged_model


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


def test_buffers_are_those_of_the_model() -> None:
    model = nn.BatchNorm1d(2)
    average = averaged_model(model, 0.9)
    for _ in range(3):
        model(torch.randn(4, 2, generator=torch.Generator().manual_seed(1)))
        average.update_parameters(model)
    assert torch.equal(average.module.running_mean, model.running_mean)


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
