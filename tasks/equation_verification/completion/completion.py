"""Scores of filled equations by a network that verifies equations, and the ranks of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.checked_options import checked_choice, checked_count
from treemem.errors import CellError, RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.model import Model
from treemem.networks.trees.tree_network import TreeNetwork
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.completion.blanks import Blanks
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_verification.completion.filling import Fillings, filled_forest
from treemem.tasks.equation_verification.completion.ranks import Completion, rank_candidates
from treemem.trees.forest import Forest

Engine = Literal["auto", "paths", "whole"]


def filling_scores(
    model: Model,
    equations: Forest,
    blanks: Blanks,
    candidates: Candidates | None = None,
    *,
    engine: Engine = "auto",
    rows_at_once: int = 65_536,
) -> Iterator[NDArray[np.floating]]:
    """Yield the scores ``z`` of equations filled with each candidate, in evaluation mode and without gradients.

    Both engines give the same scores up to rounding. ``"whole"`` scores every filled equation as a tree. ``"paths"``
    runs the nodes on the path from a blank to the root of its side for each candidate, and all others once; it needs a
    network whose states depend on subtrees only, on another engine than ``"naive"``. ``"auto"`` uses it if it can.

    Args:
        model: a network with the head of equation verification.
        equations: the equations.
        blanks: their blanks.
        candidates: the published ones by default.
        engine: how to run.
        rows_at_once: about how many rows run together; at least one equation.

    Yields:
        ``[blanks, candidates]`` for each batch of blanks, in order.

    Raises:
        RecipeError: the model is of another task, the engine is unknown, or ``"paths"`` cannot run the network.
        CellError: a score is not a number.
        VocabularyError: the model does not know a label.
    """
    if not isinstance(model.task, EquationVerification):
        raise RecipeError(f"equations are completed by models of equation_verification, not of {model.task.name}")
    checked_choice("engine", engine, get_args(Engine))
    refusal = _no_paths(model)
    if engine == "paths" and refusal:
        raise RecipeError(f"the engine 'paths' does not take this {type(model.encoder).__name__}: {refusal}")
    candidates = candidates or make_candidates()
    batches = _whole if engine == "whole" or refusal else _by_paths
    done = 0
    for scores in batches(model, equations, blanks, candidates, max(1, rows_at_once)):
        if np.isnan(scores).any():
            wrong = done + int(np.argmax(np.isnan(scores).any(1)))
            raise CellError(f"a score of blank {wrong} is not a number; the weights of the network may not be either")
        done += len(scores)
        yield scores


def _no_paths(model: Model) -> str:
    """Return why the engine ``"paths"`` cannot run the model's network, or an empty text."""
    network = model.encoder
    if not isinstance(network, TreeNetwork) or network.down is not None or network.input_size is not None:
        return "its states depend on more than the subtree below"
    if network.engine == "naive":
        return "its engine is 'naive'; set it to 'auto'"
    return ""


def _whole(
    model: Model, equations: Forest, blanks: Blanks, candidates: Candidates, rows_at_once: int
) -> Iterator[NDArray[np.floating]]:
    together = max(1, rows_at_once // (8 * len(candidates)))  # a path and a bit more, of each filled equation
    for first in range(0, len(blanks), together):
        filled = filled_forest(equations, blanks[first : first + together], candidates.unified)
        outputs = model.outputs(model.task.examples(filled), batch_size=len(candidates) * together)
        yield _scores(outputs).view(-1, len(candidates)).numpy()


def _by_paths(
    model: Model, equations: Forest, blanks: Blanks, candidates: Candidates, rows_at_once: int
) -> Iterator[NDArray[np.floating]]:
    fillings = Fillings(equations, blanks, candidates.unified, model.vocabulary)
    num_rows = (fillings.path_length + 1) * fillings.num_distinct
    for first, last in _parts(num_rows, rows_at_once):
        batch = fillings.batch(first, last)
        with in_evaluation_mode(model):
            outputs = model(batch.to(model.device)).cpu()
        scores = _scores(outputs).view(last - first, fillings.num_distinct)
        yield scores.numpy()[:, fillings.distinct_of_candidate]


def _scores(outputs: torch.Tensor) -> torch.Tensor:
    """Return ``z``, the first of the outputs of a numeric head and the only one of others."""
    return outputs.reshape(len(outputs), -1)[:, 0]


def _parts(size: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges whose sizes add up to at most ``most``, or that have one element."""
    end = np.cumsum(size)
    first = 0
    while first < len(size):
        last = max(first + 1, int(np.searchsorted(end, end[first] - size[first] + most, side="right")))
        yield first, last
        first = last


def complete(
    model: Model,
    equations: Forest,
    blanks: Blanks,
    candidates: Candidates | None = None,
    *,
    engine: Engine = "auto",
    draws: int = 10,
    seed: int = 0,
    rows_at_once: int = 65_536,
    advance: Callable[[int], object] = lambda count: None,
) -> Completion:
    """Put every candidate into every blank, and rank the correct one; see :class:`Completion`.

    Args:
        model, equations, blanks, candidates, engine, rows_at_once: as for :func:`filling_scores`.
        draws: number of draws of one candidate of each class, for the ranks ``random_collapse``.
        seed: of the draws.
        advance: called with the number of blanks after each batch.

    Raises:
        RecipeError: the original of a blank is not a candidate, or the seed is not an integer from 0.
        RecipeError, CellError, VocabularyError: as from :func:`filling_scores`.
    """
    random = np.random.default_rng(checked_count("seed", seed, least=0))
    candidates = candidates or make_candidates()
    if (blanks.original < 0).any():
        blank = int(np.argmin(blanks.original))
        raise RecipeError(f"the original of blank {blank} is not a candidate; use filling_scores for such blanks")
    parts: list[dict[str, NDArray[np.int64]]] = []
    best: list[NDArray[np.int64]] = []
    done = 0
    for scores in filling_scores(model, equations, blanks, candidates, engine=engine, rows_at_once=rows_at_once):
        original = blanks.original[done : done + len(scores)]
        parts.append(rank_candidates(scores, original, candidates.value_class, draws=draws, random=random))
        best.append(scores.argmax(1))
        done += len(scores)
        advance(len(scores))
    ranks = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    depth = equations.height()[equations.begin[blanks.tree + 1] - 1]
    return Completion(depth, np.concatenate(best), ranks)
