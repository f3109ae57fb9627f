"""Where a command can be killed, and what must hold afterwards: one row for each command that writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkpoint.saved_models import new_model
from crash.moments import Moment
from crash.small_study import study_folder
from predict.models import small_model
from toy_task import MoreX, toy_data
from training_runs import numbers

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.errors import CheckpointError, GraphError, RecipeError
from treemem.networks import NetworkConfig
from treemem.predict import predict_shards
from treemem.records import read_records, write_records
from treemem.runs import TrainingOptions, fit
from treemem.runs.results_page import write_page
from treemem.runs.study_file_run import StudyPlaces, run_study_file
from treemem.tasks.language_modeling import LanguageModeling, prepare
from treemem.trees.forest import Forest

RECIPE = """
task: more_x
data: {count: 60}
networks:
  sum: {network: KindSum, options: {hidden_size: 3}}
training: {epochs: 1, learning_rate: 0.05, batch_size: 16, accelerator: cpu}
"""
TEXTS = ["x + y = y + x", "x =", "sin(x)^2 = 1 - cos(x)^2", "x = -x", "log(x, 2) = x", "2*x = x + x", "x = y", "y = y"]
TIMES = {"seconds", "compute_seconds", "trees_per_second", "environment"}
_MAY_BE_TORN = {"log.txt", "metrics.jsonl", "optuna.journal", "accuracy_by_height.png"}


def nothing(*_: Any) -> None:
    """Do nothing, or check nothing."""


def every(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose every moment."""
    return moments


def visible(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose moments without those in which only temporary files changed."""
    return [moment for moment in moments if moment.is_visible]


def of_each_kind(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose the first visible moment of each kind, such as that a checkpoint has its name."""
    return [*{moment.kind: moment for moment in reversed(visible(moments))}.values()][::-1]


def outside_runs(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose as above, but of what is written within the folder of a run only the last kind: its own row has all."""
    chosen = of_each_kind(moments)
    inner = [moment for moment in chosen if all("/seed-" in path for path in moment.changed)]
    within = [moment for moment in inner if "written" in moment.name]
    return [moment for moment in chosen if moment not in within[:-1]]


def of_journal(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose the moments of the journal of a sweep until the second trial is drawn."""
    journal = [moment for moment in moments if "trials/optuna.journal" in moment.changed]
    return journal[: len(journal) // 2 + 4]


@dataclass(frozen=True)
class Row:
    """A command, the moments at which it is killed, and what must hold.

    Attributes:
        name: of the row.
        prepare: puts what the command reads and finds into the current folder.
        command: the words of a command of treemem, or a call; runs in the current folder.
        again: what a user does after a kill; None: the same command.
        result: what the command has made in a folder. After ``again`` it is that of a command that nobody killed.
        at_once: raises an error if a state that a killed command has left in a folder is not what it must be, such as
            one with a loss. It gets the folder and the result of the whole command.
        chosen: the moments at which it is killed, unless all are asked for.
    """

    name: str
    prepare: Callable[[], object]
    command: tuple[str, ...] | Callable[[], object]
    result: Callable[[Path], Any]
    again: Callable[[], object] | None = None
    at_once: Callable[[Path, Any], object] = nothing
    chosen: Callable[[Sequence[Moment]], Sequence[Moment]] = of_each_kind

    def __str__(self) -> str:
        return self.name

    def run(self) -> None:
        """Run the command, which must succeed."""
        if callable(self.command):
            self.command()
        else:
            succeed(*self.command)()

    def run_again(self) -> None:
        """Do what a user does after a kill."""
        (self.again or self.run)()


def succeed(*words: str) -> Callable[[], None]:
    """A command that must succeed."""

    def run() -> None:
        assert main(words) == 0

    return run


def unless_refused(*words: str) -> Callable[[], None]:
    """A command that must succeed, or be refused and then succeed with ``--overwrite``."""

    def run() -> None:
        code = main(words)
        assert code in (0, 2)
        if code:
            assert main([*words, "--overwrite"]) == 0

    return run


def check_files_are_whole(folder: Path, _: object) -> None:
    """Check that each file under its own name can be read, logs excepted."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.name in _MAY_BE_TORN or any(part.startswith(".") for part in path.parts):
            continue
        if path.suffix in (".jsonl", ".csv", ".parquet"):
            list(read_records(path))
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".yaml":
            assert yaml.safe_load(path.read_text())
        elif path.suffix == ".md":
            assert path.read_text().endswith("\n")


# -- training

NETWORK = NetworkConfig("StackTreeLSTM", {"hidden_size": 4, "stack_size": 2, "dropout": 0.2})
OPTIONS = TrainingOptions(
    epochs=2, batch_size=16, optimizer="adamw", learning_rate=0.01, schedule="cosine", warmup=0.1, averaging=0.9,
    curriculum=2, clip=0.5, checkpoint_steps=2, keep_epochs=True, accelerator="cpu", prefetch=2,
)  # fmt: skip


def train_one() -> None:
    fit(MoreX(), NETWORK, toy_data(), OPTIONS, output="run", resume=True)


def run_of(folder: Path) -> Any:
    records, *weights = numbers(folder / "run")
    return records, [{name: values.tolist() for name, values in group.items()} for group in weights]


def check_run(folder: Path, _: object) -> None:
    """Check that no epoch is lost that the log reports, and that all checkpoints that count are whole."""
    run, log = RunFolder(folder / "run"), folder / "run" / "metrics.jsonl"
    last = run.find("last", with_training_state=True)
    reported = log.read_text().count("\n") if log.is_file() else 0
    assert reported <= (0 if last is None else len(checkpoint.records_of(last[2], last[1])))
    if (run.path / "checkpoints.json").is_file():
        named = json.loads((run.path / "checkpoints.json").read_bytes())
        for number in {*named["best"], *named["last"]}:
            checkpoint.verified_files(run.path / "checkpoints" / f"{number:06d}")
    if last is None:
        with pytest.raises(CheckpointError, match=r"has no weights|is no checkpoint|there is no checkpoint"):
            treemem.load(run.path)
    else:
        treemem.load(run.path)


def with_half_a_checkpoint(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Choose a moment of each kind, and one in which the second checkpoint is half written."""
    half = [moment for moment in moments if any(".000002.tmp/model" in path for path in moment.changed)]
    return [*of_each_kind(moments), *half]


def write_recipe() -> None:
    Path("toy.yaml").write_text(RECIPE)


def train(*words: str) -> tuple[str, ...]:
    return ("train", "toy.yaml", "-o", "run", *words)


def prepare_trained(*words: str) -> Callable[[], None]:
    def prepare() -> None:
        write_recipe()
        succeed(*train(*words))()
        (Path("run/sum/seed-1") / "notes.txt").write_text("mine")

    return prepare


def prepare_two_outputs() -> None:
    write_recipe()
    for name, seed in (("one", "1"), ("two", "2")):
        succeed("train", "toy.yaml", "-o", name, "--seeds", seed)()


def results_of(folder: Path) -> Mapping[str, str]:
    """What the folder of a run says of its seeds, which has no times, and files of the user."""
    files = ["results.jsonl", "table.md", "data.md", "sum/results.jsonl", "sum/answers.jsonl", "sum/recipe.yaml"]
    notes = {str(path): path.read_text() for path in folder.rglob("notes.txt")}
    return {**{name: (folder / "run" / name).read_text() for name in files}, **notes}


def recorded_seeds(folder: Path) -> list[int]:
    return [record.fields["seed"] for record in read_records(folder / "run" / "sum" / "answers.jsonl")]


def check_first_seed_is_there(folder: Path, whole: object) -> None:
    check_files_are_whole(folder, whole)
    assert recorded_seeds(folder) in ([1], [1, 2])
    assert treemem.load(folder / "run" / "sum" / "seed-1")


TRAINING = [
    Row("a run from one seed", nothing, train_one, run_of, at_once=check_run, chosen=with_half_a_checkpoint),
    Row(
        "treemem train", write_recipe, train("--seeds", "1"), results_of,
        at_once=check_files_are_whole, chosen=outside_runs,
    ),
    Row(
        "treemem train of another seed", prepare_trained("--seeds", "1"), train("--seeds", "2"), results_of,
        at_once=check_first_seed_is_there, chosen=outside_runs,
    ),
    Row(
        "treemem merge", prepare_two_outputs, ("merge", "one", "two", "-o", "run"), results_of,
        at_once=check_files_are_whole, chosen=outside_runs,
    ),
    Row(
        "treemem train --overwrite", prepare_trained("--seeds", "1"),
        train("--seeds", "1", "training.batch_size=4", "--overwrite"), results_of,
        again=unless_refused(*train("--seeds", "1", "training.batch_size=4")),
        at_once=check_files_are_whole, chosen=outside_runs,
    ),
]  # fmt: skip


# -- sweeps and studies

SWEEP = ("sweep", "toy.yaml", "-o", "trials", "--trials", "2", "--vary", "training.learning_rate=0.001:0.1:log")


def without_times(path: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.fields.items() if name not in TIMES} for record in read_records(path)
    ]


def study() -> None:
    folder = study_folder(Path("task"))
    run_study_file(folder.study("small"), StudyPlaces(Path("runs"), Path("results"), Path("toys.md")))
    write_page(folder, Path("results"), Path("toys.md"))


def study_of(folder: Path) -> Any:
    records = {path.name: without_times(path) for path in (folder / "results").glob("*.jsonl")}
    return records, (folder / "toys.md").read_text()


STUDIES = [
    Row(
        "treemem sweep", write_recipe, SWEEP, lambda folder: without_times(folder / "trials/trials.jsonl"),
        at_once=check_files_are_whole, chosen=of_journal,
    ),
    Row(
        "treemem reproduce", lambda: study_folder(Path("task")), study, study_of,
        at_once=check_files_are_whole, chosen=outside_runs,
    ),
]  # fmt: skip


# -- predictions


def write_equations() -> None:
    Path("equations.txt").write_text("\n".join(TEXTS) + "\n")


def write_equations_and_model() -> None:
    write_equations()
    checkpoint.save("model", small_model())


def predict(name: str, *words: str) -> tuple[str, ...]:
    return ("predict", "model", "equations.txt", "-o", name, "--processes", "1", *words)


def beside_an_old_file(prepare: Callable[[], object], name: str) -> Callable[[], None]:
    def run() -> None:
        prepare()
        Path(name).write_text("old\n")

    return run


def content_of(name: str) -> Callable[[Path], bytes]:
    return lambda folder: (folder / name).read_bytes()


def absent_or_whole(name: str) -> Callable[[Path, bytes], None]:
    def check(folder: Path, whole: bytes) -> None:
        assert not (folder / name).exists() or (folder / name).read_bytes() == whole

    return check


def old_or_whole(name: str) -> Callable[[Path, bytes], None]:
    def check(folder: Path, whole: bytes) -> None:
        assert (folder / name).read_bytes() in (b"old\n", whole)

    return check


def predict_on(name: str) -> Callable[[], None]:
    """Continue a run that replaces an output, or begin it if it has left nothing."""

    def run() -> None:
        has_begun = Path(f"{name}.partial").exists()
        succeed(*predict(name, "--resume" if has_begun else "--overwrite"))()

    return run


def predict_folder() -> None:
    counts = predict_shards("model", "records", "answers")
    assert (counts.shards, counts.failed) == (2, {})


def write_records_and_model() -> None:
    checkpoint.save("model", small_model())
    Path("records").mkdir()
    for shard in "ab":
        lines = ({"id": f"{shard}{number}", "equation": text} for number, text in enumerate(TEXTS[:4]))
        write_records(f"records/{shard}.parquet", lines)


def answers_of(folder: Path) -> dict[str, bytes]:
    """Everything beside the answers but locks, which nobody holds."""
    return {path.name: path.read_bytes() for path in (folder / "answers").iterdir() if path.suffix != ".lock"}


def check_answers_are_whole(folder: Path, whole: Mapping[str, bytes]) -> None:
    for path in (folder / "answers").glob("*.parquet"):
        assert path.read_bytes() == whole[path.name]


PREDICTIONS = [
    *(
        Row(
            f"treemem predict -o {name}", write_equations_and_model, predict(name), content_of(name),
            again=succeed(*predict(name, "--resume")), at_once=absent_or_whole(name),
        )
        for name in ("out.jsonl", "out.jsonl.gz", "out.csv", "out.parquet")
    ),
    *(
        Row(
            f"treemem predict -o {name} --overwrite", beside_an_old_file(write_equations_and_model, name),
            predict(name, "--overwrite"), content_of(name), again=predict_on(name), at_once=old_or_whole(name),
        )
        for name in ("out.jsonl", "out.csv")
    ),
    Row(
        "predict_shards", write_records_and_model, predict_folder, answers_of, at_once=check_answers_are_whole,
    ),
]  # fmt: skip


# -- commands that write a file or a folder at once

LISTS = ("generate", "listops", "data.training_size=10", "data.validation_size=5", "data.test_size=5", "data.pool=0")


def lists_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "lists").iterdir()}


def score_and_write(*words: str) -> tuple[str, ...]:
    return ("evaluate", "model", "toys.jsonl", "--json", "scores.json", *words)


def write_examples_and_model() -> None:
    checkpoint.save("model", small_model())
    assert main(["generate", "equation_verification", "-o", "toys.jsonl", "data.size=20"]) == 0


def writing_file(command: str, output: str, words: tuple[str, ...], prepare: Callable[[], object]) -> list[Row]:
    """A command that writes a file that is absent, and one that it replaces."""
    return [
        Row(
            command, prepare, words, content_of(output), again=unless_refused(*words),
            at_once=absent_or_whole(output),
        ),
        Row(
            f"{command} --overwrite", beside_an_old_file(prepare, output),
            (*words, "--overwrite"), content_of(output), at_once=old_or_whole(output),
        ),
    ]  # fmt: skip


FILES = [
    *writing_file("treemem generate", "lists.jsonl", (*LISTS, "-o", "lists.jsonl"), nothing),
    *writing_file("treemem label", "labelled.csv", ("label", "equations.txt", "-o", "labelled.csv"), write_equations),
    *writing_file("treemem evaluate --json", "scores.json", score_and_write(), write_examples_and_model),
    Row(
        "treemem generate of a folder", nothing, (*LISTS, "-o", "lists"), lists_of,
        again=unless_refused(*LISTS, "-o", "lists"), at_once=check_files_are_whole,
    ),
]  # fmt: skip


# -- what the library saves


def save_model(seed: int) -> Callable[[], None]:
    return lambda: checkpoint.save("model", new_model(seed), overwrite=True)


def save_first_with_card() -> None:
    save_model(0)()
    Path("model/README.md").write_text("my card")


def model_of(folder: Path) -> Any:
    weights = {name: values.tolist() for name, values in treemem.load(folder / "model").state_dict().items()}
    return weights, (folder / "model" / "README.md").read_text()


def check_model_and_card_are_there(folder: Path, whole: Any) -> None:
    """Check that each save that is refused or succeeds finishes or undoes the one that was killed."""
    with pytest.raises(CheckpointError, match="model is there already; choose another"):
        checkpoint.save(folder / "model", new_model(2))
    assert model_of(folder)[0] in (whole[0], {name: w.tolist() for name, w in new_model(0).state_dict().items()})
    assert (folder / "model" / "README.md").read_text() == "my card"


def forest_of(folder: Path) -> Forest:
    return Forest.load(folder / "trees", mmap=False)


def check_forest(folder: Path, whole: Forest) -> None:
    """Check that the trees are the old ones, the new ones or refused."""
    try:
        trees = forest_of(folder)
    except GraphError:
        return
    assert trees in (toy_data(10), whole)


def write_texts() -> None:
    Path("texts").mkdir()
    for name in ("train", "valid", "test"):
        Path(f"texts/{name}.txt").write_text("a b\n\na a c\n" * 2)


def prepare_text(*more: str) -> Callable[[], None]:
    def run() -> None:
        assert prepare.main(["texts", "-o", "trees", "--words", "2", *more]) == 0

    return run


def check_text(folder: Path, whole: Forest) -> None:
    """Check that the text is whole or refused."""
    try:
        assert forest_of(folder) == whole
    except GraphError:
        with pytest.raises(RecipeError, match="has no file of the train part"):
            _ = LanguageModeling(path=str(folder / "trees")).vocabulary


SAVED = [
    Row(
        "checkpoint.save", save_first_with_card, save_model(1), model_of, at_once=check_model_and_card_are_there,
        chosen=every,
    ),
    Row(
        "checkpoint.set_temperature", save_first_with_card, lambda: checkpoint.set_temperature(Path("model"), 2.0),
        lambda folder: treemem.load(folder / "model").temperature,
        at_once=lambda folder, _: treemem.load(folder / "model"), chosen=every,
    ),
    Row(
        "Forest.save", lambda: toy_data(10).save("trees"), lambda: toy_data(14, seed=3).save("trees"), forest_of,
        at_once=check_forest, chosen=every,
    ),
    Row(
        "preparing a text", write_texts, prepare_text(), forest_of, again=prepare_text("--overwrite"),
        at_once=check_text, chosen=every,
    ),
    Row(
        "Vocabulary.save", nothing, lambda: MoreX().vocabulary.save("words.json"), content_of("words.json"),
        at_once=absent_or_whole("words.json"), chosen=every,
    ),
]  # fmt: skip

ROWS = [*TRAINING, *STUDIES, *PREDICTIONS, *FILES, *SAVED]
