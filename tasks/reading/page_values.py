"""Values of the page of results."""

from __future__ import annotations

from treemem.runs.recipe import load_recipe
from treemem.tasks.reading.data import make_questions


def guesses_of_small() -> str:
    """Return the table of the baselines on the data of the recipe "small", as Markdown."""
    recipe = load_recipe("reading/small")
    card = make_questions(recipe.data, recipe.make_task().class_names).card
    return card[card.index("| split") :].rstrip()
