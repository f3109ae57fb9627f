"""The Recurrent-Recursive Network as a sequence encoder."""

from __future__ import annotations

import torch
from typing_extensions import Unpack

from treemem.checked_options import Count
from treemem.engines.affine import Affine
from treemem.networks.parsers.joining_encoder import Vectors
from treemem.networks.parsers.rrnet.run import PolicyWeights, RRNetWeights, run_rrnet
from treemem.networks.parsers.spinn.equations import Policy
from treemem.networks.parsers.spinn.run import TransitionRun
from treemem.networks.parsers.transition_encoder import (
    TransitionEncoder,
    TransitionOptions,
    Transitions,
)
from treemem.networks.resettable import Resettable
from treemem.trees.vocabulary import Vocabulary


class RRNet(TransitionEncoder, without=("embedding_size",)):
    """A Recurrent-Recursive Network after Jacob et al. 2018: an LSTM that reads its own constituents as tokens.

    The paper's equations were not available to us; the page of the model says what is known and what is our choice. The
    network shifts and reduces, as :class:`SPINN` does. A node is a state ``h, c`` of an LSTM. A token with the vector
    ``e`` is the node ``LSTM(e, 0)``, which begins a constituent. A reduce takes the two topmost nodes ``l`` and ``r``,
    and the LSTM goes on from the state ``l``::

        h, c = LSTM(e_r, (h_l, c_l))     if r is a token
        h, c = LSTM(h_r, (h_l, c_l))     if r is a constituent

    with the same weights. Over left-branching trees this is an LSTM over the tokens. Before each transition the policy
    reads the next token ``e`` and ``h`` of the two topmost nodes, 0 where there is none::

        P(shift), P(reduce) = softmax(W tanh(LN(V [e; h_1; h_2] + a)) + b)

    The encoding is ``h`` of the root, 0 for an empty sequence. Outputs at the tokens are ``h`` of their nodes.

    Args:
        hidden_size: width of ``h`` and of the tokens' vectors.
        vocabulary: the labels.
        transitions: ``"gold"`` (from the trees, without a policy), ``"predicted"`` or ``"reinforced"``, as in
            :class:`SPINN`.
        policy_size: width of the hidden layer of the policy.
        temperature, reward, baseline, credited_steps: as in :class:`SPINN`.
        form, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``) runs all sequences at once on a thin stack. ``"naive"``: sequence
            by sequence. Both give the same results, but sample other transitions.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> RRNet(16, vocabulary)(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        transitions: Transitions = "reinforced",
        policy_size: Count = 48,
        **options: Unpack[TransitionOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, transitions=transitions, **options)
        self.lstm = torch.nn.LSTMCell(hidden_size, hidden_size)
        self.policy = None if transitions == "gold" else _Policy(hidden_size, policy_size)
        self.add_value()

    @property
    def has_policy(self) -> bool:
        return self.policy is not None

    def weights(self) -> RRNetWeights:
        """The weights as the operation takes them."""
        inputs = Affine(self.lstm.weight_ih, self.lstm.bias_ih + self.lstm.bias_hh)
        return RRNetWeights(inputs, self.lstm.weight_hh, None if self.policy is None else self.policy.weights())

    def run(self, vectors: Vectors, given: torch.Tensor | None, policy: Policy) -> tuple[torch.Tensor, TransitionRun]:
        inputs = vectors.values
        run = run_rrnet(inputs, vectors.lengths, self.weights(), given=given, policy=policy, engine=self.engine)
        hidden, _ = self.lstm(inputs.flatten(0, 1))
        return vectors.without_padding(hidden.view_as(inputs)), run


class _Policy(Resettable):
    def __init__(self, hidden_size: int, policy_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(3 * hidden_size, policy_size)
        self.norm = torch.nn.LayerNorm(policy_size)
        self.transition_map = torch.nn.Linear(policy_size, 2)

    def weights(self) -> PolicyWeights:
        """The parameters as the operation takes them."""
        return PolicyWeights(Affine.of(self.map), Affine.of(self.norm), Affine.of(self.transition_map))
