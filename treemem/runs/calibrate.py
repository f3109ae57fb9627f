"""The temperature of a trained model, fitted again on labelled data."""

from __future__ import annotations

import os

import torch

from treemem import checkpoint
from treemem.data.examples import DataSet, forest_of
from treemem.errors import CheckpointError
from treemem.trees.forest import Forest


def calibrate(path: str | os.PathLike[str], data: Forest | DataSet, *, split: str | None = "validation") -> float:
    """Give a checkpoint the temperature that suits labelled data; it is written anew as a whole, or stays as it was.

    Args:
        path: the folder of a checkpoint, or of a training run, whose best checkpoint is then meant.
        data: trees of the model's task with their labels, best such as it was not trained on.
        split: which part of them; None for all.

    Returns:
        The temperature; that which the checkpoint has, where the examples set none (see
        :func:`treemem.metrics.calibration.fit_temperature`).

    Raises:
        CheckpointError: there is no whole checkpoint, it comes along with treemem, or it cannot be written.
        RecipeError: no such split, no example in it, or examples without labels.
    """
    if checkpoint.is_pretrained_name(path):
        raise CheckpointError(f"{path} comes along with treemem and stays as it is; save it to a folder and name that")
    folder, _ = checkpoint.read(path)
    model = checkpoint.load(folder)
    if next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
        model.float()  # as a packaged model runs, which is kept in half precision
    examples = model.task.examples(forest_of(data))
    chosen = examples.scorable_part(split, "calibrate with")
    temperature = model.task.fitted_temperature(model.outputs(examples, chosen), examples.targets_of(chosen))
    if temperature is None:
        return model.temperature
    checkpoint.set_temperature(folder, temperature)
    return temperature
