from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markdown_pages import python_blocks
from models import small_model

import treemem
from treemem import checkpoint
from treemem.cli import main
from treemem.errors import CheckpointError, RecipeError
from treemem.predict import ShardCounts, TreePredictor, chunks, predict_file, predict_shards, shards
from treemem.predict.chunks import Chunk
from treemem.predict.shards import ShardPredictor
from treemem.records import read_records, write_records

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
TEXTS = ["x + y = y + x", "x =", "sin(x)^2 = 1 - cos(x)^2", "x = -x", "2*x = x + x", "x = y", "y = y"]
pytestmark = pytest.mark.filterwarnings(  # Ray warns of its own settings
    "ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"
)
SHARDS, RECORDS = ("a", "b", "c", "d"), 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    checkpoint.save(folder, small_model())
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder of shards whose records are all told apart by their ids."""
    folder = tmp_path / "records"
    folder.mkdir()
    for shard in SHARDS:
        lines = ({"id": f"{shard}{number}", "equation": text} for number, text in enumerate(TEXTS))
        write_records(folder / f"{shard}.parquet", lines)
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine with four logical CPUs, which leaves nothing behind."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    pytest.importorskip("ray.data", reason="Ray is there without Ray Data")
    folder = tempfile.mkdtemp(prefix="ray")  # a socket's path must be short, and those of pytest are not
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",  # else a token is written into the home folder
            "RAY_worker_niceness": "0",  # by default whatever else runs on the machine goes first
            "RAY_enable_worker_prestart": "0",
            "RAY_prestart_worker_first_driver": "0",
        }.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        this = sys.modules[__name__]
        ray.cloudpickle.register_pickle_by_value(this)  # workers cannot import tests
        try:
            ray.init(
                "local", num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, _temp_dir=folder,
                log_to_driver=False, logging_level="ERROR",
            )  # fmt: skip
            yield
        finally:
            ray.shutdown()
            ray.cloudpickle.unregister_pickle_by_value(this)
            shutil.rmtree(folder, ignore_errors=True)


def dies_once(marker: Path) -> None:
    """End this process as the system does where memory runs out, unless a process has ended so before."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def answers_in(folder: Path) -> list[dict[str, Any]]:
    return [record.fields for path in sorted(folder.glob("*.parquet")) for record in read_records(path)]


def one_after_another(model: Path, records: Path, folder: Path) -> Path:
    """The answers that one process gives, file by file."""
    predictor = TreePredictor(model)
    folder.mkdir()
    for path in sorted(records.iterdir()):
        predict_file(predictor, path, folder / path.name)
    return folder


def test_the_answers_of_a_folder_are_complete_and_the_same_after_a_worker_was_killed(
    cluster: None, model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, small = tmp_path / "killed", chunks.CHUNK_RECORDS

    class DiesInTheMiddleOfAShard(ShardPredictor):
        def __call__(self, shard: Mapping[str, str]) -> dict[str, Any]:
            from treemem.predict import chunks

            chunks.CHUNK_RECORDS = small
            answers = self.predictor.answers

            def cut_off(given: Iterable[Chunk], processes: int | None) -> Iterator[tuple[Chunk, list[dict[str, Any]]]]:
                for number, found in enumerate(answers(given, processes)):
                    if number == 1 and shard["output"].endswith("b.parquet"):
                        dies_once(marker)
                    yield found

            self.predictor.answers = cut_off
            try:
                return super().__call__(shard)
            finally:
                self.predictor.answers = answers

    monkeypatch.setattr(shards, "ShardPredictor", DiesInTheMiddleOfAShard)
    (records / "damaged.parquet").write_text("no Parquet")
    done = predict_shards(model, records, tmp_path / "answers", actors=2)
    assert marker.exists()
    (records / "damaged.parquet").unlink()
    expected = one_after_another(model, records, tmp_path / "expected")
    answers = answers_in(tmp_path / "answers")
    assert [answer["id"] for answer in answers] == [f"{shard}{number}" for shard in SHARDS for number in range(RECORDS)]
    assert answers == answers_in(expected)
    for path in expected.iterdir():
        assert (tmp_path / "answers" / path.name).read_bytes() == path.read_bytes()
    assert (done.shards, done.done_before, done.counts.records, done.counts.rejected) == (5, 0, 28, 4)
    assert list(done.failed) == ["damaged.parquet"]
    assert "no Parquet data" in done.failed["damaged.parquet"]
    left = {path.name for path in (tmp_path / "answers").iterdir()}
    assert left == {*(f"{shard}.parquet" for shard in SHARDS), "_answers_of.json"}


def test_a_predictor_in_a_pipeline_of_ray_data_answers_every_record_after_it_was_killed(
    cluster: None, model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "killed"

    class DiesAtTheSecondBatch(TreePredictor):
        batches = 0

        def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
            self.batches += 1
            if self.batches == 2:
                dies_once(marker)
            return super().__call__(batch)

    monkeypatch.setattr(treemem, "TreePredictor", DiesAtTheSecondBatch, raising=False)
    (pipeline,) = (block for block in python_blocks(PAGE) if "map_batches" in block)
    for shown, own in {
        '"s3://bucket/records"': repr(str(records)),
        '"s3://bucket/answers"': repr(str(tmp_path / "answers")),
        '"runs/mine"': repr(str(model)),
        "batch_size=8192": f"batch_size={RECORDS}",
        "size=2": "size=1",  # so few records are a single block
    }.items():
        assert shown in pipeline
        pipeline = pipeline.replace(shown, own)
    exec(pipeline, {})
    assert marker.exists()
    answers = sorted(answers_in(tmp_path / "answers"), key=lambda answer: answer["id"])
    expected = answers_in(one_after_another(model, records, tmp_path / "expected"))
    assert [answer["id"] for answer in answers] == [answer["id"] for answer in expected]
    for found, wanted in zip(answers, expected, strict=True):
        assert found["prediction"] == wanted["prediction"]
        chance = math.nan if wanted["probability"] is None else wanted["probability"]
        assert found["probability"] == pytest.approx(chance, nan_ok=True)


def called(predictor: ShardPredictor, path: Path, folder: Path) -> dict[str, Any]:
    return predictor({"input": str(path), "output": str(folder / path.name)})


def test_a_shard_that_its_process_died_of_again_and_again_fails_and_can_be_tried_anew(
    model: Path, records: Path, tmp_path: Path
) -> None:
    predictor = ShardPredictor(str(model), 0.5, 64)
    tries = tmp_path / ".a.parquet.tries"
    tries.write_bytes(b"....")
    said = called(predictor, records / "a.parquet", tmp_path)
    assert said["error"] == "the process that read it has ended 4 times: killed, out of memory or crashed"
    assert not (tmp_path / "a.parquet").exists()
    said = called(predictor, records / "a.parquet", tmp_path)
    assert said == {"shard": "a.parquet", "records": 7, "rejected": 1, "error": ""}
    assert not tries.exists()


class Here:
    """As much of Ray Data as it takes to run a job in this process."""

    def __init__(self, jobs: list[dict[str, str]], override_num_blocks: int) -> None:
        self.jobs = jobs

    def map(self, kind: Callable[..., Any], *, fn_constructor_args: tuple[Any, ...], **_: Any) -> Here:
        self.worker = kind(*fn_constructor_args)
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return map(self.worker, self.jobs)


def test_why_a_worker_does_not_start_is_told_as_it_is(
    no_cluster: None, model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(ShardPredictor):
        """One on a machine where the checkpoint is another model."""

        def __init__(self, checkpoint: str, *arguments: Any) -> None:
            super().__init__(str(tmp_path / "other"), *arguments)

    checkpoint.save(tmp_path / "other", small_model(seed=1))
    data = SimpleNamespace(from_items=Here, ActorPoolStrategy=SimpleNamespace)
    monkeypatch.setattr(sys.modules["ray"], "data", data)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "ShardPredictor", Elsewhere)
        with pytest.raises(
            CheckpointError, match="other is another model on this machine than where the job was started"
        ):
            predict_shards(model, records, tmp_path / "answers", actors=1)
    assert predict_shards(model, records, tmp_path / "answers", actors=1).counts.records == len(SHARDS) * RECORDS


def test_a_cluster_that_cannot_be_reached_is_told(
    no_cluster: None, model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at other:6379\nand more")

    ray = sys.modules["ray"]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init, raising=False)
    monkeypatch.setattr(ray, "exceptions", SimpleNamespace(RayError=LookupError), raising=False)
    with pytest.raises(RecipeError, match="cannot connect to Ray: Failed to connect to Ray cluster at other:6379; see"):
        predict_shards(model, records, tmp_path / "answers", actors=1)


def test_a_worker_with_another_model_than_the_one_that_is_meant_refuses_to_start(model: Path) -> None:
    with pytest.raises(CheckpointError, match="is another model on this machine"):
        ShardPredictor(str(model), 0.5, 64, digest="0")


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray as far as nothing has to run: with three logical CPUs."""
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 3.0}, data=None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", SimpleNamespace())


@pytest.fixture
def done(no_cluster: None, model: Path, records: Path, tmp_path: Path) -> Path:
    """A folder in which there is a file of answers for each of the records."""
    answers = tmp_path / "answers"
    digest = shards.model_digest(checkpoint.load(model))
    of_predictor = {"threshold": 0.5, "batch_size": 1024, "device": "cpu"}
    shards._take_folder(answers, {"weights": digest, **of_predictor, "input": str(records)})
    for path in records.iterdir():
        (answers / path.name).touch()
    return answers


def test_files_whose_answers_are_there_are_passed_over(done: Path, model: Path, records: Path) -> None:
    counts = predict_shards(model, records, done)
    assert isinstance(counts, ShardCounts)
    assert (counts.shards, counts.done_before, counts.counts.records, counts.failed) == (4, 4, 0, {})


def test_answers_of_another_threshold_model_or_input_are_not_mixed(done: Path, model: Path, records: Path) -> None:
    with pytest.raises(RecipeError, match="holds answers of another threshold; choose another folder"):
        predict_shards(model, records, done, threshold=0.6)
    with pytest.raises(RecipeError, match="holds answers of another batch size"):
        predict_shards(model, records, done, batch_size=7)
    checkpoint.save(done.with_name("other"), small_model(seed=1))
    with pytest.raises(RecipeError, match="holds answers of another model"):
        predict_shards(done.with_name("other"), records, done)
    shutil.copytree(records, records.with_name("others"))
    with pytest.raises(RecipeError, match="holds answers of another input"):
        predict_shards(model, records.with_name("others"), done)


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"weights": 1})])
def test_a_folder_that_holds_something_else_is_left_alone(
    content: str, no_cluster: None, model: Path, records: Path, tmp_path: Path
) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "_answers_of.json").write_text(content)
    with pytest.raises(RecipeError, match="holds something else than answers; choose another folder"):
        predict_shards(model, records, tmp_path / "answers")
    with pytest.raises(RecipeError, match="is the input; choose another folder"):
        predict_shards(model, records, records)


def test_a_folder_in_which_nothing_was_begun_but_to_say_of_what_its_answers_are_is_taken(tmp_path: Path) -> None:
    (tmp_path / "._answers_of.json.4711.tmp").write_text('{"wei')
    about = {"weights": "a", "input": "b"}
    shards._take_folder(tmp_path, about)
    assert json.loads((tmp_path / "_answers_of.json").read_text()) == about


def test_a_folder_without_records_is_told(no_cluster: None, model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"there is no file \*\.parquet in"):
        predict_shards(model, tmp_path, tmp_path / "answers")
    with pytest.raises(RecipeError, match="missing is no folder"):
        predict_shards(model, tmp_path / "missing", tmp_path / "answers")


@pytest.mark.parametrize("actors", [3, 4, 0, -1])
def test_actors_that_leave_no_logical_cpu_are_refused_rather_than_waited_for(
    actors: int, no_cluster: None, model: Path, records: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="Ray has 3 CPUs: ask for fewer actors"):
        predict_shards(model, records, tmp_path / "answers", actors=actors)


@pytest.mark.parametrize(
    ("gpus", "actors", "problem"),
    [
        (3.0, 1, "gpus=3 for each actor cannot be had: Ray has 2 GPUs"),
        (-1.0, 1, "gpus=-1 for each actor cannot be had"),
        (1.5, 2, "2 actors of 1.5 GPUs each cannot be had: Ray has 2 GPUs"),
    ],
)
def test_gpus_that_ray_does_not_have_are_refused_rather_than_waited_for(
    gpus: float, actors: int, problem: str, no_cluster: None, model: Path, records: Path, tmp_path: Path
) -> None:
    sys.modules["ray"].cluster_resources = lambda: {"CPU": 3.0, "GPU": 2.0}  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=problem):
        predict_shards(model, records, tmp_path / "answers", actors=actors, gpus=gpus)


def test_an_actor_given_a_gpu_says_where_there_is_none(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RecipeError, match="cannot use any; leave gpus at 0"):
        ShardPredictor(str(model), 0.5, 64, device="cuda")


@pytest.mark.parametrize("was_there", [False, True])
def test_a_ray_that_was_started_for_a_job_ends_with_it_and_one_that_was_there_stays(
    was_there: bool, no_cluster: None, model: Path, records: Path, tmp_path: Path
) -> None:
    ray, told = sys.modules["ray"], []
    ray.is_initialized = lambda: was_there  # type: ignore[attr-defined]
    ray.init = lambda **_: told.append("begun")  # type: ignore[attr-defined]
    ray.shutdown = lambda: told.append("ended")  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="actors cannot be had"):
        predict_shards(model, records, tmp_path / "answers", actors=9)
    assert told == ([] if was_there else ["begun", "ended"])


@pytest.mark.parametrize(("actors", "cpus", "logical"), [(9, None, 10), (1, None, 5), (1, 2, 2)])
def test_a_ray_that_is_started_has_a_logical_cpu_that_no_actor_takes(
    actors: int,
    cpus: int | None,
    logical: int,
    no_cluster: None,
    model: Path,
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ray = sys.modules["ray"]
    ray.is_initialized = lambda: False  # type: ignore[attr-defined]
    ray.init, ray.shutdown = given.update, lambda: None  # type: ignore[attr-defined]
    ray.cluster_resources = lambda: {"CPU": 1.0}  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="cannot be had"):
        predict_shards(model, records, tmp_path / "answers", actors=actors, cpus=cpus)
    assert (given["address"], given["num_cpus"]) == ("local", logical)


@pytest.mark.parametrize("was_there", [False, True])
def test_logical_cpus_are_not_given_to_a_ray_that_runs(
    was_there: bool,
    no_cluster: None,
    model: Path,
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not was_there:
        sys.modules["ray"].is_initialized = lambda: False  # type: ignore[attr-defined]
        monkeypatch.setenv("RAY_ADDRESS", "other:6379")
    with pytest.raises(RecipeError, match="cpus is for a Ray that is started here"):
        predict_shards(model, records, tmp_path / "answers", actors=1, cpus=3)


def test_without_ray_the_extra_is_named(
    model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RecipeError, match=r"this needs Ray .*: pip install 'treemem\[scale\]'"):
        predict_shards(model, records, tmp_path / "answers")
    assert not (tmp_path / "answers").exists()


def test_the_command_of_the_page_for_use_without_ray_predicts_a_file_of_the_folder(
    model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers").mkdir()
    (line,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if "xargs" in line)
    command = line.partition(" -I FILE treemem ")[2].replace("runs/mine", str(model))
    for _ in range(2):
        assert main(command.replace("FILE", "a.parquet").split()) == 0
    assert [answer["id"] for answer in answers_in(tmp_path / "answers")] == [f"a{number}" for number in range(RECORDS)]
