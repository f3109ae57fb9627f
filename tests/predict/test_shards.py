from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from documentation.page_blocks import DOCS, python_blocks
from fake_ray import Here
from models import small_model

import treemem
from treemem import checkpoint
from treemem.cli import main
from treemem.errors import CheckpointError, RecipeError
from treemem.predict import TreePredictor, chunks, predict_file, predict_shards, shards
from treemem.records import read_records, write_records

PAGE = DOCS / "scaling.md"
TEXTS = ["x + y = y + x", "x =", "sin(x)^2 = 1 - cos(x)^2", "x = -x", "2*x = x + x", "x = y", "y = y"]
pytestmark = pytest.mark.filterwarnings(  # Ray warns of its own settings
    "ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"
)
SHARDS, RECORDS = ("a", "b", "c", "d"), 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(chunks, "MOST_PROCESSES", 1)


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
    marker, small, predict = tmp_path / "killed", chunks.CHUNK_RECORDS, shards._predict_shard

    def dies_in_the_middle_of_a_shard(job: Any, shard: str) -> Any:
        from treemem.predict import chunks
        from treemem.predict.partial_output import PartialOutput

        append = PartialOutput.append

        def cut_off(self: Any, *arguments: Any, **counts: Any) -> None:
            if self.num_lines and shard.endswith("b.parquet"):
                dies_once(marker)
            if shard.endswith("c.parquet"):
                os.kill(os.getpid(), signal.SIGKILL)
            append(self, *arguments, **counts)

        chunks.CHUNK_RECORDS = small
        PartialOutput.append = cut_off  # type: ignore[method-assign]
        try:
            return predict(job, shard)
        finally:
            PartialOutput.append = append  # type: ignore[method-assign]

    (records / "damaged.parquet").write_text("no Parquet")
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_predict_shard", dies_in_the_middle_of_a_shard)
        assert shards._MOST_TRIES == 4, "what the page says"
        patch.setattr(shards, "_MOST_TRIES", 2)
        done = predict_shards(model, records, tmp_path / "answers", actors=2)
    assert marker.exists()
    assert (done.shards, done.done_before, done.counts.records, done.counts.rejected) == (5, 0, 21, 3)
    assert sorted(done.failed) == ["c.parquet", "damaged.parquet"]
    assert "the process that read it died 2 times" in done.failed["c.parquet"]
    assert "no Parquet data" in done.failed["damaged.parquet"]
    (records / "damaged.parquet").unlink()
    again = predict_shards(model, records, tmp_path / "answers", actors=2)
    assert (again.shards, again.done_before, again.counts.records, again.failed) == (4, 3, 7, {})
    expected = one_after_another(model, records, tmp_path / "expected")
    for path in expected.iterdir():
        assert (tmp_path / "answers" / path.name).read_bytes() == path.read_bytes()
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
    (pipeline,) = (block.code for block in python_blocks(PAGE) if "map_batches" in block.code)
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


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setitem(sys.modules, "ray", Here())
    shards._predictor.cache_clear()
    return sys.modules["ray"]  # type: ignore[return-value]


def test_files_whose_answers_exist_are_skipped_and_those_of_another_run_are_not_mixed(
    ray: Here, model: Path, records: Path, tmp_path: Path
) -> None:
    done = tmp_path / "answers"
    assert predict_shards(model, records, done).counts.records == len(SHARDS) * RECORDS
    again = predict_shards(model, records, done)
    assert (again.shards, again.done_before, again.counts.records, again.failed) == (4, 4, 0, {})
    with pytest.raises(RecipeError, match="holds answers of another threshold; choose another folder"):
        predict_shards(model, records, done, threshold=0.6)
    with pytest.raises(RecipeError, match="holds answers of another batch size"):
        predict_shards(model, records, done, batch_size=7)
    checkpoint.save(tmp_path / "other", small_model(seed=1))
    with pytest.raises(RecipeError, match="holds answers of another model"):
        predict_shards(tmp_path / "other", records, done)
    shutil.copytree(records, tmp_path / "others")
    with pytest.raises(RecipeError, match="holds answers of another input"):
        predict_shards(model, tmp_path / "others", done)


@pytest.mark.parametrize(
    ("changed", "match"),
    [({"digest": "0"}, "differs between the machines"), ({"device": "cuda"}, "cannot use a GPU on this machine")],
)
def test_a_machine_with_another_model_or_without_gpus_stops_the_job(
    changed: dict[str, str], match: str, ray: Here, model: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    job = {"checkpoint": str(model), "threshold": 0.5, "batch_size": 64, "device": "cpu", "digest": "", "folder": ""}
    with pytest.raises(CheckpointError, match=match):
        list(shards._results(shards._Job(**{**job, **changed}), [*records.iterdir()], ray, 1, 0))  # type: ignore[arg-type]


def test_a_folder_of_other_files_is_left_alone(ray: Here, model: Path, records: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "mine.txt").write_text("mine")
    with pytest.raises(RecipeError, match="holds other files; choose another folder"):
        predict_shards(model, records, tmp_path / "answers")
    with pytest.raises(RecipeError, match="is the input; choose another folder"):
        predict_shards(model, records, records)


def test_what_cannot_be_run_is_told(ray: Here, model: Path, records: Path, tmp_path: Path) -> None:
    for source, options, match in (
        (tmp_path, {}, r"there is no file \*\.parquet in"),
        (tmp_path / "missing", {}, "missing is not a folder"),
        (records, {"actors": 0}, "actors"),
        (records, {"gpus": 3.0}, "gpus=3 are not available: Ray has 0 GPUs"),
        (records, {"gpus": -1.0}, "gpus=-1 are not available"),
    ):
        with pytest.raises(RecipeError, match=match):
            predict_shards(model, source, tmp_path / "answers" / str(len(match)), **options)  # type: ignore[arg-type]


def test_a_ray_that_was_started_for_a_job_ends_with_it_and_one_that_was_there_stays(
    ray: Here, model: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    predict_shards(model, records, tmp_path / "there", actors=9)
    assert ray.told == []
    ray.has_begun = False
    predict_shards(model, records, tmp_path / "here", actors=9)
    begun, ended = ray.told
    assert (begun["address"], begun["num_cpus"], ended) == ("local", max(9, os.cpu_count() or 1), "ended")


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
