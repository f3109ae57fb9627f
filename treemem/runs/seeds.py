"""The same training from several seeds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from treemem.data.examples import DataSet, forest_of
from treemem.errors import RecipeError
from treemem.metrics.score import Score, mean_scores
from treemem.networks import NetworkConfig
from treemem.runs.evaluate import Evaluation, evaluate
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.runs.training_loop import FitResult
from treemem.task import Task
from treemem.trees.forest import Forest


@dataclass(frozen=True, eq=False)
class SeedsResult:
    """Runs that differ only in their seed.

    Attributes:
        fits: the runs, in the order of the seeds.
        evaluations: of each run's best model.
        scores: means over the runs by group, last for all, with the standard deviation of the accuracy.
    """

    fits: list[FitResult]
    evaluations: list[Evaluation]
    scores: list[Score]


def fit_seeds(
    task: Task,
    network: NetworkConfig,
    data: Forest | DataSet,
    options: TrainingOptions | None = None,
    *,
    seeds: Sequence[int],
    output: str | Path,
    split: str | None = "test",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
) -> SeedsResult:
    """Train from each seed in ``output/seed-N``, and evaluate each on ``split``.

    The other arguments are those of :func:`treemem.runs.fit`.

    Raises:
        RecipeError: no seed, or one twice; a split without labelled examples; and what ``fit`` and ``evaluate`` raise.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise RecipeError(f"seeds must be distinct and at least one, not {list(seeds)}")
    task.examples(forest_of(data)).scorable_part(split)
    options = TrainingOptions() if options is None else options
    fits, evaluations = [], []
    for seed in seeds:
        seeded = dataclasses.replace(options, seed=seed)
        result = fit(
            task,
            network,
            data,
            seeded,
            output=seed_folder(output, seed),
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            networks=networks,
        )
        fits.append(result)
        evaluation = evaluate(
            result.model,
            data,
            split=split,
            batch_size=options.evaluation_batch_size,
            threads=options.threads,
            progress=progress,
            title=f"{Path(output).name}, seed {seed}, {split or 'all'} examples",
        )
        evaluations.append(evaluation)
    return SeedsResult(fits, evaluations, mean_scores([evaluation.scores for evaluation in evaluations]))


def seed_folder(output: str | Path, seed: int) -> Path:
    """Return the folder of the run from a seed."""
    return Path(output) / f"seed-{seed}"


def seed_of(run: Path) -> int | None:
    """Return the seed of a folder of :func:`seed_folder`; None for any other folder."""
    match = re.fullmatch(r"seed-(\d+)", run.name)
    return None if match is None else int(match[1])
