from __future__ import annotations

import torch

from treemem.engines.activation import activation


def test_an_elu_is_the_argument_or_its_exponential_less_one() -> None:
    argument = torch.tensor([-2.0, -0.5, 0.0, 0.5], dtype=torch.float64)
    expected = torch.tensor([-0.8646647167633873, -0.3934693402873666, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(activation("elu")(argument), expected, rtol=0, atol=1e-15)
