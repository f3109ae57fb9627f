"""The training step of networks that learn the values of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional

from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.runs.training_step import Learner
from treemem.schedule.tree_batch import TreeBatch
from treemem.task import ModelOutput
from treemem.tasks.equation_verification.value_head import ValueHead

_BETA = 0.1
_WEIGHT_OF_ERROR = 0.02
_WEIGHT_OF_PRESENCE = 0.2


class ValueLearner(Learner):
    """Trains a :class:`.ValueHead` with the values of all subexpressions; any other head as usual.

    The auxiliary loss ``"values"`` is a mean over nodes and points of three losses: where the expression has a value,
    the smooth L1 loss (``beta=0.1``) of ``v``, and 0.02 times the negative log-likelihood of a Laplace distribution
    whose mean absolute deviation is ``e``, ``|v - value| / e + log e``; and 0.2 times the cross-entropy of whether the
    expression has a value. The likelihood has no gradient by ``v``, because a mean learns badly from a likelihood whose
    width is learned too (Seitzer et al. 2022).
    """

    @classmethod
    def is_captured(cls, model: Model) -> bool:
        """Return whether the loss is of whole equations: values are of nodes, and numeric equations have two losses."""
        task: Any = model.task
        return not (isinstance(model.head, ValueHead) or task.numeric)

    def auxiliary_losses(self, output: ModelOutput, batch: Batch, targets: Mapping[str, Tensor]) -> dict[str, SumCount]:
        losses = super().auxiliary_losses(output, batch, targets)
        if isinstance(self.model.head, ValueHead):
            assert isinstance(batch, TreeBatch)
            losses["values"] = self._value_loss(self.model.head, output, batch, targets["values"])
        return losses

    def _value_loss(self, head: ValueHead, output: ModelOutput, batch: TreeBatch, target: Tensor) -> SumCount:
        if not hasattr(output.encoded, "outputs"):
            raise RecipeError(
                f"read_out: values needs the states of all nodes, and {type(self.model.encoder).__name__} returns a "
                "tensor of encodings; return an EncoderOutput, or choose another read_out"
            )
        schedule = batch.schedule
        with self.fabric.autocast():
            value, error, logit = head.decode(output.encoded.outputs.index_select(0, schedule.node_of_row))
        is_there = ~target.isnan()
        known = target.where(is_there, value.detach())
        distance = functional.smooth_l1_loss(value, known, reduction="none", beta=_BETA)
        likelihood = ((value.detach() - known).abs() / error + error.log()) * is_there
        presence = functional.binary_cross_entropy_with_logits(logit, is_there.to(logit.dtype), reduction="none")
        nodes = value.new_zeros(len(value)).index_add_(0, schedule.row_of_node, value.new_ones(schedule.num_nodes))
        of_row = (distance + _WEIGHT_OF_ERROR * likelihood + _WEIGHT_OF_PRESENCE * presence).sum(1)
        return SumCount(nodes @ of_row, float(schedule.num_nodes * target.shape[1]))
