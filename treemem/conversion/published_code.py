"""Checkpoints out of the state dicts of published code."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from treemem import checkpoint
from treemem.checked_options import checked_choice
from treemem.conversion.equation_networks import TABLE, plan_equation_network
from treemem.conversion.plan import Plan
from treemem.conversion.sequence_networks import plan_on_lstm, plan_ordered_memory
from treemem.conversion.state_dict_file import PublishedWeights, read_state_dict
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model

PublishedCode = Literal["recursiveMemNet", "Ordered-Memory", "Ordered-Neurons"]
_PLANS: dict[PublishedCode, Callable[..., Plan]] = {
    "recursiveMemNet": plan_equation_network,
    "Ordered-Memory": plan_ordered_memory,
    "Ordered-Neurons": plan_on_lstm,
}
_logger = logging.getLogger(__name__)


def convert(
    source_file: str | os.PathLike[str],
    output_folder: str | os.PathLike[str],
    *,
    published: PublishedCode | None = None,
    task: str | None = None,
    options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    words: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Model:
    """Make a checkpoint of weights that published code saved; :func:`treemem.load` opens it.

    Covered are, of recursiveMemNet, ``NNTrees``, ``LSTMTrees``, ``StackNNTrees`` with ``full_stack`` and
    ``StackNNTreesMem2out``; of Ordered-Memory and Ordered-Neurons the classifiers of ListOps and of
    logic. The model gives the numbers of the published code, in the type of the file's weights.

    Args:
        source_file: a state dict that ``torch.save`` wrote, or a dictionary that has it as ``model_state_dict``. Only
            tensors and plain data are read, never a pickled model.
        output_folder: the checkpoint to write; an empty folder may be there.
        published, task: what the names of the weights must tell; by default whatever they tell.
        options: of the network, what the weights do not say, such as ``normalize``. Those that change numbers must be
            given; the error names them.
        task_options: ``{"numeric": True}`` keeps what recursiveMemNet learnt of decimal numbers.
        words: what the rows of the embedding table stand for, where it is not the published table.
        overwrite: replace the checkpoint that stands at ``output_folder``; it is kept beside as ``<folder>.before``.

    Returns:
        The model, ready to predict.

    Raises:
        CheckpointError: a file that is no such state dict or of a model that is not covered; a weight that is missing,
            of another shape or not used; or a folder that exists or cannot be written.
        RecipeError: options that are missing or that do not apply.

    Example:
        >>> options = {"stack_size": 5, "activation": "tanh", "output_activation": "tanh", "normalize": True}
        >>> model = convert("model-97.checkpoint", "tree-lstm-stack", options=options)  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"])  # doctest: +SKIP
    """
    if published is not None:
        checked_choice("published", published, get_args(PublishedCode))
    _check_output(output_folder, overwrite)
    weights = read_state_dict(source_file)
    code = _code_of(weights)
    if published not in (None, code):
        raise RecipeError(f"the names of the weights in {weights.source} are those of {code}, not of {published}")
    plan = _PLANS[code](weights, options or {}, task_options or {}, words)
    if task not in (None, plan.task):
        raise RecipeError(f"the weights in {weights.source} are those of a model of {plan.task}, not of {task}")
    model = plan.model(weights)
    checkpoint.save(output_folder, model)
    left = sorted({name.partition(".")[0] for name in plan.left & weights.tensors.keys()})
    if left:
        _logger.info("%s: left out what is for decimal numbers alone: %s", weights.source, ", ".join(left))
    return model


def _code_of(weights: PublishedWeights) -> PublishedCode:
    """Which published code the names are of."""
    if TABLE in weights.tensors:
        return "recursiveMemNet"
    for name in weights.tensors:
        if name.startswith(("encoder.OM_forward.", "encoder.OM_backward.")):
            return "Ordered-Memory"
        if name.startswith(("encoder.cells.", "rnn.cells.")):
            return "Ordered-Neurons"
    shown = ", ".join(list(weights.tensors)[:3])
    raise weights.refusal(f"its names, such as {shown}, are those of none of {', '.join(get_args(PublishedCode))}")


def _check_output(folder: str | os.PathLike[str], overwrite: bool) -> None:
    place = Path(folder)
    is_empty = place.is_dir() and not any(place.iterdir())
    if is_empty or not checkpoint.exists(folder):
        return
    if not overwrite:
        raise CheckpointError(f"{os.fspath(folder)} exists; choose another folder, or overwrite it")
    newest = checkpoint.newest_whole(folder)
    if newest.folder is None:
        raise CheckpointError(f"{newest.problem}; only a checkpoint is overwritten")
