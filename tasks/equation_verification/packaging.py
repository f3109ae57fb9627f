"""Make a packaged model of the task from a run of a study: half-precision weights and a card with their scores.

``python -m treemem.tasks.equation_verification.packaging RUN [NAME]`` makes the model
``load_pretrained("equation_verification/NAME")``, or the task's own; ``RUN`` as in the records, such as
``"values/TreeCell/seed-12345"``. With ``--card`` it only measures a packaged model again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from treemem import checkpoint
from treemem.checkpoint import pretrained_folder
from treemem.errors import RecipeError
from treemem.explore import markdown_table, percent_of
from treemem.metrics.score import Score
from treemem.runs import TrainingOptions
from treemem.runs.data_sets import DataSets
from treemem.runs.evaluate import evaluate
from treemem.runs.study import recorded_model
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_records import read_study
from treemem.tasks.equation_verification.readers import read_equations
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import EQUALITY

CARD = "CARD.md"
AS_EVALUATED = "published_dev, as treemem evaluate reads it"
METRICS = ("accuracy", "precision", "recall")
_ALWAYS_LISTED = ("epochs", "batch_size", "learning_rate", "weight_decay", "seed")
_TITLES = {
    "test": "generated like the training equations, depth 8-13",
    "general_deep": "published-style, depth 8-13",
    "general_deeper": "published-style, depth 14-20",
    "textbook_development": "textbooks, rules of the training",
    "textbook_heldout": "textbooks, held out",
    "published_dev": "published, and false ones by one edit",
    AS_EVALUATED: "the same, variables numbered in order of appearance",
}
_FEW = 1000  # a rarer label is hardly learnt


def package_model(
    record: Mapping[str, Any], runs: Path, equations: Forest, files: Mapping[str, Forest], folder: Path
) -> None:
    """Write the model of a recorded run of a study in half precision, with its card.

    Args:
        record: of the run.
        runs: folder of the runs of the study.
        equations: the data of the run.
        files: more equations to score, by the names that the study has for them.
        folder: where to write; replaces a model that is there.

    Raises:
        RecipeError: the equations or weights are not those of the record.
        CheckpointError: the checkpoint is missing.
    """
    model = recorded_model(runs, record)
    model.half()
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made, former = Path(temporary) / "made", Path(temporary) / "former"
        checkpoint.save(made, model)
        write_card(made, record, equations, files)
        if folder.exists():
            folder.rename(former)
        made.rename(folder)


def write_card(folder: Path, record: Mapping[str, Any], equations: Forest, files: Mapping[str, Forest]) -> None:
    """Score the model in ``folder``, in single precision, and write its card. Arguments and errors as above."""
    if EquationVerification().examples(equations).digest() != record["data"]["hash"]:
        raise RecipeError(f"{record['run']!r} was trained on other equations; give those")
    model = checkpoint.load(folder)
    scores = {"test": evaluate(model, equations, split="test", progress=False).scores}
    scores |= {name: evaluate(model, forest, progress=False).scores for name, forest in files.items()}
    (folder / CARD).write_text(model_card(record, equations, scores), encoding="utf-8")


def model_card(record: Mapping[str, Any], equations: Forest, scores: Mapping[str, list[Score]]) -> str:
    """Return the card of a packaged model as Markdown.

    Args:
        record: of its run.
        equations: the data of the run.
        scores: of the packaged weights, on the split ``"test"`` and on files by name.
    """
    training_part = equations[equations.tree_data["split"] == "train"]
    counts = np.bincount(training_part.label, minlength=len(training_part.labels))
    learnt = {label: int(count) for label, count in zip(training_part.labels, counts, strict=True) if count}
    common = [label for label, count in learnt.items() if count >= _FEW and label != EQUALITY]
    rare = [f"{label} ({count})" for label, count in learnt.items() if count < _FEW]
    labels = ", ".join(common) + (f"; rarely also (with counts) {', '.join(rare)}" if rare else "")
    deepest = int(training_part.height()[training_part.begin[1:] - 1].max())
    rows = [
        [_TITLES.get(name, name.replace("_", " ")), str(set_scores[-1].examples), *_cells(set_scores[-1])]
        for name, set_scores in scores.items()
    ]
    read_out = record["task"]["read_out"]
    near = (
        " It may call two numbers equal that are near each other, above all large ones." if read_out == "values" else ""
    )
    by_depth = [[str(score.group), percent_of(score.accuracy, None)] for score in scores["test"]]
    defaults = asdict(TrainingOptions())
    training = {
        name: value
        for name, value in record["training"].items()
        if value != defaults.get(name) or name in _ALWAYS_LISTED
    }
    return f"""# A trained model for equation verification

It predicts whether the two sides of an equation are equal.

- Network: {record["network"]["network"]}, {_listed(record["network"]["options"])}; {record["parameters"]:,} parameters,
  stored in half precision. Read-out: {read_out}.
- Trained on generated equations of depth 1-{deepest}, the set "{record["data"]["name"]}" of the studies
  (SHA-256 of trees, labels and splits: `{record["data"]["hash"]}`).
- Training: {_listed(training)}.
  The weights are those of epoch {record["best_epoch"]}, which has the best validation accuracy. The page of the
  task says how the seed was chosen.
- Made by `treemem reproduce equation_verification {record["run"].partition("/")[0]}`:
  run `{record["run"]}`.

Scores of these weights in percent, computed in single precision:

{markdown_table([["equations", "number", *METRICS], *rows])}

{markdown_table([["depth", "accuracy"], *by_depth])}

The model can judge equations like those that it was trained on. They have these labels: {labels}.
It calls two sides that are the same equal, `nan = nan` too.
An answer is not a proof. The model errs more often on equations of other kinds and on those deeper than
{deepest}.{near}
"""


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _cells(score: Score) -> list[str]:
    """Return accuracy, precision and recall; only accuracy if all examples have one label."""
    values = [float(getattr(score, metric)) for metric in METRICS]
    return [percent_of(value, None) if not place or score.majority < 1 else "" for place, value in enumerate(values)]


def main(run: str, name: str, runs: Path, results: Path, files: Mapping[str, Path], *, only_card: bool = False) -> None:
    """Make a packaged model from a run of a study, or measure it again.

    The card has the scores on the files of the study; on those of the user, only if ``files`` has their paths.

    Raises:
        RecipeError: there is no record of the run in ``results``.
    """
    study = StudyFolder.find(EquationVerification.name).study(run.partition("/")[0])
    record = next((record for record in read_study(results / f"{study.name}.jsonl") if record["run"] == run), None)
    if record is None:
        raise RecipeError(f"there is no record of the run {run!r} in {results}; name one as the records do")
    folder = runs / EquationVerification.name
    sets = DataSets(study, folder / "data", files=files)
    scored = {name: sets[name] for name in study.files if sets.has(name)}
    if "published_dev" in files:
        scored[AS_EVALUATED] = read_equations(files["published_dev"], strict=True).forest
    task = EquationVerification.name
    place = pretrained_folder(f"{task}/{name}" if name else task)
    assert place is not None  # the task is in a file
    equations = sets[record["data"]["name"]]
    if only_card:
        write_card(place, record, equations, scored)
    else:
        package_model(record, folder, equations, scored, place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description="Package the model of a run.")
    parser.add_argument("run", help="a run of the records, such as values/TreeCell/seed-12093; its folder is in runs/")
    parser.add_argument("name", nargs="?", default="", help="of the packaged model; default: the model of the task")
    parser.add_argument("--files", nargs="*", default=[], metavar="NAME=PATH", help="more files of the study to score")
    parser.add_argument("--card", action="store_true", help="measure the packaged model again and write its card")
    given = parser.parse_args()
    files = {name: Path(path) for name, _, path in (argument.partition("=") for argument in given.files)}
    results = Path("docs/results/equation_verification")
    main(given.run, given.name, Path("runs/reproduce"), results, files, only_card=given.card)
