"""One training run: what it is, how it is trained and scored, and the same run from several seeds."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from treemem.data.examples import DataSet, forest_of
from treemem.errors import RecipeError
from treemem.metrics.score import Score, mean_scores
from treemem.model_digest import weights_digest
from treemem.networks import NetworkConfig
from treemem.runs.evaluate import Evaluation, evaluate
from treemem.runs.fit import FitOptions, fit
from treemem.runs.options import TrainingOptions
from treemem.runs.same_run import deciding_options, differences
from treemem.runs.study_records import packed_answers
from treemem.runs.training_loop import FitResult
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

Parts = Mapping[str, tuple[Forest | DataSet, str | None]]
"""What a run is scored on by name: data and a split of them, or None for all."""


@dataclass(frozen=True)
class StudyRun:
    """One training run of a study.

    Attributes:
        name: of the run and its folder.
        row: of a table; the runs of a row differ only in their seeds.
        network: the network and its options.
        training: options of the training, with the seed.
        data: name of the data to train on.
        task: instead of the study's task, if the study varies an option of the task.
    """

    name: str
    row: str
    network: NetworkConfig
    training: TrainingOptions
    data: str = "data"
    task: Task | None = None

    def from_seeds(self, seeds: Sequence[int]) -> list[StudyRun]:
        """Return the run from each of some seeds, each in a folder within its own."""
        return [
            dataclasses.replace(
                self,
                name=str(seed_folder(Path(self.name), seed)),
                training=dataclasses.replace(self.training, seed=seed),
            )
            for seed in seeds
        ]

    def differences(self, record: Mapping[str, Any], task: Task, digest: str) -> dict[str, str]:
        """Return how a recorded run differs from this one, a phrase for each option by its name.

        Args:
            record: of :func:`treemem.runs.run_study`. Options that it lacks were at their defaults.
            task: if the run has none of its own.
            digest: hash of the data.
        """
        task = self.task or task
        then = _described(task, record.get("task") or {}, record["network"], record["training"])
        now = _described(task, task.options, dataclasses.asdict(self.network), dataclasses.asdict(self.training))
        return differences({**then, "data": record["data"]["hash"]}, {**now, "data": digest})


def _described(
    task: Task, task_options: Mapping[str, Any], network: Mapping[str, Any], training: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all options that decide the result of a run by name, defaults included."""
    return {
        "task options": {**_defaults_of(type(task)), **task_options},
        "network": network_options(network),
        **deciding_options(training),
    }


def network_options(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a recorded network and all its options, defaults included."""
    config = NetworkConfig(**network)
    return {"network": config.network, **_defaults_of(config.constructor()), **config.options}


def _defaults_of(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of the parameters of a class or function."""
    parameters = inspect.signature(made).parameters.items()
    return {name: part.default for name, part in parameters if part.default is not inspect.Parameter.empty}


@dataclass(frozen=True, eq=False)
class CompletedRun:
    """A trained run.

    Attributes:
        fit: the training.
        evaluations: of the best model, by the name of the part.
    """

    fit: FitResult
    evaluations: dict[str, Evaluation]

    @property
    def weights(self) -> str:
        """The hash of the best model's weights."""
        return weights_digest(self.fit.model)

    @property
    def right(self) -> dict[str, list[Any]]:
        """Which examples are correct, by part as a record holds them, without the training examples."""
        return {
            part: packed_answers(evaluation.correct)
            for part, evaluation in self.evaluations.items()
            if part != SPLITS[0] and evaluation.correct is not None
        }


def completed_run(
    task: Task,
    run: StudyRun,
    data: Forest | DataSet,
    parts: Parts,
    folder: Path,
    **options: Unpack[FitOptions],
) -> CompletedRun:
    """Train a run, and score its best model.

    Args:
        task: if the run has none of its own.
        run: network and training.
        data: to train on.
        parts: what to score.
        folder: for runs; that of this one has its name.
        **options: further arguments of :func:`treemem.runs.fit`.

    Raises:
        RecipeError, CheckpointError, VocabularyError, CellError: as ``fit`` and ``evaluate``.
    """
    training = run.training
    result = fit(run.task or task, run.network, data, training, output=folder / run.name, **options)
    evaluations = {
        part: evaluate(
            result.model,
            scored,
            split=split,
            batch_size=training.evaluation_batch_size,
            threads=training.threads,
            progress=options.get("progress"),
            title=f"{run.row}, seed {training.seed}, {part} examples",
        )
        for part, (scored, split) in parts.items()
    }
    return CompletedRun(result, evaluations)


@dataclass(frozen=True, eq=False)
class SeedsResult:
    """Runs that differ only in their seed.

    Attributes:
        runs: in the order of the seeds, each scored on one part.
    """

    runs: list[CompletedRun]

    @property
    def fits(self) -> list[FitResult]:
        """The trainings."""
        return [run.fit for run in self.runs]

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations of each run's best model."""
        return [evaluation for run in self.runs for evaluation in run.evaluations.values()]

    @property
    def scores(self) -> list[Score]:
        """Means over the runs by group, last for all, with the standard deviation of the accuracy."""
        return mean_scores([evaluation.scores for evaluation in self.evaluations])


def fit_seeds(
    task: Task,
    network: NetworkConfig,
    data: Forest | DataSet,
    options: TrainingOptions | None = None,
    *,
    seeds: Sequence[int],
    output: str | Path,
    split: str | None = "test",
    **more: Unpack[FitOptions],
) -> SeedsResult:
    """Train from each seed in ``output/seed-N``, and evaluate each on ``split``.

    The other arguments, ``resume``, ``overwrite``, ``progress``, ``networks`` and ``loggers`` too, are those of
    :func:`treemem.runs.fit`. Loggers get the records of one seed after the other, each from its epoch 1 on.

    Raises:
        RecipeError: no seed, or one twice; a split without labelled examples; and what ``fit`` and ``evaluate`` raise.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise RecipeError(f"seeds must be distinct and at least one, not {list(seeds)}")
    task.examples(forest_of(data)).scorable_part(split)
    run = StudyRun("", Path(output).name, network, options or TrainingOptions())
    parts = {split or "all": (data, split)}
    return SeedsResult(
        [completed_run(task, seeded, data, parts, Path(output), **more) for seeded in run.from_seeds(seeds)]
    )


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the folder of the run from a seed."""
    return folder / f"seed-{seed}"


def seed_of(run: Path) -> int | None:
    """Return the seed of a folder of :func:`seed_folder`; None for any other folder."""
    match = re.fullmatch(r"seed-(\d+)", run.name)
    return None if match is None else int(match[1])
