"""What an interrupted run left in its folder: is there one, what goes on from it, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from treemem import checkpoint
from treemem.errors import CheckpointError, RecipeError, TreememError

_logger = logging.getLogger(__name__)
_CHECKPOINTS = ("last", "best")


@dataclass(frozen=True, eq=False)
class Saved:
    """A run as its newest whole checkpoint has it.

    Attributes:
        place: the folder of the checkpoint.
        state: what :func:`treemem.checkpoint.save` was given as training state.
        weights: of the model, by name.
        records: the log until then.
        problem: what was wrong with the checkpoint after it; empty where there was none.
    """

    place: Path
    state: dict[str, Any]
    weights: dict[str, Tensor]
    records: list[dict[str, Any]]
    problem: str


def check_vacant(folder: Path) -> None:
    """Refuse a folder with a run in it.

    Raises:
        RecipeError: there is one.
    """
    if any(checkpoint.exists(folder / name) for name in _CHECKPOINTS):
        raise RecipeError(f"{folder} holds a run; choose another folder, or go on with it (resume) or overwrite it")


def clear(folder: Path, overwrite: bool) -> None:
    """Delete what was written half, and with ``overwrite`` the run."""
    for name in _CHECKPOINTS:
        checkpoint.clear_unfinished(folder / name)
        if overwrite:
            checkpoint.remove(folder / name)


def saved_run(folder: Path) -> Saved | None:
    """The run in a folder; None where none has begun.

    Raises:
        CheckpointError: none of its checkpoints is whole.
    """
    last, problem, _ = checkpoint.newest_whole(folder / "last")
    if last is not None:
        return Saved(last, *checkpoint.load_training_state(last), problem)
    if problem:
        raise CheckpointError(
            f"cannot resume {folder}: {problem}; choose another output folder, or overwrite it to begin anew"
        )
    return None


def forget_torn_last(folder: Path, problem: str) -> None:
    """Say that the last checkpoint is torn, and remove it, so that the next save keeps the whole one before it."""
    _logger.warning("%s; going on from the checkpoint before it", problem)
    checkpoint.remove_newest(folder / "last")


def records_before_lost_best(folder: Path, best_epoch: int, *, is_in_last: bool) -> Sequence[dict[str, Any]] | None:
    """The records until the best checkpoint that is whole, where that of the best epoch is lost, which is told.

    A newer one is removed: the run was killed before the last checkpoint of that epoch was written. So is a torn one.

    Args:
        folder: of the run.
        best_epoch: of which epoch the best checkpoint is to be.
        is_in_last: whether the last checkpoint has the lost weights too.

    Returns:
        None where it is whole; nothing where none is.
    """
    records, problem = _best_records(folder)
    if len(records) > best_epoch:
        checkpoint.remove_newest(folder / "best")
        records, problem = _best_records(folder)
        if len(records) > best_epoch:
            records = []
    if len(records) == best_epoch and not problem:
        return None
    kept = f"keeping that of epoch {len(records)}" if records else "none is left"
    if is_in_last:
        kept = "it is made again from the last one"
    _logger.warning("%s: the best checkpoint is lost; %s", problem or folder, kept)
    if problem:
        checkpoint.remove_newest(folder / "best")
    return records


def _best_records(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The records until the newest whole best checkpoint, and what was wrong with the one after it."""
    best, problem, _ = checkpoint.newest_whole(folder / "best")
    return ([] if best is None else checkpoint.load_records(best)), problem


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Tell a training state that lacks something, or holds something else there, as a ``CheckpointError``."""
    try:
        yield
    except TreememError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"cannot resume from {folder}, whose training state is of another form: {problem}; choose another output "
            "folder (--output), or begin anew in place of that run with overwrite (--overwrite)"
        ) from error
