"""One training step: losses, gradients, update. A learner with another update overrides one method."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from treemem.batch_graphs import BatchGraphs, check_graphs
from treemem.data.examples import Examples
from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.data_parallel import Processes
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.runs.muon import Muon, hidden_matrices
from treemem.runs.options import TrainingOptions
from treemem.task import ModelOutput

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MAIN_LOSS = "loss"
"""The name of the task's loss among the losses of a step."""


class Learner:
    """Trains a model step by step.

    Override :meth:`training_step` for another update: policy gradients, several optimisers, several samples an example.
    Logging, checkpoints, resuming, data parallelism and evaluation stay. A task names its learner in ``Task.learner``,
    a network in its attribute ``learner``, as a class or as ``"module:Class"``.

    Args:
        model: the model to train.
        options: of the training.
        processes: those that train together.
        fabric: precision and device.

    Attributes:
        optimizers: from :meth:`make_optimizers`.
        learning_rates: the rate that each of them begins with; schedules scale it.
        state: the encoder's state for the next batch of a stream.
        batch_device: where :meth:`training_step` takes batches and targets.
    """

    def __init__(self, model: Model, options: TrainingOptions, processes: Processes, fabric: Fabric) -> None:
        self.model, self.options, self.processes, self.fabric = model, options, processes, fabric
        self.state: Any = None
        network, *optimizers = fabric.setup(model, *self.make_optimizers())
        self.network: Any = network
        self.optimizers: list[Any] = optimizers
        self.learning_rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
        self.graphs: BatchGraphs | None = None
        self.batch_device = fabric.device

    def capture(self, examples: Examples) -> None:
        """Compute losses and gradients of batches of some examples as CUDA graphs from now on."""
        self.graphs = BatchGraphs(self.model, self._sums_and_state, examples.node_targets)
        self.batch_device = torch.device("cpu")

    @classmethod
    def is_captured(cls, model: Model) -> bool:
        """Return whether ``training.cuda_graphs`` serves this learner; by default if it reads batches as usual.

        A graph does what :meth:`losses` and :meth:`compute_gradients` do, from :meth:`training_step` of this class.
        Batches are then those of :class:`treemem.ops.CapturedStep`, with added tokens, or nodes and rows.
        """
        names = ("training_step", "losses", "auxiliary_losses", "run", "update", "compute_gradients")
        return all(getattr(cls, name) is getattr(Learner, name) for name in names)

    def make_optimizers(self) -> list[Optimizer]:
        """Return the optimisers; by default one for all weights, as the options say."""
        return [self.optimizer(self.model.parameters(), self.options)]

    def optimizer(self, weights: Iterable[Parameter], options: TrainingOptions) -> Optimizer:
        """Return an optimiser of some of the model's weights."""
        if options.optimizer == "sgd":
            return torch.optim.SGD(weights, options.learning_rate, weight_decay=options.weight_decay)
        shared: dict[str, Any] = {
            "lr": options.learning_rate,
            "eps": options.epsilon,
            "weight_decay": options.weight_decay,
        }
        if options.optimizer == "rmsprop":
            return torch.optim.RMSprop(weights, alpha=options.beta2, **shared)
        betas = options.beta1, options.beta2
        if options.optimizer == "muon":
            return Muon(weights, hidden_matrices(self.model.encoder), betas=betas, **shared)
        adam = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
        return adam(weights, betas=betas, fused=True, **shared)

    def training_step(self, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        """Do one step and return its losses by name for the log; ``"loss"`` is the main one.

        Args:
            batch: the part of this process; it may be empty.
            targets: of this part.
        """
        if self.graphs is None:
            return self.update(self.losses(batch, targets))
        if isinstance(batch, TokenBatch) and batch.continues:
            batch = batch.with_state(self.state)
        sums, self.state = self.graphs(batch, targets)
        self.take_step()
        return {name: SumCount(*sum_and_count) for name, sum_and_count in sums.items()}

    def _sums_and_state(self, batch: Batch, targets: Mapping[str, Tensor]) -> tuple[dict[str, Any], Any]:
        """Compute gradients, and return the losses and the state of a stream: what a CUDA graph does of a step."""
        total = self.compute_gradients(self.losses(batch, targets))
        return {name: (loss.sum.detach(), loss.count) for name, loss in total.items()}, self.state

    def losses(self, batch: Batch, targets: Mapping[str, Tensor]) -> dict[str, SumCount]:
        """Return the task's loss and the auxiliary losses; nothing for an empty batch."""
        if not batch.num_examples:
            return {}
        output = self.run(batch)
        return {
            MAIN_LOSS: self.model.task.loss(output.outputs, targets),
            **self.auxiliary_losses(output, batch, targets),
        }

    def auxiliary_losses(self, output: ModelOutput, batch: Batch, targets: Mapping[str, Tensor]) -> dict[str, SumCount]:
        """Return further losses by name; by default those of the encoder."""
        return dict(output.auxiliary_losses)

    def run(self, batch: Batch) -> ModelOutput:
        """Return the model's output for a batch, in the precision of the options, and keep the state of a stream."""
        if isinstance(batch, TokenBatch) and batch.continues:
            batch = batch.with_state(self.state)
        with self.fabric.autocast():
            output = self.model.run(batch)
        self.state = detached(output.state)
        if isinstance(output.outputs, Tensor) and output.outputs.dtype == torch.bfloat16:
            output = output._replace(outputs=output.outputs.float())
        return output

    def update(self, losses: Mapping[str, SumCount], optimizer: int = 0) -> dict[str, SumCount]:
        """Take one optimiser step on the weighted mean losses. Waits for all processes.

        Args:
            losses: of this process, by name. Their weights are ``options.auxiliary_losses``, or else those of the
                network and of the head, and 1 for the main loss.
            optimizer: index of the optimiser.

        Returns:
            The losses over all processes.

        Raises:
            RecipeError: the options or the head weight an auxiliary loss that is not among them.
        """
        total = self.compute_gradients(losses)
        self.take_step(optimizer)
        return total

    def compute_gradients(self, losses: Mapping[str, SumCount]) -> dict[str, SumCount]:
        """Compute the gradients of the weighted mean losses of this process, and return the losses over all processes.

        Raises:
            RecipeError: as :meth:`update`.
        """
        for one in self.optimizers:  # gradients that are left would be summed over the processes again
            one.zero_grad()
        total = self.summed(losses)
        weights = {MAIN_LOSS: 1.0}
        for part in (self.model.encoder, self.model.head):
            weights.update(getattr(part, "auxiliary_loss_weights", {}))
        weights.update(self.options.auxiliary_losses)
        for name in weights:
            if name in total:
                continue
            if name in self.options.auxiliary_losses:
                have = ", ".join(other for other in total if other != MAIN_LOSS) or "none"
                raise RecipeError(f"training.auxiliary_losses names {name!r}; the network's auxiliary losses: {have}")
            raise RecipeError(
                f"the head needs the auxiliary loss {name!r}, and {type(self).__name__}, which trains this network, "
                "does not compute it; choose another head or network"
            )
        if losses:
            weighted = [weight * losses[name].sum / total[name].divisor for name, weight in weights.items()]
            self.fabric.backward(torch.stack(weighted).sum() if len(weighted) > 1 else weighted[0])
        return total

    def take_step(self, optimizer: int = 0) -> None:
        """Take a step of one optimiser by the gradients of all processes, clipped. Waits for all processes."""
        chosen = self.optimizers[optimizer]
        self.processes.sum_gradients(self.model.parameters())
        if self.options.clip is not None:
            # a norm that is not finite shows in the epoch's loss, which is read where that makes nothing wait
            self.fabric.clip_gradients(self.network, chosen, max_norm=self.options.clip, error_if_nonfinite=False)
        chosen.step()

    def summed(self, losses: Mapping[str, SumCount]) -> dict[str, SumCount]:
        """Return sums and counts over all processes, by name. Waits for all processes."""
        if self.processes.count == 1:
            return dict(losses)
        of_this = {name: (float(loss.sum.detach()), float(loss.count)) for name, loss in losses.items()}
        totals: dict[str, SumCount] = {}
        for of_process in self.processes.gathered(of_this):
            for name, (total, count) in of_process.items():
                summand = SumCount(torch.tensor(total, dtype=torch.float64), count)
                totals[name] = totals.get(name, SumCount.zero()) + summand
        return totals

    def state_dict(self) -> dict[str, Any]:
        """Return the state for :meth:`load_state_dict`: the optimisers. Subclasses add theirs, such as a baseline."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def detached(state: Any) -> Any:
    """Return nested tensors detached from their graph."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*map(detached, state))
    if isinstance(state, (list, tuple)):
        return type(state)(map(detached, state))
    if isinstance(state, dict):
        return {name: detached(value) for name, value in state.items()}
    return state


def check_training_graphs(
    model: Model, examples: Examples, options: TrainingOptions, device: torch.device, processes: Processes
) -> None:
    """Check that a model can be trained with ``training.cuda_graphs``, if the options ask for it.

    Raises:
        RecipeError: it cannot; says why.
    """
    if not options.cuda_graphs:
        return
    option, learner = "training.cuda_graphs", learner_of(model)
    if processes.count > 1:
        raise RecipeError(f"{option}: several processes add up their losses on the host; leave the option out")
    if not learner.is_captured(model):
        raise RecipeError(
            f"{option}: {learner.__name__}, which trains {model.network.network}, has a training step or losses of "
            "its own; leave the option out"
        )
    if options.precision == "bf16-mixed" and not hasattr(model.encoder, "bucket"):
        raise RecipeError(f'{option}: the kernels of trees do not run in precision "bf16-mixed"; choose "32-true"')
    check_graphs(model, examples, device, option)


def learner_of(model: Model) -> type[Learner]:
    """Return the network's learner, or else the task's."""
    named = getattr(model.encoder, "learner", None) or model.task.learner
    if isinstance(named, str):
        module, _, attribute = named.partition(":")
        learner_class: type[Learner] = getattr(importlib.import_module(module), attribute)
        return learner_class
    return Learner if named is None else named
