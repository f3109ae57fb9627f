"""The loop that the benchmarks compare with computes what the authors' code does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from golden.ordered_memory_files import WEIGHTS
from golden.stack_tree_files import same

from treemem.networks.parsers.ordered_memory.layer import MemoryMaps

TESTS = Path(__file__).parents[2]


def test_the_published_loop_gives_the_encodings_and_gradients_of_the_golden_file() -> None:
    sys.path.append(str(TESTS.parent))
    from benchmarks.published_ordered_memory import published_ordered_memory

    arrays = dict(np.load(TESTS / "golden" / "sequence" / "om_right_padded.npz"))
    inputs, lengths = torch.from_numpy(arrays["X"]).transpose(0, 1), torch.from_numpy(arrays["lengths"])
    size = len(arrays["W_in"])
    maps = MemoryMaps(inputs.shape[2], size, "gated").double()
    with torch.no_grad():
        for name, parameter in WEIGHTS.items():
            own = maps.get_parameter(parameter)
            own.copy_(torch.from_numpy(arrays[name]).view_as(own))
    found = published_ordered_memory(inputs, lengths, maps.weights(), int(arrays["n_slots"]), 0.0)
    same(found, arrays["encoding"], "encoding")
    (found * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    gradients = [name for name in WEIGHTS if f"grad_{name}" in arrays]
    assert gradients
    for name in gradients:
        own = maps.get_parameter(WEIGHTS[name]).grad
        assert own is not None
        same(own.view(arrays[f"grad_{name}"].shape), arrays[f"grad_{name}"], name)
