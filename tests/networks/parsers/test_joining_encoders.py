"""Networks that join pairs of neighbours: which pair they take where several are equally good."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sequence_networks import SIZE, made

from treemem.ops import compile_steps

SCORES = {
    "EfficientBeamTreeGRC": "score.score_map.weight",
    "BeamTreeGRC": "score_map.weight",
    "GumbelTreeLSTM": "cell.query",
    "DisjointTreeLSTM": "parser.query",
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("engine", ["naive", "fused"])
@pytest.mark.parametrize("name", SCORES)
def test_of_equally_good_pairs_the_first_is_joined(name: str, engine: Any, compiled: bool) -> None:
    network = made(name, engine=engine).eval()
    with torch.no_grad(), compile_steps(compiled):
        network.get_parameter(SCORES[name]).zero_()
        inputs = torch.randn(2, 5, SIZE, dtype=torch.float64)
        joined = network.read(inputs, torch.tensor([4, 2]), trace=True).trace["joined"]
    assert joined.tolist() == [[0, 1, 2, 3, 0], [0, 1, 0, 0, 0]]
