"""Conversion of state dicts of published code to checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from treemem import checkpoint
from treemem.checked_options import checked_choice
from treemem.conversion.equation_networks import TABLE, plan_equation_network
from treemem.conversion.plan import Plan
from treemem.conversion.sequence_networks import plan_on_lstm, plan_ordered_memory
from treemem.conversion.state_dict_file import PublishedWeights, read_state_dict
from treemem.errors import RecipeError
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
    """Convert weights that published code saved to a checkpoint, and return the model.

    Covers ``NNTrees``, ``LSTMTrees``, ``StackNNTrees`` with ``full_stack`` and ``StackNNTreesMem2out`` of
    recursiveMemNet, and the classifiers of ListOps and of logic of Ordered-Memory and Ordered-Neurons. The model gives
    the numbers of the published code, in the dtype of the file.

    Args:
        source_file: a state dict that ``torch.save`` wrote, or a dictionary that has it as ``model_state_dict``. Only
            tensors and plain data are read, never a pickled model.
        output_folder: the checkpoint to write; an empty folder may be there.
        published, task: the code and the task that the file must be of; None: any.
        options: of the network, what the weights do not say, such as ``normalize``. Those that change numbers must be
            given; the error names them.
        task_options: ``{"numeric": True}`` keeps the number encoder and decoder of recursiveMemNet.
        words: the word of each row of the embedding table; None: the published table.
        overwrite: replace a checkpoint at ``output_folder``; it is kept as ``<folder>.before``.

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
    weights = read_state_dict(source_file)
    code = _code_of(weights)
    if published not in (None, code):
        raise RecipeError(f"the names of the weights in {weights.source} are those of {code}, not of {published}")
    plan = _PLANS[code](weights, options or {}, task_options or {}, words)
    if task not in (None, plan.task):
        raise RecipeError(f"the weights in {weights.source} are those of a model of {plan.task}, not of {task}")
    model = plan.model(weights)
    checkpoint.save(output_folder, model, overwrite=overwrite)
    left = sorted({name.partition(".")[0] for name in plan.left & weights.tensors.keys()})
    if left:
        _logger.info("%s: left out what is for decimal numbers alone: %s", weights.source, ", ".join(left))
    return model


def _code_of(weights: PublishedWeights) -> PublishedCode:
    """Return the published code that the names belong to."""
    if TABLE in weights.tensors:
        return "recursiveMemNet"
    for name in weights.tensors:
        if name.startswith(("encoder.OM_forward.", "encoder.OM_backward.")):
            return "Ordered-Memory"
        if name.startswith(("encoder.cells.", "rnn.cells.")):
            return "Ordered-Neurons"
    shown = ", ".join(list(weights.tensors)[:3])
    raise weights.refusal(f"its names, such as {shown}, are not those of {' or '.join(get_args(PublishedCode))}")
