"""Fit the temperature of a trained model on labelled data."""

from __future__ import annotations

import os

import torch

from treemem import checkpoint
from treemem.data.examples import DataSet, forest_of
from treemem.errors import CheckpointError, RecipeError
from treemem.trees.forest import Forest


def calibrate(path: str | os.PathLike[str], data: Forest | DataSet, *, split: str | None = "validation") -> float:
    """Fit the temperature of a checkpoint on labelled data, write it beside the checkpoint, and return it.

    Args:
        path: the folder of a checkpoint, or of a run, whose best checkpoint is taken.
        data: labelled trees of the model's task, preferably not from training.
        split: part of the data; None for all.

    Returns:
        The temperature; unchanged if the data do not determine one (see
        :func:`treemem.task.Task.fitted_temperature`).

    Raises:
        CheckpointError: there is no whole checkpoint, it is packaged with treemem, or it cannot be written.
        RecipeError: no such split, no example in it, or examples without labels; the model has a threshold.
    """
    if checkpoint.is_pretrained_name(path):
        raise CheckpointError(f"{path} comes along with treemem and stays as it is; save it to a folder and name that")
    folder, _ = checkpoint.read(path)
    model = checkpoint.load(folder)
    if next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
        model.float()  # as a packaged model runs, which is kept in half precision
    examples = model.task.examples(forest_of(data))
    chosen = examples.scorable_part(split, "calibrate with")
    if model.threshold is not None:
        raise RecipeError(
            f"{path} has a threshold, {model.threshold:g}, which was chosen at its temperature {model.temperature:g}; "
            "train without training.threshold to calibrate with other data"
        )
    temperature = model.task.fitted_temperature(model.outputs(examples, chosen), examples.targets_of(chosen))
    if temperature is None:
        return model.temperature
    checkpoint.set_temperature(folder, temperature)
    return temperature
