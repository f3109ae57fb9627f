"""Predict folders of Parquet files, with a task of Ray for each file."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from treemem.checked_options import checked_count
from treemem.checkpoint import is_pretrained_name
from treemem.errors import CheckpointError, RecipeError, TreememError
from treemem.model_digest import model_digest
from treemem.predict.file_prediction import PredictionCounts, predict_file
from treemem.predict.partial_output import PartialOutput
from treemem.predict.predictor import TreePredictor
from treemem.records import read_json, read_source, write_text, writing

_logger = logging.getLogger(__name__)
_SETTINGS = "_answers_of.json"  # readers of Parquet folders skip names that begin with _
_MOST_TRIES = 4


@dataclass(frozen=True)
class ShardCounts:
    """How the files of a folder were answered.

    Attributes:
        shards: number of files.
        done_before: number of files that had answers already.
        counts: counts of the records of the other files, without those that failed.
        failed: errors of the files without answers, by name.
    """

    shards: int
    done_before: int
    counts: PredictionCounts
    failed: Mapping[str, str]


@dataclass(frozen=True)
class _Job:
    """What every task needs.

    Attributes:
        checkpoint, threshold, batch_size, device: as for :class:`TreePredictor`.
        digest: digest of the model.
        folder: folder of the answers.
    """

    checkpoint: str
    threshold: float
    batch_size: int
    device: str
    digest: str
    folder: str


@functools.lru_cache(maxsize=1)
def _predictor(job: _Job) -> TreePredictor:
    """Return the predictor of a job, which is made once in a process.

    Raises:
        CheckpointError: the checkpoint does not exist or differs on this machine, or there is no GPU.
    """
    if job.device != "cpu" and not torch.cuda.is_available():
        raise CheckpointError("torch cannot use a GPU on this machine; set gpus=0")
    predictor = TreePredictor(
        job.checkpoint, threshold=job.threshold, batch_size=job.batch_size, device=job.device, processes=1
    )
    if model_digest(predictor.model) != job.digest:
        raise CheckpointError(f"{job.checkpoint} differs between the machines; copy one of them to the others")
    return predictor


def _predict_shard(job: _Job, shard: str) -> PredictionCounts | CheckpointError | str:
    """Write the answers for one file, or resume them.

    Returns:
        The counts, or the error of this file; a ``CheckpointError`` if no file can be predicted.
    """
    try:
        predictor = _predictor(job)
    except CheckpointError as error:
        return error
    try:
        return predict_file(predictor, shard, Path(job.folder) / Path(shard).name, resume=True, progress=False)
    except TreememError as error:
        return str(error)


def predict_shards(
    checkpoint: str | os.PathLike[str],
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    actors: int | None = None,
    threshold: float | None = None,
    batch_size: int = 1024,
    gpus: float = 0,
) -> ShardCounts:
    """Predict every Parquet file of a folder, each in one process, many at a time; needs ``treemem[scale]``.

    The answers for ``input/NAME.parquet`` are in ``output/NAME.parquet``, the same as from :func:`predict_file`. A file
    exists when all its answers do. The same call continues an interrupted job: existing files are skipped. If a process
    dies, Ray resumes its file in another one. A file that cannot be read, or whose process dies four times, gets no
    answers and does not stop the others.

    Ray is the cluster of ``ray.init`` or of ``RAY_ADDRESS``; otherwise it runs on this machine until the call ends. All
    machines need both folders and the checkpoint under the same names.

    Args:
        checkpoint: path or name, as for :class:`TreePredictor`.
        input: folder of files ``*.parquet``, without subfolders.
        output: folder of the answers, which is made if it does not exist.
        actors: number of files that are predicted at a time, each on a logical CPU; by default all CPUs.
        threshold: as for :class:`TreePredictor`.
        batch_size: as for :class:`TreePredictor`.
        gpus: number of Ray's GPUs for each file, which may be a fraction. The model then runs on CUDA.

    Raises:
        RecipeError: Ray is not installed, cannot be reached or has too few GPUs; there is no file; or the output folder
            holds other files, or answers of another model, threshold, batch size, device or input.
        CheckpointError: the model does not exist, or differs on another machine.
    """
    begin = time.perf_counter()
    try:
        import ray
    except ImportError as error:
        raise RecipeError(f"this needs Ray ({error}): pip install 'treemem[scale]'") from error
    if not Path(input).is_dir():
        raise RecipeError(f"{input} is not a folder; name a folder of files *.parquet")
    shards = sorted(path.resolve() for path in Path(input).glob("*.parquet") if path.is_file())
    if not shards:
        raise RecipeError(f"there is no file *.parquet in {input}")
    if Path(checkpoint).exists() and not is_pretrained_name(checkpoint):
        checkpoint = Path(checkpoint).resolve()
    predictor = TreePredictor(checkpoint, threshold=threshold, batch_size=batch_size)
    folder = Path(output).resolve()
    device = "cuda" if gpus else "cpu"
    digest = model_digest(predictor.model)
    settings = {"model": digest, "threshold": predictor.threshold, "batch_size": batch_size, "device": device}
    _prepare_folder(folder, {**settings, "input": str(shards[0].parent)})
    answers = {shard: folder / shard.name for shard in shards}
    remaining = [shard for shard, place in answers.items() if PartialOutput.exists(place) or not place.exists()]
    job = _Job(os.fspath(checkpoint), predictor.threshold, batch_size, device, digest, str(folder))
    records = rejected = 0
    failed: dict[str, str] = {}
    for shard, outcome in _results(job, remaining, ray, actors, gpus) if remaining else ():
        if isinstance(outcome, PredictionCounts):
            records, rejected = records + outcome.records, rejected + outcome.rejected
        else:
            failed[shard.name] = outcome
            _logger.warning("no answers for %s: %s", shard.name, outcome)
    counts = PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin)
    return ShardCounts(len(shards), len(shards) - len(remaining), counts, failed)


def _results(
    job: _Job, shards: Sequence[Path], ray: Any, actors: int | None, gpus: float
) -> Iterator[tuple[Path, PredictionCounts | str]]:
    """Yield each file with its counts or its error, in the order of completion.

    Raises:
        CheckpointError: no file can be predicted.
    """
    with _connected(ray, actors):
        available = ray.cluster_resources()
        if not 0 <= gpus <= available.get("GPU", 0):
            raise RecipeError(f"gpus={gpus:g} are not available: Ray has {available.get('GPU', 0):g} GPUs")
        at_a_time = int(available.get("CPU", 1)) if actors is None else checked_count("actors", actors)
        predict = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_MOST_TRIES - 1)(_predict_shard)
        waiting = list(reversed(shards))
        running: dict[Any, Path] = {}
        while waiting or running:
            while waiting and len(running) < at_a_time:
                shard = waiting.pop()
                running[predict.remote(job, str(shard))] = shard
            (done, *_), _ = ray.wait(list(running))
            shard = running.pop(done)
            try:
                outcome = ray.get(done)
            except ray.exceptions.RayError as error:
                problem = "it was killed, ran out of memory or crashed"
                outcome = f"the process that read it died {_MOST_TRIES} times: {problem} ({type(error).__name__})"
            if isinstance(outcome, CheckpointError):
                raise outcome
            yield shard, outcome


@contextlib.contextmanager
def _connected(ray: Any, actors: int | None) -> Iterator[None]:
    """Connect to Ray for the block. A connection that existed before stays.

    Raises:
        RecipeError: Ray cannot be reached or started.
    """
    if ray.is_initialized():
        yield
        return
    cpus = max(os.cpu_count() or 1, actors or 1)
    here = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    try:
        ray.init(logging_level=logging.WARNING, **here)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise RecipeError(f"cannot connect to Ray: {problem}; check RAY_ADDRESS, or unset it") from error
    try:
        yield
    finally:
        ray.shutdown()


def _prepare_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder of the answers, or check that its answers have the same settings.

    Raises:
        RecipeError: the folder holds other files, or answers with other settings.
    """
    path = folder / _SETTINGS
    if str(folder) == settings["input"]:
        raise RecipeError(f"{folder} is the input; choose another folder for the answers")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        if any(folder.glob("[!.]*")):
            raise RecipeError(f"{folder} holds other files; choose another folder for the answers")
        write_text(path, json.dumps(settings, indent=1) + "\n")
    before = read_json(read_source(path), str(path))
    if not isinstance(before, dict):
        raise RecipeError(f"{path} is damaged; choose another folder for the answers")
    differing = [name.replace("_", " ") for name in settings if before.get(name) != settings[name]]
    if differing:
        raise RecipeError(
            f"{folder} holds answers of another {differing[0]}; choose another folder, or delete this one"
        )
