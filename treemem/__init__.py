"""Batches of trees, and the neural networks with memory that run on them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treemem.attribution import explain
    from treemem.checkpoint import load, load_pretrained
    from treemem.data.as_batch import as_batch
    from treemem.errors import (
        CellError,
        CheckpointError,
        GraphError,
        ParseError,
        RecipeError,
        TreememError,
        VocabularyError,
    )
    from treemem.predict import TreePredictor, predict_file, predict_shards
    from treemem.runs.evaluate import evaluate
    from treemem.runs.fit import fit
    from treemem.schedule.tree_batch import TreeBatch
    from treemem.trees.forest import Forest
    from treemem.trees.tree import Tree
    from treemem.trees.vocabulary import Vocabulary

__version__ = "0.1.0"

_HOME = {
    "CellError": "treemem.errors",
    "CheckpointError": "treemem.errors",
    "Forest": "treemem.trees.forest",
    "GraphError": "treemem.errors",
    "ParseError": "treemem.errors",
    "RecipeError": "treemem.errors",
    "Tree": "treemem.trees.tree",
    "TreeBatch": "treemem.schedule.tree_batch",
    "TreePredictor": "treemem.predict",
    "TreememError": "treemem.errors",
    "Vocabulary": "treemem.trees.vocabulary",
    "VocabularyError": "treemem.errors",
    "as_batch": "treemem.data.as_batch",
    "evaluate": "treemem.runs.evaluate",
    "explain": "treemem.attribution",
    "fit": "treemem.runs.fit",
    "load": "treemem.checkpoint",
    "load_pretrained": "treemem.checkpoint",
    "predict_file": "treemem.predict",
    "predict_shards": "treemem.predict",
}
_ROOMS = (
    *("attribution", "checkpoint", "conversion", "explore", "hub", "induction", "nn", "ops", "predict"),
    *("data", "metrics", "model", "networks", "runs", "schedule", "sklearn", "task", "tasks", "trees"),
)

__all__ = [
    "CellError",
    "CheckpointError",
    "Forest",
    "GraphError",
    "ParseError",
    "RecipeError",
    "Tree",
    "TreeBatch",
    "TreePredictor",
    "TreememError",
    "Vocabulary",
    "VocabularyError",
    "__version__",
    "as_batch",
    "evaluate",
    "explain",
    "fit",
    "load",
    "load_pretrained",
    "predict_file",
    "predict_shards",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, so that ``import treemem`` costs nothing."""
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"treemem.{name}")
    else:
        raise AttributeError(f"module 'treemem' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
