from __future__ import annotations

import pytest
import torch

from treemem.model import Model
from treemem.runs import load_recipe
from treemem.schedule import TreeBatch
from treemem.tasks.listops import PUBLISHED_FIGURES
from treemem.trees import Forest

RECIPE = load_recipe("listops/published")
TEXTS = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 6 5 9 ]", "7"]
TINY = {
    "OrderedMemory": {"hidden_size": 8, "embedding_size": 8, "slots": 3},
    "ONLSTM": {"hidden_size": 16},
    "LSTM": {"hidden_size": 8},
    "Transformer": {"hidden_size": 8, "num_layers": 2, "feedforward_size": 16},
    "UniversalTransformer": {"hidden_size": 8, "num_steps": 2, "feedforward_size": 16},
}


@pytest.mark.parametrize("name", RECIPE.networks)
def test_each_network_of_the_published_recipe_learns_from_a_batch(name: str) -> None:
    sizes = TINY[RECIPE.networks[name].network]
    overrides = [f"networks.{name}.options.{option}={value}" for option, value in sizes.items()]
    recipe = load_recipe("listops/published", overrides)
    task = recipe.make_task()
    torch.manual_seed(1)
    model = Model(task, recipe.networks[name])
    forest = Forest.from_trees(task.parse(text) for text in TEXTS)
    outputs = model(TreeBatch.from_trees(forest, model.vocabulary))
    assert outputs.shape == (3, 10)
    task.loss(outputs, {"label": torch.tensor([9, 0, 7])}).backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad is not None, weight
        assert parameter.grad.isfinite().all(), weight


def test_the_networks_that_the_papers_have_figures_for_are_called_alike() -> None:
    published = {figure.network for figure in PUBLISHED_FIGURES}
    assert set(RECIPE.networks) - published == {"ON-LSTM"}


def test_the_attention_networks_have_as_many_layers_as_the_memory_has_slots() -> None:
    slots = RECIPE.networks["Ordered Memory"].options["slots"]
    assert RECIPE.networks["Transformer"].options["num_layers"] == slots
    assert RECIPE.networks["Universal Transformer"].options["num_steps"] == slots


def test_the_ablation_differs_from_the_ordered_memory_in_its_cell_alone() -> None:
    memory, ablation = (RECIPE.networks[name] for name in ("Ordered Memory", "Ordered Memory, Tree-RNN cell"))
    assert memory.replace(cell="rnn") == ablation
