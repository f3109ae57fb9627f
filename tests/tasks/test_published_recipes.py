from __future__ import annotations

from typing import Any

import pytest
import torch

from treemem.model import Model
from treemem.networks import NETWORKS, every_network
from treemem.networks.sequences.language_model.layer import TokenPredictor
from treemem.runs import load_recipe, recipe_names
from treemem.schedule import TreeBatch
from treemem.task import TASKS, Task
from treemem.tasks.listops import PUBLISHED_FIGURES, ListOps
from treemem.tasks.logical_inference import LogicalInference
from treemem.trees import Forest

LISTOPS, LOGIC = load_recipe("listops/published"), load_recipe("logical_inference/published")
TEXTS = {
    "listops": ["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 6 5 9 ]", "7"],
    "logical_inference": ["( ( not a ) ( and b ) )\tb", "a\t( a ( or c ) )", "f\tf"],
}
TINY = {
    "OrderedMemory": {"hidden_size": 8, "embedding_size": 8, "slots": 3},
    "ONLSTM": {"hidden_size": 20, "chunk_size": 10},
    "Transformer": {"hidden_size": 8, "num_layers": 2, "feedforward_size": 16},
    "UniversalTransformer": {"hidden_size": 8, "num_steps": 2, "feedforward_size": 16},
}


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.endswith("/published")])
def test_a_network_of_the_task_is_that_of_its_name_in_the_published_recipe(name: str) -> None:
    recipe = load_recipe(name)
    networks = TASKS.find(recipe.task).networks
    shared = recipe.networks.keys() & networks.keys()
    assert len(shared) > 4
    assert {network: networks[network] for network in shared} == {
        network: recipe.networks[network] for network in shared
    }


@pytest.mark.parametrize(
    ("task", "name"),
    [
        *((ListOps(**LISTOPS.task_options), name) for name in LISTOPS.networks),
        *((LogicalInference(**LOGIC.task_options), name) for name in {**LOGIC.networks, **LogicalInference.networks}),
    ],
    ids=str,
)
def test_each_published_network_learns_from_a_batch(task: Task, name: str) -> None:
    torch.manual_seed(1)
    network = {**task.networks, **load_recipe(f"{task.name}/published").networks}[name]
    model = Model(task, network.replace(**TINY.get(network.network, {"hidden_size": 8})))
    examples = task.examples(Forest.from_trees(task.parse(text) for text in TEXTS[task.name]))
    trees_per_example = examples.trees_per_example
    output = model.run(TreeBatch.from_trees(examples.forest, model.vocabulary, trees_per_example=trees_per_example))
    assert output.outputs.shape == (3, len(task.class_names))  # type: ignore[attr-defined]
    losses = [task.loss(output.outputs, {"label": torch.tensor([0, 1, 2])}).sum]
    losses += [each.sum for each in output.auxiliary_losses.values()]
    losses += [each.sum() for key, each in output.encoded.trace.items() if key == "log_probability"]
    torch.stack(losses).sum().backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad is not None, weight
        assert parameter.grad.isfinite().all(), weight


def test_networks_of_listops_have_the_names_of_the_papers() -> None:
    assert set(LISTOPS.networks) - {figure.network for figure in PUBLISHED_FIGURES} == {"ON-LSTM"}


@pytest.mark.parametrize("recipe", [LISTOPS, LOGIC], ids=lambda recipe: recipe.task)
def test_sizes_of_published_networks_agree(recipe: Any) -> None:
    memory, ablation = (recipe.networks[name] for name in ("Ordered Memory", "Ordered Memory, Tree-RNN cell"))
    assert memory.replace(cell="rnn") == ablation
    transformer, universal = (recipe.networks[name].options for name in ("Transformer", "Universal Transformer"))
    assert transformer["num_layers"] == universal["num_steps"] == memory.options["slots"]


def test_the_published_pairs_of_logic_have_the_longer_ones_for_the_test() -> None:
    recipe = load_recipe("logical_inference/published", ["data.size=600"])
    assert all(recipe.networks[name].options["joint"] for name in ("Transformer", "Universal Transformer"))
    task = recipe.make_task()
    examples = task.examples(task.make_data(recipe.data).forest)
    assert examples.group[examples.part("train")].max() == 6
    assert examples.group[examples.part("test")].max() == 12


def test_all_networks_of_the_library_are_offered() -> None:
    own = {name for name in NETWORKS.names() if NETWORKS.find(name).__module__.startswith("treemem.")}
    own -= {"SequenceToSequence", "SequenceToSequenceTransformer", "MemoryRNN"}  # of the tasks that write sequences
    own -= {name for name in own if issubclass(NETWORKS.find(name), TokenPredictor)}
    own -= {"WordByWordAttention", "AttentiveReader", "ImpatientReader", "DeepLSTMReader"}  # of pairs
    assert {config.network for config in every_network(50).values()} == own
