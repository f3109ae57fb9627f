"""Conversion of state dicts of published code to checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from treemem import checkpoint
from treemem.conversion.equation_networks import TABLE, plan_equation_network
from treemem.conversion.plan import Plan
from treemem.conversion.sequence_networks import plan_on_lstm, plan_ordered_memory
from treemem.conversion.state_dict_file import PublishedWeights, read_state_dict
from treemem.model import Model

_logger = logging.getLogger(__name__)


def convert(
    source_file: str | os.PathLike[str],
    output_folder: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    words: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Model:
    """Convert weights of published code to a checkpoint, and return the model.

    Covers ``NNTrees``, ``LSTMTrees``, ``StackNNTrees`` with ``full_stack`` and ``StackNNTreesMem2out`` of
    recursiveMemNet, and the ListOps and logic classifiers of Ordered-Memory and Ordered-Neurons. The model gives the
    numbers of the published code, in the dtype of the file.

    Args:
        source_file: a state dict of ``torch.save``, or a dictionary that has it as ``model_state_dict``. Nothing in it
            is unpickled but tensors and plain data.
        output_folder: the checkpoint to write.
        options: options of the network that do not follow from the weights, such as ``normalize``. Those that change
            results must be given; the error names them.
        task_options: ``{"numeric": True}`` keeps the number encoder and decoder of recursiveMemNet.
        words: the word of each row of the embedding table; by default those of the published code.
        overwrite: replace a checkpoint at ``output_folder``. It is kept as ``<folder>.before``, or, if there is one,
            as ``<folder>.before-2`` and so on.

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: the file is not a state dict of a covered model, a weight is missing, not used or has another
            shape, or the folder exists or cannot be written.
        RecipeError: options are missing or do not apply.

    Example:
        >>> options = {"stack_size": 5, "activation": "tanh", "output_activation": "tanh", "normalize": True}
        >>> model = convert("model-97.checkpoint", "tree-lstm-stack", options=options)  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"])  # doctest: +SKIP
    """
    weights = read_state_dict(source_file)
    model = _plan(weights, options or {}, task_options or {}, words).model(weights)
    if overwrite and (kept := checkpoint.keep_copy(output_folder)) is not None:
        _logger.info("the checkpoint that was in %s is kept as %s", output_folder, kept)
    checkpoint.save(output_folder, model, overwrite=overwrite)
    return model


def _plan(
    weights: PublishedWeights, options: Mapping[str, Any], task_options: Mapping[str, Any], words: Sequence[str] | None
) -> Plan:
    """Return the plan of the published code to which the names of the weights belong."""
    names = list(weights.tensors)
    if TABLE in names:
        return plan_equation_network(weights, options, task_options, words)
    if any(name.startswith("encoder.OM_") for name in names):
        return plan_ordered_memory(weights, options, task_options, words)
    if any(name.startswith("encoder.cells.") for name in names):
        return plan_on_lstm(weights, options, task_options, words)
    raise weights.refusal(
        f"its names, such as {', '.join(names[:3])}, are not those of a covered model; see docs/authors_weights.md"
    )
