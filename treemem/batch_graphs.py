"""Training steps and evaluation as CUDA graphs, one for each bucket of batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from treemem.data.examples import Examples, SequenceExamples, StreamExamples
from treemem.data.loader import Batch
from treemem.data.token_batch import TokenBatch
from treemem.engines.cuda.graphs import CapturedStep, captures_on
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.task import ModelOutput

_MOST_GRAPHS = 128  # batches of language models have some 60 numbers of steps


class _StreamPiece(NamedTuple):
    """The tensors of a batch of a stream: equally long sequences, and the state that they begin with, if any."""

    token: Tensor
    states: list[Any]


class BatchGraphs:
    """Does something with batches as CUDA graphs; see :class:`treemem.ops.CapturedStep`.

    Batches of a bucket have equally many examples and, after padding, equally many tokens, or nodes and rows.

    Args:
        model: whose batches these are, for which :func:`check_graphs` raises nothing.
        step: takes a batch on the device and its targets, and returns tensors.
        node_targets: names of the targets whose first axis counts nodes. Networks over sequences do not read them.
    """

    def __init__(
        self,
        model: Model,
        step: Callable[[Batch, Mapping[str, Tensor]], Any],
        node_targets: Collection[str] = (),
    ) -> None:
        self.model = model
        self._reads_tokens = hasattr(model.encoder, "bucket")
        self._node_targets = node_targets
        count = 0 if self._reads_tokens else len(node_targets)
        self._captured = CapturedStep(
            lambda tensors, of_nodes, others: step(_batch_of(tensors), {**of_nodes, **others}),
            model,
            of_nodes=range(count),
            padding=[model.task.unlabelled_node or 0] * count,
            most_graphs=_MOST_GRAPHS,
        )

    def __call__(self, batch: Batch, targets: Mapping[str, Tensor]) -> Any:
        """Return what the step returns.

        Args:
            batch, targets: on the CPU, so that all tensors of a batch go to the device in one copy.
        """
        of_nodes = {name: target for name, target in targets.items() if name in self._node_targets}
        others = {name: target for name, target in targets.items() if name not in self._node_targets}
        if isinstance(batch, TokenBatch):
            states = [] if batch.state is None else [batch.state]
            return self._captured(_StreamPiece(batch.token, states), {}, others)
        encoder: Any = self.model.encoder
        if self._reads_tokens:
            return self._captured(encoder.bucket(batch), {}, others)
        return self._captured(batch, of_nodes, others)


def _batch_of(tensors: Any) -> Any:
    if not isinstance(tensors, _StreamPiece):
        return tensors
    count, steps = tensors.token.shape
    return TokenBatch(tensors.token, torch.full((count,), steps), state=next(iter(tensors.states), None))


class GraphedModel:
    """Runs a model on batches as CUDA graphs, for :meth:`treemem.model.Model.outputs_of`.

    Args:
        model: for which :func:`check_graphs` raises nothing.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._graphs = BatchGraphs(model, self._run)

    def __call__(self, batch: Batch) -> ModelOutput:
        """Return the outputs for a batch on the CPU, and the state of a stream."""
        outputs, state = self._graphs(batch, {})
        return ModelOutput(outputs, SimpleNamespace(state=state))

    def _run(self, batch: Batch, _: Mapping[str, Tensor]) -> tuple[Any, Any]:
        output = self.model.run(batch)
        return output.outputs, output.state


def check_graphs(model: Model, examples: Examples, device: torch.device, option: str) -> None:
    """Check that a model can run on batches of some examples as CUDA graphs.

    Args:
        model: the model.
        examples: what it is to read.
        device: where it is to run.
        option: its name for the message.

    Raises:
        RecipeError: it cannot; says why.
    """
    encoder, name = model.encoder, model.network.network
    problem, is_stream = None, isinstance(examples, StreamExamples)
    if not captures_on(device):
        problem = f"this would run on {device.type}, and graphs need a CUDA device"
    elif not hasattr(encoder, "in_bucket"):
        problem = f"{name} cannot run as a graph"
    elif reason := encoder.why_not_captured if is_stream else encoder.why_not_in_bucket:
        problem = f"{name} cannot run as a graph on these examples: {reason}"
    elif is_stream:
        return
    elif isinstance(examples, SequenceExamples):
        problem = f"the targets of {model.task.name} are sequences of any length"
    elif not model.task.reads_roots_only:
        problem = f"{model.task.name} reads the states of nodes, of which each batch has another number"
    elif examples.node_targets and model.task.unlabelled_node is None and not hasattr(encoder, "bucket"):
        problem = f"{model.task.name} does not say what the target of an added node is (unlabelled_node)"
    if problem is not None:
        raise RecipeError(f"{option}: {problem}; leave the option out")
