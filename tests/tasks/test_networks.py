"""Every task offers every network, under the same name."""

from __future__ import annotations

import numpy as np
import pytest

from treemem.model import Model
from treemem.networks import NETWORKS, every_network
from treemem.task import TASKS

TEXTS = {
    "equation_verification": ["x + sin(y) = sin(y) + x", "x = y"],
    "listops": ["[MAX 2 9 [MIN 4 7 ] 0 ]", "5"],
    "logical_inference": ["( a ( and b ) )\t( not b )", "a\tb"],
}


def test_all_networks_of_the_library_are_offered() -> None:
    own = {name for name in NETWORKS.names() if NETWORKS.find(name).__module__.startswith("treemem.")}
    own -= {"SequenceToSequence", "LanguageModel", "MemoryRNN", "PRPN"}  # of the tasks that write sequences
    own -= {"WordByWordAttention", "AttentiveReader", "ImpatientReader", "DeepLSTMReader"}  # of pairs
    assert {config.network for config in every_network(50).values()} == own


@pytest.mark.parametrize(
    ("task_name", "name"),
    [
        *(("logical_inference", name) for name in every_network(50)),
        *((task, name) for task in ("equation_verification", "listops") for name in ("Tree-LSTM", "LSTM")),
    ],
)
def test_every_network_runs_on_every_task(task_name: str, name: str) -> None:
    task = TASKS.find(task_name)()
    model = Model(task, task.networks[name])
    examples = TEXTS[task_name]
    probabilities = np.asarray(model.predict(examples))
    assert probabilities.shape[0] == len(examples)
    assert np.isfinite(probabilities).all()
