from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_task import KindSum, MoreX, scored_batches, toy_data

import treemem
from treemem import RecipeError
from treemem.errors import ParseError
from treemem.metrics.score import column_scores, score_columns
from treemem.networks import NetworkConfig
from treemem.records import locked, write_records
from treemem.runs import (
    StudyRun,
    TrainingOptions,
    evaluate,
    read_study,
    recorded_scores,
    right_answers,
    run_study,
    study_records,
)
from treemem.runs.fit import fit
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary

SUM = NetworkConfig("KindSum", {"hidden_size": 3})
TRAINING = TrainingOptions(epochs=2, batch_size=16, learning_rate=0.1)


def runs(*seeds: int, epochs: int = 2) -> list[StudyRun]:
    return [
        StudyRun(f"sum/seed-{seed}", "sum", SUM, dataclasses.replace(TRAINING, seed=seed, epochs=epochs))
        for seed in seeds
    ]


def test_records_hold_what_training_and_scoring_each_run_alone_gives(tmp_path: Path) -> None:
    data, other = toy_data(), toy_data(20, seed=1, divided=False)
    given: dict[str, Any] = {
        "folder": tmp_path / "runs", "results": tmp_path / "new" / "study.jsonl", "files": {"other": other},
        "processes": 2,
    }  # fmt: skip
    bad = dataclasses.replace(runs(3)[0], network=NetworkConfig("KindSum", {"hiden_size": 3}))
    with pytest.raises(RecipeError, match="hiden_size"):  # it stops no other
        run_study(MoreX(), [bad, *runs(1, 2)], {"data": data}, **given)
    found = read_study(given["results"])
    assert [record["run"] for record in found] == ["sum/seed-1", "sum/seed-2"]
    assert run_study(MoreX(), runs(1, 2), {"data": data}, **given) == found
    alone = fit(MoreX(), SUM, data, dataclasses.replace(TRAINING, seed=2), output=tmp_path / "alone")
    for part, (forest, split) in {"test": (data, "test"), "other": (other, None)}.items():
        expected = evaluate(alone.model, forest, split=split)
        assert found[1]["scores"][part] == score_columns(expected.scores, MoreX().group)
        assert right_answers(found[1], part).tolist() == expected.correct.tolist()
        assert recorded_scores(found[1], part) == column_scores(score_columns(expected.scores, MoreX().group))
    assert found[1]["best_epoch"] == alone.best_epoch
    assert set(found[1]["scores"]) == {"train", "validation", "test", "other"}
    assert read_study(given["results"]) == found


def test_runs_are_scored_in_batches_and_threads_of_their_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = scored_batches(monkeypatch)
    run = dataclasses.replace(runs(1)[0], training=TrainingOptions(epochs=1, evaluation_batch_size=6, threads=2))
    given = {"folder": tmp_path / "runs", "results": tmp_path / "study.jsonl", "splits": ("test",)}
    run_study(MoreX(), [run], {"data": toy_data()}, files={"other": toy_data(18, divided=False)}, **given)
    validation, test, other = 12, 12, 18
    assert seen == [(6, 2)] * ((validation + test + other) // 6)


def test_what_is_recorded_is_not_run_again_and_what_is_missing_is(tmp_path: Path) -> None:
    data, results = {"data": toy_data()}, tmp_path / "study.jsonl"
    first = run_study(MoreX(), runs(1), data, folder=tmp_path / "runs", results=results, splits=("validation",))
    assert set(first[0]["scores"]) == {"validation"}
    shutil.rmtree(tmp_path / "runs")
    both = run_study(MoreX(), runs(2, 1), data, folder=tmp_path / "runs", results=results, splits=("validation",))
    assert both[1] == first[0]
    assert not (tmp_path / "runs" / "sum" / "seed-1").exists()
    assert [record["run"] for record in read_study(results)] == ["sum/seed-2", "sum/seed-1"]


def test_runs_that_another_study_records_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"folder": tmp_path / "runs", "results": tmp_path / "study.jsonl", "splits": ("test",)}

    def with_another(*rest: Any, **options: Any) -> Any:
        monkeypatch.undo()
        run_study(MoreX(), runs(2), {"data": toy_data()}, **given)
        return fit(*rest, **options)

    monkeypatch.setattr("treemem.runs.run.fit", with_another)
    run_study(MoreX(), runs(1), {"data": toy_data()}, **given)
    assert [record["run"] for record in read_study(given["results"])] == ["sum/seed-2", "sum/seed-1"]


def test_trees_and_records_are_written_while_other_studies_of_the_same_place_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, link = tmp_path / "place", tmp_path / "elsewhere" / "link.jsonl"
    place.mkdir()
    link.parent.mkdir()
    link.symlink_to(place / "study.jsonl")
    (place / "study.jsonl").touch()
    written = []

    def while_others_wait(of: Path, write: Callable[..., Any]) -> Callable[..., Any]:
        def written_alone(*rest: Any, **options: Any) -> Any:
            with pytest.raises(RecipeError, match="another process is writing"), locked(of, wait=False):
                pass
            written.append(of.name)
            return write(*rest, **options)

        return written_alone

    monkeypatch.setattr(study_records, "write_records", while_others_wait(place / "study", write_records))
    monkeypatch.setattr(Forest, "save", while_others_wait(tmp_path / "runs" / "trees", Forest.save))
    run_study(MoreX(), runs(1), {"data": toy_data()}, folder=tmp_path / "runs", results=link, splits=("test",))
    assert written == ["trees", "study"]
    assert [record["run"] for record in read_study(place / "study.jsonl")] == ["sum/seed-1"]


def test_trees_that_another_study_replaced_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"folder": tmp_path / "runs", "splits": ("test",)}

    def with_another(*rest: Any, **options: Any) -> Any:
        monkeypatch.undo()
        run_study(MoreX(), runs(3), {"data": toy_data(seed=9)}, results=tmp_path / "other.jsonl", **given)
        return fit(*rest, **options)

    monkeypatch.setattr("treemem.runs.run.fit", with_another)
    with pytest.raises(RecipeError, match=r"trees/data holds other trees than this study has"):
        run_study(MoreX(), runs(1, 2), {"data": toy_data()}, results=tmp_path / "study.jsonl", **given)
    assert [record["run"] for record in read_study(tmp_path / "study.jsonl")] == ["sum/seed-1"]
    assert not (tmp_path / "runs" / "sum" / "seed-2").exists()


def test_saved_trees_are_written_again_only_where_they_are_others_or_torn(tmp_path: Path) -> None:
    given: dict[str, Any] = {"folder": tmp_path / "runs", "results": tmp_path / "study.jsonl", "splits": ("test",)}
    label = tmp_path / "runs" / "trees" / "data" / "label.npy"
    run_study(MoreX(), runs(1), {"data": toy_data()}, **given)
    before = label.stat().st_ino
    run_study(MoreX(), runs(2), {"data": toy_data()}, **given)
    assert label.stat().st_ino == before
    label.write_bytes(label.read_bytes()[:-8])
    assert len(run_study(MoreX(), runs(3), {"data": toy_data()}, **given)) == 1


def test_a_run_whose_record_lacks_a_file_is_scored_again_from_its_folder(tmp_path: Path) -> None:
    data, results, folder = {"data": toy_data()}, tmp_path / "study.jsonl", tmp_path / "runs"
    other, more = (toy_data(20, seed=seed, divided=False) for seed in (1, 2))
    first = run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"other": other})
    log = (folder / "sum" / "seed-1" / "metrics.jsonl").read_bytes()
    second = run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"more": more})
    assert (folder / "sum" / "seed-1" / "metrics.jsonl").read_bytes() == log, "nothing was trained again"
    assert second[0]["scores"].keys() - first[0]["scores"].keys() == {"more"}
    assert second[0]["scores"]["other"] == first[0]["scores"]["other"]
    assert second[0]["files"].keys() == {"other", "more"}
    assert {**second[0], "files": 0, "scores": 0, "right": 0} == {
        **first[0], "files": 0, "scores": 0, "right": 0,
    }  # fmt: skip
    assert run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"other": other}) == second


def test_another_file_of_the_same_name_is_scored_anew_for_every_run(tmp_path: Path) -> None:
    data, results, folder = {"data": toy_data()}, tmp_path / "study.jsonl", tmp_path / "runs"
    first, second = (toy_data(20, seed=seed, divided=False) for seed in (1, 2))
    run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"other": first})
    found = run_study(MoreX(), runs(1, 2), data, folder=folder, results=results, files={"other": second})
    assert len({record["files"]["other"] for record in found}) == 1
    expected = evaluate(treemem.load(folder / "sum" / "seed-1"), second)
    assert right_answers(found[0], "other").tolist() == expected.correct.tolist()


def test_scores_of_other_weights_are_not_kept(tmp_path: Path) -> None:
    data, results, folder = {"data": toy_data()}, tmp_path / "study.jsonl", tmp_path / "runs"
    first, second = (toy_data(20, seed=seed, divided=False) for seed in (1, 2))
    before = run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"first": first})
    write_records(results, [{**before[0], "weights": "of another machine"}])
    after = run_study(MoreX(), runs(1), data, folder=folder, results=results, files={"second": second})
    assert after[0]["weights"] == before[0]["weights"]
    assert after[0]["scores"].keys() == {"train", "validation", "test", "second"}


def test_a_recorded_run_with_pairs_for_options_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfPairs(KindSum):
        def __init__(self, hidden_size: int, vocabulary: Vocabulary, *, sizes: Sequence[int] = (1, 2)) -> None:
            super().__init__(hidden_size, vocabulary)

    monkeypatch.setattr(NetworkConfig, "constructor", lambda self, networks=None: OfPairs)
    given: dict[str, Any] = {"folder": tmp_path / "runs", "results": tmp_path / "study.jsonl"}
    staged = dataclasses.replace(TRAINING, curriculum=((2, 1),))
    run = StudyRun("sum", "sum", SUM.replace(sizes=(4, 4)), staged)
    record = record_of(run, toy_data())
    write_records(given["results"], [record])
    found = run_study(MoreX(), [run], {"data": toy_data()}, **given)
    assert found[0]["network"]["options"] == {"hidden_size": 3, "sizes": [4, 4]}
    with pytest.raises(RecipeError, match=r"run 'sum': network was {'sizes': \[4, 4\]} and is {'sizes': \[1, 2\]} now"):
        run_study(MoreX(), [dataclasses.replace(run, network=SUM)], {"data": toy_data()}, **given)


def record_of(run: StudyRun, data: Forest) -> dict[str, Any]:
    """A record with scores of nothing, as if the run had been made."""
    return {
        "run": run.name,
        "row": run.row,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"name": run.data, "hash": MoreX().examples(data).digest()},
        "scores": {"train": {}, "validation": {}, "test": {}},
    }


def test_a_record_without_a_field_is_refused_with_its_line(tmp_path: Path) -> None:
    results = tmp_path / "study.jsonl"
    write_records(results, [{"run": "new", "right": {}}, {"run": "old", "right": None}])
    assert len(read_study(results, ["run"])) == 2
    with pytest.raises(ParseError, match=r"study\.jsonl, line 2.* has no right; expected a record of this study"):
        read_study(results, ["run", "right"])
    with pytest.raises(ParseError, match=r"study\.jsonl, line 1.* has no network and no training and"):
        run_study(MoreX(), runs(1), {"data": toy_data()}, folder=tmp_path, results=results)


@pytest.mark.parametrize(
    ("epochs", "seed", "said"), [(3, 0, "epochs was 2 and is 3 now"), (2, 9, r"it was trained on other data \(.*\)")]
)
def test_a_record_of_other_options_or_data_is_refused(tmp_path: Path, epochs: int, seed: int, said: str) -> None:
    results = tmp_path / "study.jsonl"
    run_study(MoreX(), runs(1), {"data": toy_data()}, folder=tmp_path / "runs", results=results)
    data = toy_data(seed=seed)
    with pytest.raises(RecipeError, match=f"another run 'sum/seed-1': {said}. Remove that line .*/runs/sum/seed-1, to"):
        run_study(MoreX(), runs(1, epochs=epochs), {"data": data}, folder=tmp_path / "runs", results=results)


def test_a_record_from_before_an_option_was_there_is_of_a_run_at_its_default(tmp_path: Path) -> None:
    data, results = {"data": toy_data()}, tmp_path / "study.jsonl"
    record = run_study(MoreX(), runs(1), data, folder=tmp_path / "runs", results=results)[0]
    for name in ("optimizer", "schedule", "warmup", "averaging", "curriculum"):
        del record["training"][name]
    write_records(results, [record])
    assert run_study(MoreX(), runs(1), data, folder=tmp_path / "runs", results=results) == [record]
    averaging = dataclasses.replace(runs(1)[0], training=dataclasses.replace(runs(1)[0].training, averaging=0.9))
    with pytest.raises(RecipeError, match=r"'sum/seed-1': averaging was None and is 0\.9 now"):
        run_study(MoreX(), [averaging], data, folder=tmp_path / "runs", results=results)


@pytest.mark.parametrize(
    ("changes", "files", "message"),
    [
        ({"name": "../outside"}, {}, "within the study's folder"),
        ({"name": "/outside"}, {}, "within the study's folder"),
        ({"name": "trees/data"}, {}, "must stay within"),
        ({"data": "dta"}, {}, "needs the forest 'dta'; there are data"),
        ({}, {"train": 1}, "name of a forest or of a split"),
        ({}, {"data": 1}, "name of a forest or of a split"),
        ({}, {"..": 1}, "within the study's folder"),
    ],
)
def test_names_that_would_overwrite_something_are_refused(
    tmp_path: Path, changes: dict[str, str], files: dict[str, int], message: str
) -> None:
    run = dataclasses.replace(runs(1)[0], **changes)  # type: ignore[arg-type]
    others = dict.fromkeys(files, toy_data(20))
    with pytest.raises(RecipeError, match=message):
        run_study(MoreX(), [run], {"data": toy_data()}, folder=tmp_path / "runs", results=tmp_path / "s", files=others)
    assert not list(tmp_path.iterdir())


def test_options_at_their_defaults_are_the_same_run(tmp_path: Path) -> None:
    data, results = {"data": toy_data()}, tmp_path / "study.jsonl"
    run = StudyRun("lstm", "lstm", NetworkConfig("TreeLSTM", {"hidden_size": 2}), TRAINING)
    first = run_study(MoreX(), [run], data, folder=tmp_path / "runs", results=results)
    spelled = dataclasses.replace(run, network=run.network.replace(dropout=0.0))
    assert run_study(MoreX(), [spelled], data, folder=tmp_path / "runs", results=results) == first


def test_options_without_effect_on_results_make_no_other_run(tmp_path: Path) -> None:
    given: dict[str, Any] = {"folder": tmp_path / "runs", "results": tmp_path / "study.jsonl"}
    first = run_study(MoreX(), runs(1), {"data": toy_data()}, **given)
    other = dataclasses.replace(runs(1)[0].training, prefetch=2, checkpoint_seconds=None, accelerator="cpu")
    assert run_study(MoreX(), [dataclasses.replace(runs(1)[0], training=other)], {"data": toy_data()}, **given) == first


def test_two_runs_of_one_name_and_no_process_are_refused(tmp_path: Path) -> None:
    given: dict[str, Any] = {"folder": tmp_path, "results": tmp_path / "study.jsonl"}
    with pytest.raises(RecipeError, match="one name"):
        run_study(MoreX(), runs(1, 1), {"data": toy_data()}, **given)
    with pytest.raises(RecipeError, match="processes must be at least 1"):
        run_study(MoreX(), runs(1), {"data": toy_data()}, processes=0, **given)
