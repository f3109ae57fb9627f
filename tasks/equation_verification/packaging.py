"""The trained model that comes with the task: made from a run of a study, in half precision, with its card."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treemem import checkpoint
from treemem.errors import RecipeError
from treemem.explore import markdown_table
from treemem.task import Score
from treemem.tasks.equation_verification.results_tables import METRICS, overall, percent_of, scores_of
from treemem.training import TrainingOptions, read_study
from treemem.training.study import weights_digest

CARD = "CARD.md"
_ALWAYS_SAID = ("epochs", "batch_size", "learning_rate", "weight_decay", "seed")
_MOST_BYTES = 1_200_000


def package_model(results: Path, runs: Path, name: str, folder: Path) -> None:
    """Write the model of a run of a study, in half precision, and its card.

    Args:
        results: the records of the study.
        runs: folder of the study's runs.
        name: of the run.
        folder: where to write; a model that is there is replaced.

    Raises:
        RecipeError: no such run, other weights than its figures are of, or a model too large to come with a package.
        CheckpointError: its checkpoint is not there.
    """
    record = next((record for record in read_study(results) if record["run"] == name), None)
    if record is None:
        raise RecipeError(f"{results} has no run {name!r}")
    model = checkpoint.load(runs / name)
    if weights_digest(model) != record["weights"]:
        raise RecipeError(f"the weights in {runs / name} are not those that {results} has the figures of")
    model.half()
    size = sum(2 * parameter.numel() for parameter in model.parameters())
    if size > _MOST_BYTES:
        raise RecipeError(f"the weights of {name!r} take {size:,} bytes; a model in the package has {_MOST_BYTES:,}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made, former = Path(temporary) / "made", Path(temporary) / "former"
        checkpoint.save(made, model)
        (made / CARD).write_text(model_card(record), encoding="utf-8")
        if folder.exists():
            folder.rename(former)
        made.rename(folder)


def model_card(record: Mapping[str, Any]) -> str:
    """What the model of a recorded run is, as Markdown."""
    files = {"test": "generated, depth 8-13", "deeper": "generated, depth 14-20"}
    files |= {name: name.replace("_", " ") for name in record["scores"] if name.startswith("published")}
    rows = [
        [title, str(score.examples), *_cells(score)]
        for name, title in files.items()
        if name in record["scores"]
        for score in [overall(record, name)]
    ]
    by_depth = [[str(score.group), percent_of(score.accuracy, None)] for score in scores_of(record, "test")]
    training = {
        name: value
        for name, value in record["training"].items()
        if value != getattr(TrainingOptions, name) or name in _ALWAYS_SAID
    }
    return f"""# A trained model for equation verification

Whether the two sides of an equation are equal, for equations like the published ones.

- Network: {record["network"]["network"]}, {_said(record["network"]["options"])}; {record["parameters"]:,} parameters,
  kept in half precision. Read-out: {record["task"]["read_out"]} of the sides.
- Trained on generated equations of depth 1-7, the set "{record["data"]["name"]}" of the studies (SHA-256 of trees,
  labels and splits: `{record["data"]["hash"]}`).
- Training: {_said(training)}.
  Epoch {record["best_epoch"]}, the best by validation accuracy, is kept.
- Made by `python -m treemem.tasks.equation_verification.reproduce {record["run"].partition("/")[0]}`:
  run `{record["run"]}`.

Percent, in single precision before rounding to half:

{markdown_table([["equations", "number", *METRICS], *rows])}

{markdown_table([["depth", "accuracy"], *by_depth])}

It knows equations like those that it was trained on: of the variables the first six, the integers 0 to 4, 10, -1, -2
and -3, 1/2, -1/2, 2/5, 0.7 and pi, sums, products, powers, sin, cos, tan, cot, sec and csc. Every other label of the
vocabulary (5 to 9, further functions and variables) was in no training equation: what it says of equations with such a
label means nothing, however sure it is. And it is no proof: of equations of other sources it takes many true ones for
false, and some false ones for true.
"""


def _said(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _cells(score: Score) -> list[str]:
    """Accuracy, precision and recall; the first alone where all examples have one label."""
    values = [float(getattr(score, metric)) for metric in METRICS]
    return [percent_of(value, None) if not place or score.majority < 1 else "" for place, value in enumerate(values)]
