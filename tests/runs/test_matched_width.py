from __future__ import annotations

import pytest

from treemem.errors import RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig, every_network
from treemem.runs.matched_width import matched_width, number_of_weights
from treemem.task import TASKS

WEIGHTS = {"equation_verification": 50_000, "listops": 30_000, "logical_inference": 30_000}


@pytest.mark.parametrize(
    ("task_name", "name"),
    [*(("listops", name) for name in every_network(4)), *((task, "Tree-LSTM") for task in WEIGHTS)],
)
def test_every_network_comes_within_a_tenth_of_the_weights(task_name: str, name: str) -> None:
    task, weights = TASKS.find(task_name)(), WEIGHTS[task_name]
    found = matched_width(task, every_network(4)[name], weights)
    made = sum(weight.numel() for weight in Model(task, found).parameters())
    assert made == number_of_weights(task, found)
    assert abs(made - weights) <= 0.1 * weights


@pytest.mark.parametrize(("name", "option", "number"), [("Transformer", "num_heads", 4), ("ON-LSTM", "chunk_size", 8)])
def test_the_width_is_a_multiple_of_heads_and_chunks(name: str, option: str, number: int) -> None:
    task = TASKS.find("listops")()
    found = matched_width(task, every_network(8)[name].replace(**{option: number}), 100_000, tolerance=0.2)
    assert found.options["hidden_size"] % number == 0
    assert found.options[option] == number


@pytest.mark.parametrize("name", ["Tree-LSTM", "ON-LSTM"])
@pytest.mark.parametrize("weights", [2_000, 43_210])
def test_no_other_width_is_nearer(name: str, weights: int) -> None:
    task = TASKS.find("listops")()
    found = matched_width(task, every_network(4)[name], weights, tolerance=1.0)
    step = int(found.options.get("chunk_size", 1))
    width = int(found.options["hidden_size"])

    def difference(hidden_size: int) -> int:
        return abs(number_of_weights(task, found.replace(hidden_size=hidden_size)) - weights)

    assert all(difference(width) <= difference(other) for other in (width - step, width + step) if other)


def test_a_large_network_is_not_allocated() -> None:
    task = TASKS.find("listops")()
    found = matched_width(task, NetworkConfig("LSTM", {"hidden_size": 1}), 10**12)
    assert int(found.options["hidden_size"]) > 100_000


def test_weights_that_no_width_gives_are_refused() -> None:
    task = TASKS.find("listops")()
    network = NetworkConfig("Transformer", {"hidden_size": 8, "num_heads": 8, "num_layers": 4})
    with pytest.raises(RecipeError, match="no hidden size gives Transformer within 10% of 300 weights; the nearest, 8"):
        matched_width(task, network, 300)
