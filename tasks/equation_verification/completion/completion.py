"""The scores that a network which verifies equations gives to fillings of blanks, and the ranks that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.checked_options import checked_choice, checked_count
from treemem.errors import CellError, GraphError, RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.model import Model
from treemem.nn.tree_network import TreeNetwork
from treemem.ops import announced_run
from treemem.schedule import TreeBatch
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
    """The scores ``z`` of equations filled with each candidate, in evaluation mode and without gradients.

    Both engines give the same scores but for rounding. ``"whole"`` makes every filled equation a tree and scores them
    as the model scores any equations. ``"paths"`` runs what is outside of the path from a blank to the root of its side
    once for all candidates, and the candidates once for all equations of a batch; it takes networks whose states
    depend on subtrees alone, on the fused engine. ``"auto"`` takes it where it can.

    Args:
        model: a network under the head of equation verification.
        equations: the equations.
        blanks: where they are blank.
        candidates: what may stand there; the published ones by default.
        engine: how to run.
        rows_at_once: about how many rows run together, one equation's at least.

    Yields:
        For each batch of blanks, in their order, ``[blanks, candidates]``.

    Raises:
        RecipeError: a model of another task, an unknown engine, or ``"paths"`` for a network that it does not take.
        GraphError: a blank that is no node of its equation, or its root.
        CellError: a score that is not a number, as after a training that diverged.
        VocabularyError: a label that the model does not know.
    """
    if not isinstance(model.task, EquationVerification):
        raise RecipeError(f"equations are completed by models of equation_verification, not of {model.task.name}")
    checked_choice("engine", engine, get_args(Engine))
    _check_blanks(equations, blanks)
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


def _check_blanks(equations: Forest, blanks: Blanks) -> None:
    """Make sure that every blank is a node of its equation, and not the root.

    Raises:
        GraphError: one is not.
    """
    known = (blanks.tree >= 0) & (blanks.tree < len(equations))
    tree = np.where(known, blanks.tree, 0)
    inside = known & (blanks.node >= equations.begin[tree]) & (blanks.node < equations.begin[tree + 1] - 1)
    if not inside.all():
        wrong = int(np.argmin(inside))
        raise GraphError(
            f"blank {wrong} is node {int(blanks.node[wrong])} of equation {int(blanks.tree[wrong])}; it must be one of "
            f"its nodes, but for the root, and there are {len(equations)} equations"
        )


def _no_paths(model: Model) -> str:
    """Why the states of the model's network cannot be taken from path to path; empty where they can."""
    network = model.encoder
    if not isinstance(network, TreeNetwork) or network.down is not None or network.input_size is not None:
        return "its states depend on more than the subtree below"
    if network.engine not in ("auto", "fused"):
        return f"its engine is {network.engine!r}; set it to 'fused'"
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
        outputs = _outputs(model, fillings.batch(first, last), int(num_rows.sum()))
        scores = _scores(outputs).view(last - first, fillings.num_distinct)
        yield scores.numpy()[:, fillings.distinct_of_candidate]


def _outputs(model: Model, batch: TreeBatch, rows_of_all: int) -> torch.Tensor:
    """The outputs for one batch, on the CPU; nothing is left changed for whoever goes through the batches."""
    with in_evaluation_mode(model), announced_run(rows_of_all):
        return model(batch.to(model.device)).cpu()


def _scores(outputs: torch.Tensor) -> torch.Tensor:
    """``z`` of the outputs; the head of numeric equations has other outputs beside it."""
    return outputs.reshape(len(outputs), -1)[:, 0]


def _parts(size: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Neighbours of a common size of at most ``most``, or single ones."""
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
    """Put every candidate into every blank, and say at which rank the right one is; see :class:`Completion`.

    Args:
        model, equations, blanks, candidates, engine, rows_at_once: as for :func:`filling_scores`.
        draws: how often one candidate of each class is drawn, for the ranks ``random_collapse``.
        seed: of the draws.
        advance: told the number of blanks done after each batch.

    Raises:
        RecipeError, GraphError, CellError, VocabularyError: as from :func:`filling_scores`.
        RecipeError: a blank whose original is none of the candidates, no blanks at all, or a seed that is no whole
            number from 0.
    """
    random = np.random.default_rng(checked_count("seed", seed, least=0))
    candidates = candidates or make_candidates()
    if not len(blanks):
        raise RecipeError("there are no blanks to fill")
    known = (blanks.original >= 0) & (blanks.original < len(candidates))
    if not known.all():
        raise RecipeError(
            f"blank {int(np.argmin(known))} has no original among the {len(candidates)} candidates to compare with"
        )
    found: list[dict[str, NDArray[np.int64]]] = []
    best: list[NDArray[np.int64]] = []
    done = 0
    for scores in filling_scores(model, equations, blanks, candidates, engine=engine, rows_at_once=rows_at_once):
        original = blanks.original[done : done + len(scores)]
        found.append(rank_candidates(scores, original, candidates.value_class, draws=draws, random=random))
        best.append(scores.argmax(1))
        done += len(scores)
        advance(len(scores))
    ranks = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    depth = equations.height()[equations.begin[blanks.tree + 1] - 1]
    return Completion(depth, np.concatenate(best), ranks)
