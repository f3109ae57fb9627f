"""Gold trees: of the Penn Treebank, of a file, or of the text that a model was trained on."""

from __future__ import annotations

from pathlib import Path

from treemem.errors import RecipeError
from treemem.runs.network_folder import RECIPE
from treemem.runs.recipe import load_recipe
from treemem.runs.recipe_run import network_folder_of
from treemem.tasks.language_modeling import LanguageModeling
from treemem.tasks.sentiment import Sentiment
from treemem.trees.formats.penn import read_penn_trees
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.tree import Tree

_TASKS = (LanguageModeling.name, Sentiment.name)
_RECORDS = (".jsonl", ".ndjson", ".csv", ".parquet")


def gold_trees(source: str | Path | None, model: str | Path, *, longest: int | None = None) -> list[Tree]:
    """Return gold trees.

    Args:
        source: a folder of ``.mrg`` files or a bracketed file of the Penn Treebank, read with the published filter; a
            ``.txt`` file of any trees in brackets, of which all words stay, in lower case and with ``N`` for digits; or
            a file of records with the field ``tree`` (JSONL, CSV or Parquet), as ``treemem generate`` writes it. None:
            the test sentences of the grammar or treebank that the model was trained on.
        model: the folder of the model's run.
        longest: leave out sentences of more words.

    Raises:
        RecipeError: no such file, no sentence left, or no recipe beside the model that says what it was trained on.
        ParseError: a file that cannot be read.
    """
    trees = _trees_of_run(model) if source is None else _trees_of_file(Path(source))
    kept = no_longer(trees, longest)
    if not kept:
        if longest is None:
            raise RecipeError(f"{model if source is None else source} has no gold tree; name a file of them (--gold)")
        raise RecipeError(f"there is no gold tree of at most {longest} words; raise the limit (--longest)")
    return kept


def no_longer(trees: list[Tree], longest: int | None) -> list[Tree]:
    """Return the trees of at most so many words; None: all."""
    return [tree for tree in trees if longest is None or sum(1 for _ in tree.leaves()) <= longest]


def _trees_of_file(path: Path) -> list[Tree]:
    name = path.name.removesuffix(".gz")
    if not name.endswith(_RECORDS):
        return read_penn_trees(path, tags=None) if name.endswith(".txt") else read_penn_trees(path)
    forest = LanguageModeling().read_examples(path)
    if forest.is_flat:
        raise RecipeError(f"{path} has no field tree; gold trees are needed")
    return list(forest)


def _trees_of_run(model: str | Path) -> list[Tree]:
    folder = network_folder_of(model)
    if folder is None:
        raise RecipeError(f"there is no {RECIPE} beside the model {model}; name a file of gold trees (--gold)")
    recipe = load_recipe(folder / RECIPE)
    if recipe.task not in _TASKS:
        raise RecipeError(
            f"{model} is no language model but a model of {recipe.task}; name one of {' or '.join(_TASKS)}"
        )
    forest = recipe.make_task().make_data(recipe.data).forest
    if forest.is_flat:
        raise RecipeError(f"{model} was trained on texts without trees; name a file of gold trees (--gold)")
    return list(forest[forest.tree_data["split"] == SPLITS[2]])
