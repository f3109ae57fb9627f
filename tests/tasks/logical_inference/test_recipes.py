from __future__ import annotations

import pytest
import torch

from treemem.model import Model
from treemem.runs import load_recipe
from treemem.schedule import TreeBatch
from treemem.tasks.logical_inference import RELATIONS, LogicalInference
from treemem.trees import Forest

PAIRS = ["( ( not a ) ( and b ) )\tb", "a\t( a ( or c ) )", "f\tf"]
TINY = {
    "OrderedMemory": {"hidden_size": 8, "embedding_size": 8, "slots": 3},
    "ONLSTM": {"hidden_size": 20},
    "Transformer": {"hidden_size": 8, "num_layers": 2, "feedforward_size": 16},
    "UniversalTransformer": {"hidden_size": 8, "num_steps": 2, "feedforward_size": 16},
}
PUBLISHED = load_recipe("logical_inference/published")
NETWORKS = {**PUBLISHED.networks, **LogicalInference.networks}


@pytest.mark.parametrize("form", ["binary", "operators"])
@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_of_the_task_and_of_its_published_recipe_learns_from_a_batch(name: str, form: str) -> None:
    task = LogicalInference(**{**PUBLISHED.task_options, "form": form})
    torch.manual_seed(1)
    model = Model(task, NETWORKS[name].replace(**TINY.get(NETWORKS[name].network, {"hidden_size": 8})))
    forest = task.examples(Forest.from_trees(task.parse(text) for text in PAIRS)).forest
    outputs = model(TreeBatch.from_trees(forest, model.vocabulary, trees_per_example=2))
    assert outputs.shape == (3, len(RELATIONS))
    task.loss(outputs, {"label": torch.tensor([0, 1, 2])}).backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad is not None, weight
        assert parameter.grad.isfinite().all(), weight


def test_the_published_recipe_makes_pairs_of_which_the_longer_ones_are_for_the_test() -> None:
    recipe = load_recipe("logical_inference/published", ["data.size=600"])
    task = recipe.make_task()
    examples = task.examples(task.make_data(recipe.data).forest)
    assert examples.group[examples.part("train")].max() == 6
    assert examples.group[examples.part("test")].max() == 12


def test_the_attention_networks_have_as_many_layers_as_the_memory_has_slots_and_read_pairs_as_one_sequence() -> None:
    slots = PUBLISHED.networks["Ordered Memory"].options["slots"]
    transformer, universal = (PUBLISHED.networks[name].options for name in ("Transformer", "Universal Transformer"))
    assert transformer["num_layers"] == universal["num_steps"] == slots
    assert transformer["joint"] is universal["joint"] is True


def test_the_ablation_differs_from_the_ordered_memory_in_its_cell_alone() -> None:
    memory, ablation = (PUBLISHED.networks[name] for name in ("Ordered Memory", "Ordered Memory, Tree-RNN cell"))
    assert memory.replace(cell="rnn") == ablation
