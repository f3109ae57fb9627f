"""What a run saves, and how it goes on from that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import CheckpointError, TreememError
from treemem.model import Model
from treemem.runs.state import (
    Progress,
    check_epochs,
    check_same_run,
    random_state,
    seed_generators,
    set_random_state,
)

if TYPE_CHECKING:
    from treemem.runs.trainer import Trainer


class SavedRun(NamedTuple):
    """What the last whole checkpoint of a run holds.

    Attributes:
        state: the training state.
        weights: of the model in it, by name; with an EMA those of the average.
        records: the log until then.
    """

    state: dict[str, Any]
    weights: dict[str, Tensor]
    records: list[dict[str, Any]]


def saved_run(folder: RunFolder) -> SavedRun | None:
    """Return the last whole checkpoint of a run; None if no run has begun.

    Raises:
        CheckpointError: there are checkpoints, and none is whole.
    """
    folder.drop_damaged()
    found = folder.find("last", with_training_state=True)
    return None if found is None else SavedRun(*checkpoint.training_state_of(found[2], found[1]))


def check_saved(run: Trainer, saved: SavedRun) -> None:
    """Set the progress of a run to the saved one.

    Raises:
        RecipeError: it is another run, or one of more epochs.
        CheckpointError: the training state is of another form.
    """
    place = str(run.folder.path)
    with _reading(run.folder.path):
        check_same_run(saved.state["fingerprint"], run.fingerprint, run.options, place)
        run.progress = Progress(**saved.state["progress"], records=saved.records)
        check_epochs(run.progress, run.options, run.monitored, place)


def take_up(run: Trainer, saved: SavedRun) -> None:
    """Set weights, optimisers and random generators to the saved ones.

    Raises:
        CheckpointError: the training state is of another form.
    """
    state, progress, rank = saved.state, run.progress, run.processes.rank
    with _reading(run.folder.path):
        if run.average is None:
            run.model.load_state_dict(saved.weights)
        else:
            run.model.load_state_dict(state["weights"])
            run.average.load_state_dict(state["average"])
        run.learner.load_state_dict(state["learner"])
        each = state["processes"]
        if len(each) != run.processes.count:
            run.tell("%d processes trained until here, %d go on", len(each), run.processes.count)
        if rank < len(each):
            set_random_state(each[rank]["random"], run.device)
            run.learner.state = each[rank]["state"]
        else:
            seed_generators(run.options.seed, rank, progress.epoch, progress.step)
    _find_best(run)
    if progress.finished(run.options):
        run.tell("%s is finished: epoch %d was its last", run.folder.path, progress.epoch)
    else:
        step = f" after step {progress.step}" if progress.step else ""
        run.tell("resuming %s in epoch %d%s", run.folder.path, progress.epoch + 1, step)


def _find_best(run: Trainer) -> None:
    """Compare with the best checkpoint that is whole from here on; a damaged one was dropped."""
    progress = run.progress

    def epoch_of_best() -> int:
        found = None if run.folder.number_of("best") is None else run.folder.find("best")
        return 0 if found is None else len(checkpoint.records_of(found[2], found[1]))

    epoch = run.processes.in_first(epoch_of_best)
    if epoch != progress.best_epoch:
        kept = f"that of epoch {epoch} is the best now" if epoch else "the best is chosen anew from here on"
        run.tell("the best checkpoint, of epoch %d, is lost; %s", progress.best_epoch, kept)
        progress.best_epoch = epoch
        progress.best_value = progress.records[epoch - 1].get(run.monitored) if epoch else None


def save(run: Trainer, *, best: bool) -> None:
    """Write a checkpoint: the kept model, and what resuming needs."""
    model = run.kept_model
    state: dict[str, Any] = {
        "fingerprint": run.fingerprint,
        "progress": run.progress.to_dict(),
        "learner": run.learner.state_dict(),
        "processes": run.processes.gathered({"random": random_state(run.device), "state": run.learner.state}),
    }
    if run.average is not None:
        state["weights"] = run.model.state_dict()
        state["average"] = dict(run.average.state_dict())
    fitted = model.task.fitted_temperature(*run.validated) if best and run.validated is not None else None
    model.temperature = 1.0 if fitted is None else fitted
    with run.processes.agreeing():
        if run.processes.is_first:
            files = checkpoint.files_of(model, run.progress.records)
            run.folder.save({**files, **checkpoint.training_files_of(state)}, best=best)
    run.note_save()


def best_model(run: Trainer) -> Model:
    """Return the model of the best checkpoint, in all processes."""
    best = run.model
    with run.processes.agreeing():
        if run.processes.is_first:
            best = checkpoint.load(
                run.folder.path,
                device=run.device,
                networks=run.networks,
                tasks={run.model.task.name: type(run.model.task)},
            )
    if run.processes.count > 1:
        kept: Mapping[str, Tensor] = run.processes.in_first(
            lambda: {name: each.cpu() for name, each in best.state_dict().items()}
        )
        best.load_state_dict(kept)
        best.temperature = run.processes.in_first(lambda: best.temperature)
    return best.eval()


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn errors of a training state that lacks something into a ``CheckpointError``."""
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
