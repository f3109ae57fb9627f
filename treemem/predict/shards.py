"""Folders of Parquet files in, folders of answers out: actors of Ray Data predict a file each."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from treemem.checkpoint import is_pretrained_name
from treemem.errors import CheckpointError, RecipeError, TreememError
from treemem.predict.files import PredictionCounts, model_digest, predict_file
from treemem.predict.predictor import TreePredictor
from treemem.records import replacing, writing

_logger = logging.getLogger(__name__)
_ABOUT = "_answers_of.json"  # readers of folders of Parquet pass over names that begin with _ or .
_MOST_TRIES = 4


@dataclass(frozen=True)
class ShardCounts:
    """What became of the files of a folder.

    Attributes:
        shards: how many there are.
        done_before: how many of them had their answers already.
        counts: of the records of the others, as far as they did not fail.
        failed: what is wrong with those that have no answers, by their names.
    """

    shards: int
    done_before: int
    counts: PredictionCounts
    failed: Mapping[str, str]


class ShardPredictor:
    """An actor that predicts whole files; made from plain arguments, as Ray makes it on other machines.

    Args:
        checkpoint: as for :class:`TreePredictor`.
        threshold: as there.
        batch_size: as there.
        digest: of the model that is meant; by default it may be any.
        device: where the model runs, ``"cpu"`` or ``"cuda"``.

    Raises:
        RecipeError: this machine has no such device.
        CheckpointError: on this machine the checkpoint is another model, or there is none.
    """

    def __init__(
        self, checkpoint: str, threshold: float, batch_size: int, digest: str | None = None, device: str = "cpu"
    ) -> None:
        if device != "cpu" and not torch.cuda.is_available():
            raise RecipeError("actors were given GPUs, and the torch of this machine cannot use any; leave gpus at 0")
        self.predictor = TreePredictor(
            checkpoint, threshold=threshold, batch_size=batch_size, device=device, processes=1
        )
        if digest is not None and model_digest(self.predictor.model) != digest:
            raise CheckpointError(f"{checkpoint} is another model on this machine than where the job was started")

    def __call__(self, shard: Mapping[str, str]) -> dict[str, Any]:
        """Write the answers for the file ``input`` to ``output``, and say how many they are.

        What was begun by a process that died is gone on with. A file fails when its process has died four times.
        """
        output = Path(shard["output"])
        tries = _tries_path(output)
        said = {"shard": output.name, "records": 0, "rejected": 0, "error": ""}
        try:
            with writing(tries), tries.open("ab") as mark:
                mark.write(b".")
            if tries.stat().st_size > _MOST_TRIES:
                problem = "killed, out of memory or crashed"
                raise RecipeError(f"the process that read it has ended {_MOST_TRIES} times: {problem}")
            counts = predict_file(self.predictor, shard["input"], output, resume=True, progress=False)
            said |= {"records": counts.records, "rejected": counts.rejected}
        except TreememError as error:
            said["error"] = str(error)
        tries.unlink(missing_ok=True)
        return said


class _Worker:
    """A :class:`ShardPredictor` in the hands of Ray, which would hide behind an error of its own why one cannot start.

    Args:
        kind: the class.
        arguments: what it is made from.
    """

    def __init__(self, kind: type[ShardPredictor], arguments: tuple[Any, ...]) -> None:
        self.problem = b""
        try:
            self.predictor = kind(*arguments)
        except TreememError as error:
            self.problem = pickle.dumps(error)

    def __call__(self, shard: Mapping[str, str]) -> dict[str, Any]:
        """What the predictor says of a shard, and as ``problem`` the pickled error that kept it from starting."""
        if self.problem:
            return {"shard": "", "records": 0, "rejected": 0, "error": "", "problem": self.problem}
        return {**self.predictor(shard), "problem": b""}


def predict_shards(
    checkpoint: str | os.PathLike[str],
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    actors: int | None = None,
    threshold: float = 0.5,
    batch_size: int = 1024,
    gpus: float = 0,
    cpus: int | None = None,
) -> ShardCounts:
    """Predict every Parquet file of a folder, each in one process, many at a time; needs ``treemem[scale]``.

    The answers for ``input/NAME.parquet`` are in ``output/NAME.parquet``, the same as :func:`predict_file` gives. A
    file is there when all its answers are, and one that is there is passed over, so that the same call goes on with a
    job that was cut off. A process that dies is replaced, and its file gone on with. A file that cannot be read has no
    answers, and stops no other.

    Ray is what ``ray.init`` has connected to, or the cluster that ``RAY_ADDRESS`` names, left when all is done; else
    one is started on this machine, and ended. All machines see both folders and the checkpoint under the same names.

    Args:
        checkpoint: as for :class:`TreePredictor`, a path or a name.
        input: folder of files ``*.parquet``; folders in it are not looked into.
        output: a folder; it is made where there is none.
        actors: processes that predict, each with a logical CPU; by default all CPUs but one, and no more than files.
        threshold: as for :class:`TreePredictor`.
        batch_size: as for :class:`TreePredictor`.
        gpus: Ray's GPUs for each actor, which may be a fraction; with any, the model runs on CUDA.
        cpus: logical CPUs of a Ray that is started here; by default one more than there are cores or actors.

    Raises:
        RecipeError: Ray is not installed, cannot be connected to or has too few CPUs; ``cpus`` is given for a Ray that
            runs; there is no file, or the output folder holds answers of another model, threshold, batch size, device
            or input, or something else.
        CheckpointError: there is no such model, or it is another one on another machine.
    """
    begin = time.perf_counter()
    ray = _ray()
    shards = _shards_of(Path(input))
    if Path(checkpoint).exists() and not is_pretrained_name(checkpoint):
        checkpoint = Path(checkpoint).resolve()
    predictor = TreePredictor(checkpoint, threshold=threshold, batch_size=batch_size)
    digest = model_digest(predictor.model)
    folder = Path(output).resolve()
    device = "cuda" if gpus else "cpu"
    of_predictor = {"threshold": predictor.threshold, "batch_size": batch_size, "device": device}
    _take_folder(folder, {"weights": digest, **of_predictor, "input": str(shards[0].parent)})
    remaining = [shard for shard in shards if not (folder / shard.name).exists()]
    jobs = [{"input": str(shard), "output": str(folder / shard.name)} for shard in remaining]
    records = rejected = 0
    failed: dict[str, str] = {}
    arguments = (os.fspath(checkpoint), threshold, batch_size, digest, device)
    for report in _reports(jobs, ray, actors, gpus, cpus, arguments) if jobs else ():
        records, rejected = records + report["records"], rejected + report["rejected"]
        if report["error"]:
            failed[report["shard"]] = report["error"]
            _logger.warning("no answers for %s: %s", report["shard"], report["error"])
    counts = PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin)
    return ShardCounts(len(shards), len(shards) - len(remaining), counts, failed)


def _reports(
    jobs: Sequence[dict[str, str]],
    ray: Any,
    actors: int | None,
    gpus: float,
    cpus: int | None,
    arguments: tuple[Any, ...],
) -> Iterator[dict[str, Any]]:
    """What actors report of each job, as they are done with it.

    Ray starts a process that died anew, and gives it its job again, as often as it takes.

    Raises:
        TreememError: an actor cannot start.
    """
    with _connected(ray, actors, cpus):
        size = _checked_actors(ray, actors, gpus, len(jobs))
        for job in jobs:
            _tries_path(Path(job["output"])).unlink(missing_ok=True)
        # A block is what an actor is given at a time: a file. With one in flight none waits for an actor that is busy
        # while another has nothing to do.
        pool = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1)
        blocks = ray.data.from_items(jobs, override_num_blocks=len(jobs))
        given = (ShardPredictor, arguments)
        reports = blocks.map(_Worker, fn_constructor_args=given, compute=pool, num_cpus=1, num_gpus=gpus or None)
        for report in reports.iter_rows():
            if report["problem"]:
                raise pickle.loads(report["problem"])
            yield report


@contextlib.contextmanager
def _connected(ray: Any, actors: int | None, cpus: int | None) -> Iterator[None]:
    """Ray while the block lasts: one that was there stays.

    Raises:
        RecipeError: there is none where one was named, or none can be started.
    """
    is_there = ray.is_initialized()
    runs = is_there or "RAY_ADDRESS" in os.environ
    if runs and cpus is not None:
        raise RecipeError("cpus is for a Ray that is started here, and one runs, or is named by RAY_ADDRESS")
    if not is_there:
        if cpus is None:
            cpus = max(os.cpu_count() or 1, actors or 1) + 1
        options = {} if runs else {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        try:
            ray.init(logging_level=logging.WARNING, **options)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            problem = str(error).strip().partition("\n")[0]
            remedy = "see that one runs at RAY_ADDRESS, or unset it"
            raise RecipeError(f"cannot connect to Ray: {problem}; {remedy}") from error
    try:
        yield
    finally:
        if not is_there:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise RecipeError(f"this needs Ray ({error}): pip install 'treemem[scale]'") from error
    return ray


def _shards_of(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RecipeError(f"{folder} is no folder; give one that holds files *.parquet")
    shards = sorted(path.resolve() for path in folder.glob("*.parquet") if path.is_file())
    if not shards:
        raise RecipeError(f"there is no file *.parquet in {folder}")
    return shards


def _take_folder(folder: Path, about: Mapping[str, Any]) -> None:
    """Make a folder the place of these answers, or see that it is."""
    path = folder / _ABOUT
    if str(folder) == about["input"]:
        raise RecipeError(f"{folder} is the input; choose another folder for the answers")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # What is left of writing the file itself, where that was cut off, is nothing.
        is_new = all(path.match(f".{_ABOUT}.*.tmp") for path in folder.iterdir())
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
        what = {"weights": "model", "batch_size": "batch size"}.get(differing[0], differing[0])
        raise RecipeError(f"{folder} holds answers of another {what}; choose another folder, or delete this one")


def _checked_actors(ray: Any, actors: int | None, gpus: float, most: int) -> int:
    resources = ray.cluster_resources()
    cpus, all_gpus = int(resources.get("CPU", 0)), resources.get("GPU", 0)
    if gpus < 0 or gpus > all_gpus:
        raise RecipeError(f"gpus={gpus:g} for each actor cannot be had: Ray has {all_gpus:g} GPUs")
    if actors is None:
        actors = min(cpus - 1, int(all_gpus / gpus) if gpus else most, most)
    if not 0 < actors < cpus:
        raise RecipeError(
            f"{actors} actors cannot be had: there must be one at least, and fewer than logical CPUs, or Ray's other "
            f"tasks would wait for ever; Ray has {cpus} CPUs: ask for fewer actors, or start Ray with more (cpus=, "
            "or --num-cpus of a cluster)"
        )
    if actors * gpus > all_gpus:
        raise RecipeError(f"{actors} actors of {gpus:g} GPUs each cannot be had: Ray has {all_gpus:g} GPUs")
    return min(actors, most)


def _tries_path(output: Path) -> Path:
    """The file that has a byte for each time that the answers were begun."""
    return output.with_name(f".{output.name}.tries")
