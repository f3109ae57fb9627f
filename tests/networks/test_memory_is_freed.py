from __future__ import annotations

import gc

import pytest
import torch

from treemem.data.loader import BatchOptions
from treemem.model import Model
from treemem.networks import every_network
from treemem.task import TASKS
from treemem.trees.forest import Forest

NETWORKS = every_network(16)
EXPRESSION = "[MAX 2 [MIN 3 4 1 ] 0 [SM 5 6 [MED 7 8 1 ] ] 9 [MAX 1 1 ] ]"  # long enough for every step in C++


def num_tensors() -> int:
    """Those made since gc.freeze."""
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_leaves_no_tensor_behind(name: str) -> None:
    task = TASKS.find("listops")()
    model = Model(task, NETWORKS[name])
    examples = task.examples(Forest.from_trees([task.parse(EXPRESSION)] * 16))
    batch = next(iter(examples.loader(model.vocabulary, None, BatchOptions(16)).batches()))
    counts = []
    gc.freeze()
    for _ in range(3):
        for is_trained in (True, False):
            output = model.run(batch).outputs
            if is_trained:
                output.square().sum().backward()
            del output
        model.zero_grad()
        counts.append(num_tensors())
    gc.unfreeze()
    assert counts[1:] == [counts[1]] * 2
