from __future__ import annotations

import pytest

from treemem.runs import load_recipe, recipe_names
from treemem.task import TASKS


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.endswith("/published")])
def test_a_network_of_the_task_is_that_of_its_name_in_the_published_recipe(name: str) -> None:
    recipe = load_recipe(name)
    networks = TASKS.find(recipe.task).networks
    shared = recipe.networks.keys() & networks.keys()
    assert len(shared) > 4
    assert {network: networks[network] for network in shared} == {
        network: recipe.networks[network] for network in shared
    }
