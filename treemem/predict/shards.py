"""Predict folders of Parquet files: Ray runs a task for each file."""

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
from treemem.predict.files import PredictionCounts, predict_file
from treemem.predict.predictor import TreePredictor
from treemem.records import lock_path, replacing, temporary_path, writing

_logger = logging.getLogger(__name__)
_ABOUT = "_answers_of.json"  # readers of folders of Parquet skip names that begin with _ or .
_MOST_TRIES = 4


@dataclass(frozen=True)
class ShardCounts:
    """How the files of a folder were answered.

    Attributes:
        shards: number of files.
        done_before: how many of them had their answers already.
        counts: of the records of the others, if they did not fail.
        failed: the errors of the files that have no answers, by name.
    """

    shards: int
    done_before: int
    counts: PredictionCounts
    failed: Mapping[str, str]


@dataclass(frozen=True)
class _Job:
    """What every task needs, on whatever machine it runs.

    Attributes:
        checkpoint, threshold, batch_size, device: as for :class:`TreePredictor`.
        digest: of the model that is meant.
        folder: of the answers.
    """

    checkpoint: str
    threshold: float
    batch_size: int
    device: str
    digest: str
    folder: str


@functools.lru_cache(maxsize=1)
def _predictor(job: _Job) -> TreePredictor:
    """The predictor of a job, made once in a process.

    Raises:
        CheckpointError: on this machine the checkpoint is missing or another model, or there is no such device.
    """
    if job.device != "cpu" and not torch.cuda.is_available():
        raise CheckpointError("tasks were given GPUs, and the torch of this machine cannot use any; leave gpus at 0")
    predictor = TreePredictor(
        job.checkpoint, threshold=job.threshold, batch_size=job.batch_size, device=job.device, processes=1
    )
    if model_digest(predictor.model) != job.digest:
        raise CheckpointError(f"{job.checkpoint} is another model on this machine than where the job was started")
    return predictor


def _predict_shard(job: _Job, shard: str) -> PredictionCounts | CheckpointError | str:
    """Write the answers for one file, or resume them if a process died.

    Returns:
        The counts of the answers, or why there are none; an error if this process cannot predict any file.
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
    threshold: float = 0.5,
    batch_size: int = 1024,
    gpus: float = 0,
) -> ShardCounts:
    """Predict every Parquet file of a folder, each in one process, many at a time; needs ``treemem[scale]``.

    The answers for ``input/NAME.parquet`` are in ``output/NAME.parquet``, the same as :func:`predict_file` gives. A
    file exists when all its answers do, and existing files are skipped, so the same call continues a job that was cut
    off. If a process dies, Ray resumes its file in another one. A file that cannot be read, or whose process dies four
    times, gets no answers and does not stop the others.

    Ray is what ``ray.init`` has connected to, or the cluster that ``RAY_ADDRESS`` names; otherwise Ray runs on this
    machine until the call ends. All machines see both folders and the checkpoint under the same names.

    Args:
        checkpoint: as for :class:`TreePredictor`, a path or a name.
        input: folder of files ``*.parquet``, without subfolders.
        output: a folder, which is made if it does not exist.
        actors: how many files are predicted at a time; each takes a logical CPU. By default all CPUs.
        threshold: as for :class:`TreePredictor`.
        batch_size: as for :class:`TreePredictor`.
        gpus: Ray's GPUs for each file, which may be a fraction; with any, the model runs on CUDA.

    Raises:
        RecipeError: Ray is not installed, cannot be connected to or has too few GPUs; there is no file; or the output
            folder holds answers of another model, threshold, batch size, device or input, or something else.
        CheckpointError: the model does not exist, or is another one on another machine.
    """
    begin = time.perf_counter()
    ray = _ray()
    shards = _shards_of(Path(input))
    if Path(checkpoint).exists() and not is_pretrained_name(checkpoint):
        checkpoint = Path(checkpoint).resolve()
    predictor = TreePredictor(checkpoint, threshold=threshold, batch_size=batch_size)
    folder = Path(output).resolve()
    device = "cuda" if gpus else "cpu"
    digest = model_digest(predictor.model)
    about = {"model": digest, "threshold": predictor.threshold, "batch_size": batch_size, "device": device}
    _take_folder(folder, {**about, "input": str(shards[0].parent)})
    remaining = [shard for shard in shards if not (folder / shard.name).exists()]
    job = _Job(os.fspath(checkpoint), predictor.threshold, batch_size, device, digest, str(folder))
    records = rejected = 0
    failed: dict[str, str] = {}
    for shard, found in _results(job, remaining, ray, actors, gpus) if remaining else ():
        if isinstance(found, PredictionCounts):
            records, rejected = records + found.records, rejected + found.rejected
        else:
            failed[shard.name] = found
            _logger.warning("no answers for %s: %s", shard.name, found)
    counts = PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin)
    return ShardCounts(len(shards), len(shards) - len(remaining), counts, failed)


def _results(
    job: _Job, shards: Sequence[Path], ray: Any, actors: int | None, gpus: float
) -> Iterator[tuple[Path, PredictionCounts | str]]:
    """Each file with its counts, or why it has no answers, in the order in which they are done.

    Raises:
        CheckpointError: a process cannot predict any file.
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
                found = ray.get(done)
            except ray.exceptions.RayError as error:
                problem = "it was killed, ran out of memory or crashed"
                found = f"the process that read it died {_MOST_TRIES} times: {problem} ({type(error).__name__})"
            if isinstance(found, CheckpointError):
                raise found
            yield shard, found


@contextlib.contextmanager
def _connected(ray: Any, actors: int | None) -> Iterator[None]:
    """Ray while the block lasts; one that ran before stays.

    Raises:
        RecipeError: the named cluster cannot be reached, or Ray cannot be started.
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
        raise RecipeError(f"cannot connect to Ray: {problem}; see that one runs at RAY_ADDRESS, or unset it") from error
    try:
        yield
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise RecipeError(f"this needs Ray ({error}): pip install 'treemem[scale]'") from error
    return ray


def _shards_of(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RecipeError(f"{folder} is not a folder; give one that holds files *.parquet")
    shards = sorted(path.resolve() for path in folder.glob("*.parquet") if path.is_file())
    if not shards:
        raise RecipeError(f"there is no file *.parquet in {folder}")
    return shards


def _take_folder(folder: Path, about: Mapping[str, Any]) -> None:
    """Make a folder the place of these answers, or check that it is."""
    path = folder / _ABOUT
    if str(folder) == about["input"]:
        raise RecipeError(f"{folder} is the input; choose another folder for the answers")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        is_new = {*folder.iterdir()} <= {temporary_path(path), lock_path(path)}  # leftovers of a killed process
    if is_new:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(path.read_bytes())
        differing = [name for name in about if before[name] != about[name]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RecipeError(f"{folder} holds something else than answers; choose another folder") from error
    if differing:
        what = differing[0].replace("_", " ")
        raise RecipeError(f"{folder} holds answers of another {what}; choose another folder, or delete this one")
