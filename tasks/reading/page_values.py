"""Values of the page of results."""

from __future__ import annotations

from treemem.runs.recipe import load_recipe


def guesses_of_small() -> str:
    """Return the table of the baselines on the data of the recipe "small", as Markdown."""
    recipe = load_recipe("reading/small")
    card = recipe.make_task().make_data(recipe.data).card
    return card[card.index("| split") :].rstrip()
