"""Loggers of a training: what gets the record of each epoch, such as TensorBoard or Weights & Biases."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from treemem.errors import RecipeError
from treemem.records import writing
from treemem.runs.options import TrainingOptions
from treemem.runs.progress import RunLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_logger = logging.getLogger(__name__)


class Logger(Protocol):
    """What gets the record of each epoch. Any function of one argument is a logger.

    It is called after the checkpoint of the epoch is written, in the first process. If it raises an ``Exception``, this
    becomes a warning in the log, and the training goes on; the next epoch calls it again.
    """

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take the record of an epoch.

        Args:
            record: a copy of what ``metrics.jsonl`` gets: ``epoch``, ``loss``, further losses, ``seconds``, and after
                an evaluation the metrics of the validation examples (``validation_accuracy``, ...), with their scores
                by group as a list in ``validation``.
        """


def numbers_of(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the numbers of a record, without the epoch."""
    for name, value in record.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "epoch":
            yield name, value


class TensorBoardLogger:
    """Write a curve for each number of the records, as event files of TensorBoard.

    Args:
        folder: of the event files.
        records: of the epochs that a run has done; they are written now, and replace all points that are there. None:
            points that are there stay.

    Raises:
        RecipeError: TensorBoard is not installed, or the folder cannot be written.

    Example:
        >>> from contextlib import closing
        >>> with closing(TensorBoardLogger("curves")) as log:
        ...     log({"epoch": 1, "loss": 0.7})
    """

    def __init__(self, folder: str | Path, records: Iterable[Mapping[str, Any]] | None = None) -> None:
        with writing(folder):
            self._writer = summary_writer()(str(folder), purge_step=None if records is None else 1)
        for record in records or ():
            self(record)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Add a point to each curve, and write it to the disk."""
        for name, value in numbers_of(record):
            self._writer.add_scalar(name, value, int(record["epoch"]))
        self._writer.flush()

    def close(self) -> None:
        """Close the event files."""
        self._writer.close()


def summary_writer() -> type[SummaryWriter]:
    """Return TensorBoard's ``SummaryWriter``.

    Raises:
        RecipeError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RecipeError("tensorboard is not installed; pip install 'treemem[log]'") from error
    return SummaryWriter


class WandbLogger:
    """Log each number of the records to a run of Weights & Biases.

    ``WANDB_MODE=offline`` in the environment writes to the folder and connects to no server.

    Args:
        project: of Weights & Biases.
        name: of the run; None: Weights & Biases chooses one.
        folder: where Weights & Biases writes its folder ``wandb``; it must exist.
        config: options of the training to show beside the curves.

    Raises:
        RecipeError: wandb is not installed.
    """

    def __init__(
        self,
        project: str,
        name: str | None = None,
        folder: str | Path = ".",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._run = wandb_module().init(project=project, name=name, dir=str(folder), config=dict(config or {}))

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of an epoch; its number is the step."""
        self._run.log(dict(numbers_of(record)), step=int(record["epoch"]))

    def close(self) -> None:
        """End the run."""
        self._run.finish()


def wandb_module() -> ModuleType:
    """Return the package ``wandb``.

    Raises:
        RecipeError: it is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise RecipeError("wandb is not installed; pip install 'treemem[wandb]'") from error
    module: ModuleType = wandb
    return module


def check_loggers(loggers: Sequence[Logger], options: TrainingOptions) -> None:
    """Check before a training that loggers can be called, and that what the options ask for is installed.

    Raises:
        RecipeError: they cannot, or it is not.
    """
    for logger in loggers:
        if not callable(logger):
            raise RecipeError(f"a logger is a function of a record, such as TensorBoardLogger(...), not {logger!r:.60}")
    if options.tensorboard:
        summary_writer()
    if options.wandb is not None:
        wandb_module()


class Loggers:
    """The loggers of a run: those that are given, and those that its options ask for, which :meth:`close` closes.

    Args:
        log: of the run, which comes first; its errors end the run.
        given: by the caller.
        options: of the training.
        records: of the epochs that are done.
        config: of the run, for Weights & Biases.
    """

    def __init__(
        self,
        log: RunLog,
        given: Sequence[Logger],
        options: TrainingOptions,
        records: Sequence[Mapping[str, Any]],
        config: Mapping[str, Any],
    ) -> None:
        self._log, folder = log, log.path.parent
        self._opened: list[TensorBoardLogger | WandbLogger] = []
        if options.tensorboard:
            self._opened.append(TensorBoardLogger(folder / "tensorboard", records))
        if options.wandb is not None:
            self._opened.append(WandbLogger(options.wandb, str(folder), folder, config))
        self._all: list[Logger] = [*given, *self._opened]

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Call each logger with a copy of the record of an epoch. An exception becomes a warning.

        Raises:
            RecipeError: the log of the run cannot be written.
        """
        self._log.add(record)
        for logger in self._all:
            try:
                logger(copy.deepcopy(record))
            except Exception as error:  # whatever a user's function or a service raises
                _warn(f"epoch {record['epoch']}", logger, error)

    def close(self) -> None:
        """Close the loggers that the options asked for."""
        for logger in self._opened:
            try:
                logger.close()
            except Exception as error:  # whatever a service raises
                _warn("at the end", logger, error)


def _warn(moment: str, logger: Logger, error: Exception) -> None:
    name = getattr(logger, "__qualname__", type(logger).__name__)
    _logger.warning(
        "%s: the logger %s raised %s: %s; its checkpoint is written, and the training goes on",
        moment, name, type(error).__name__, error,
    )  # fmt: skip
