"""Small untrained models of each task, for the tests of batch evaluation."""

from __future__ import annotations

import torch

from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.task import TASKS


def small_model(
    task: str = "equation_verification", network: str = "TreeLSTM", seed: int = 0, **options: object
) -> Model:
    torch.manual_seed(seed)
    return Model(TASKS.find(task)(**options), NetworkConfig(network, {"hidden_size": 4})).eval()
