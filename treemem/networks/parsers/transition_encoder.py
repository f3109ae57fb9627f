"""What sequence encoders have in common that shift and reduce: where their transitions come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import Unpack

from treemem.checked_options import checked_scale
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import run_packed
from treemem.errors import GraphError
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.parsers.spinn.equations import REDUCE, Policy
from treemem.networks.parsers.spinn.run import TransitionRun, policy_steps, transition_actions
from treemem.networks.recorded_options import SettableOption
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.networks.sequences.recurrent.torch_lstm import run_lstm
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.reductions import token_reductions
from treemem.trees.vocabulary import Vocabulary

Transitions = Literal["gold", "predicted", "reinforced"]
Baseline = Literal["ema", "greedy", "left", "value", "none"]
Reward = Literal["accuracy", "log"]
CreditedSteps = Literal["free", "all"]
_VALUE_SIZE = 100  # as in the authors' code of RL-SPINN


class TransitionOptions(JoiningOptions, total=False):
    """The options of :class:`TransitionEncoder` that do not depend on the network."""

    temperature: float
    reward: Reward
    baseline: Baseline
    credited_steps: CreditedSteps


class TransitionEncoder(JoiningEncoder):
    """A network that composes a sequence by transitions: gold ones, or those of a policy.

    Subclasses define :meth:`run` and :attr:`has_policy`, and have the options of :class:`treemem.nn.SPINN`, which says
    what they are, and what outputs and trace have.
    """

    temperature: SettableOption[float] = SettableOption(checked_scale)
    _is_left_branching = False

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        transitions: Transitions,
        temperature: float = 1.0,
        reward: Reward = "accuracy",
        baseline: Baseline = "ema",
        credited_steps: CreditedSteps = "free",
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        self.temperature = temperature
        self.transitions: Transitions = transitions
        self.reward: Reward = reward
        self.baseline: Baseline = baseline
        self.credited_steps: CreditedSteps = credited_steps
        self.value: torch.nn.Module | None = None

    def add_value(self) -> None:
        """Make the network that predicts rewards, if there is one; subclasses call it last in their constructor."""
        if self.transitions == "reinforced" and self.baseline == "value":
            self.value = _Value(self.embedding_size)

    @property
    @abstractmethod
    def has_policy(self) -> bool:
        """Whether the network predicts transitions."""

    @abstractmethod
    def run(self, vectors: Vectors, given: torch.Tensor | None, policy: Policy) -> tuple[torch.Tensor, TransitionRun]:
        """Return the outputs at the tokens, ``[sequences, longest, hidden_size]``, and the run.

        Args:
            vectors: of the tokens.
            given: transitions, or None.
            policy: chooses them if none are given.
        """

    @property
    def learner(self) -> str | None:
        """What trains the network, if not the usual learner."""
        return "treemem.runs.reinforced_transitions:ReinforcedTransitions" if self.transitions == "reinforced" else None

    @property
    def auxiliary_loss_weights(self) -> Mapping[str, float]:
        if self.transitions == "reinforced":
            return {"policy": 1.0} if self.value is None else {"policy": 1.0, "value": 1.0}
        return {} if not self.has_policy else {"transitions": 1.0}

    @contextmanager
    def left_branching(self) -> Iterator[None]:
        """Within: the transitions are those of the left-branching tree of each sequence."""
        self._is_left_branching = True
        try:
            yield
        finally:
            self._is_left_branching = False

    def further_inputs(self, batch: TreeBatch | TokenBatch, items: torch.Tensor) -> dict[str, Any]:
        """Return the transitions of the trees of a batch, if they are needed, or of left-branching ones.

        Raises:
            GraphError: a batch of sequences, which have no trees.
        """
        if self._is_left_branching:  # a reduce that is not possible is replaced by a shift
            return {"given": torch.full((len(items), max(2 * items.shape[1] - 1, 0)), REDUCE)}
        if not self._needs_trees:
            return {}
        if isinstance(batch, TokenBatch):
            raise GraphError(f"{self._asking} needs trees, not sequences of tokens")
        assert batch.forest is not None  # tokens() has refused a batch made from a graph
        return {"given": transition_actions(*token_reductions(batch.forest, self.form))}

    @property
    def why_not_captured(self) -> str | None:
        return None if self.transitions == "reinforced" else "the host makes the transitions from the trees"

    @property
    def _asking(self) -> str:
        return f"{type(self).__name__} with transitions={self.transitions!r}"

    @property
    def _needs_trees(self) -> bool:
        return self.transitions == "gold" or (self.transitions == "predicted" and self.training)

    def join(self, vectors: Vectors, trace: bool, *, given: torch.Tensor | None = None) -> SequenceOutput:
        """Run the transitions.

        Args:
            vectors, trace: see :class:`JoiningEncoder`.
            given: transitions, 0 shift and 1 reduce, int64 ``[sequences, 2 * longest - 1]``.

        Raises:
            GraphError: no transitions where they are needed.
        """
        inputs = vectors.values
        if self._needs_trees and given is None and inputs.shape[1]:
            raise GraphError(f"{self._asking} needs the transitions of trees")
        sampled = self.transitions == "reinforced" and self.training
        policy = Policy(self.temperature, partial(_uniform, inputs) if sampled else None)
        hidden, run = self.run(vectors, None if given is None else to_device(given, inputs.device), policy)
        losses, traced = {}, {"joined": run.joined(vectors.lengths)} if trace else {}
        if run.logits is not None and (trace or sampled or given is not None):
            steps = policy_steps(run, vectors.lengths_there, self.temperature if given is None else 1.0)
            if given is not None:
                losses["transitions"] = SumCount(-steps.log_probability.sum(), steps.present.sum())
            if trace or sampled:
                traced |= {"log_probability": steps.log_probability, "free": steps.free.to(hidden.dtype)}
        if sampled and self.value is not None:
            traced["value"] = self.value(inputs.detach(), vectors.lengths)
        return SequenceOutput(run.roots.chunk(2, -1)[0], hidden, traced, losses)


def _uniform(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.rand(shape, dtype=like.dtype, device=like.device)


class _Value(Resettable):
    """Predicts the reward of sequences from their vectors."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(input_size, _VALUE_SIZE)
        self.map = torch.nn.Linear(_VALUE_SIZE, 1)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return a number for each of ``[sequences, longest, input_size]``, ``[sequences]``."""

        def run(packed: torch.Tensor, sizes: list[int], first: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            of_steps = PackedSequence(packed.to(self.map.weight.dtype), torch.tensor(sizes))
            outputs, (hidden, _) = run_lstm(self.lstm, of_steps)
            return outputs.data, hidden[0]

        _, (last,) = run_packed(run, inputs, lengths, [self.map.weight.new_zeros(len(inputs), _VALUE_SIZE)])
        return self.map(last).squeeze(1)
