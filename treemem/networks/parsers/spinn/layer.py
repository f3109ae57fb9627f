"""SPINN and RL-SPINN as sequence encoders."""

from __future__ import annotations

from typing import Literal

import torch
from typing_extensions import Unpack

from treemem.checked_options import Natural
from treemem.engines.affine import Affine
from treemem.errors import RecipeError
from treemem.networks.parsers.joining_encoder import Vectors
from treemem.networks.parsers.pair_cell import LinearStateLeaves, draw_biases
from treemem.networks.parsers.spinn.equations import Policy, SPINNWeights, TrackerWeights
from treemem.networks.parsers.spinn.run import TransitionRun, run_transitions
from treemem.networks.parsers.transition_encoder import (
    TransitionEncoder,
    TransitionOptions,
    Transitions,
)
from treemem.trees.vocabulary import Vocabulary

Normalisation = Literal["none", "batch"]


class SPINN(TransitionEncoder):
    """SPINN (Bowman et al. 2016) and RL-SPINN (Yogatama et al. 2017; Williams et al. 2018), which shift and reduce.

    Leaves are states ``h, c``, a linear map of the token's vector. They stand in a buffer. A shift puts the next one on
    a stack; a reduce composes the two topmost nodes ``l`` and ``r``. A sequence of ``n`` tokens has ``2 n - 1``
    transitions. Before each of them an LSTM, the tracker, reads ``h`` of the next leaf ``b`` and of the two topmost
    nodes ``s_1`` and ``s_2``, 0 where there is none::

        t, m = LSTM([b; s_1; s_2])                                   its h and c
        P(shift), P(reduce) = softmax(W_t [t; m] + b_t)
        i, f_l, f_r, o = sigmoid(W [l; r] + V t + b)
        u = tanh(W_u [l; r] + V_u t + b_u)
        c = i * u + f_l * c_l + f_r * c_r,  h = o * tanh(c)

    The encoding is ``h`` of the root, 0 for an empty sequence. ``transitions`` says where transitions come from:

    - ``"gold"``: from the trees of the batch (SPINN-PI; with ``tracker_size=0`` SPINN-PI-NT).
    - ``"predicted"``: in training from the trees, in evaluation the likelier ones (SPINN).
    - ``"reinforced"``: in training sampled, in evaluation the likelier ones (RL-SPINN). The network is trained by
      :class:`treemem.runs.reinforced_transitions.ReinforcedTransitions`.

    The transitions of a tree compose the parts of a node (its label, brackets and children, as far as ``form`` writes
    them) from left to right. A transition that is not possible is replaced by the other one. With transitions from
    trees and a tracker, the auxiliary loss ``"transitions"`` is their negative log likelihood, a mean over the steps.
    Its weight is 1 unless the training has another one in ``auxiliary_losses``.

    This is what the authors' code runs. Where it adds 1 to the forget gates of the composition, their biases start at 1
    here. Its normalisation over a batch is an option, see below. Its prior over transitions is left out. Maps
    start with the He initialisation, biases at 0.

    With ``normalisation="batch"``, an option of that code, ``b``, ``s_1``, ``s_2``, ``l``, ``r`` and the ``t`` of the
    composition are normalised before their maps: ``gain * (x - mean) / (deviation + 1e-5) + bias``. Mean and deviation
    are those of all entries of a step: for the tracker of all sequences that are not empty, ended ones too, for the
    composition of those that reduce. So the other sequences of a batch change a result, in evaluation too.

    The outputs at the tokens are ``h`` of the leaves. The trace has ``"joined"``, ``[sequences, longest]``: the number
    of the composition, from 1, that joins the constituent that begins at a token with the constituent on its left; 0 at
    the first token. With a tracker it also has, ``[sequences, steps]``, ``"log_probability"`` of what was done, and
    ``"free"``: 1 where both transitions were possible. In training with ``"reinforced"`` these two are always there,
    and with ``baseline="value"`` the predictions ``"value"``, ``[sequences]``; with ``reward="accuracy"`` as logits.

    Args:
        hidden_size: width of ``h``.
        vocabulary: the labels.
        transitions: see above.
        tracker_size: width of the tracker; 0: no tracker.
        temperature: logits of a policy are divided by it; may be set at any time.
        reward: of ``"reinforced"``: ``"accuracy"``, 1 for a correct answer, or ``"log"``, ``-log(1 - p)`` of its
            probability.
        baseline: what the reward is compared with: ``"ema"``, an average of the rewards so far; ``"greedy"``, the
            reward of the likelier transitions; ``"left"``, that of left-branching trees; ``"value"``, what an LSTM of
            100 units over the tokens' vectors predicts, trained with them by the loss ``"value"``; or ``"none"``.
        credited_steps: which steps the reward is credited to: ``"free"``, those where both transitions were possible,
            which gives the gradient of the expected reward; or ``"all"``, as the authors' code does.
        normalisation: ``"none"``, or the published variant ``"batch"``, whose results depend on the batch; see above.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``) runs all sequences at once on a thin stack. ``"naive"``: sequence
            by sequence. Both give the same results, but sample other transitions. With
            ``normalisation="batch"`` both run all sequences step by step, with torch's gradients.

    Raises:
        RecipeError: an option that is unknown or outside its range, a policy without a tracker, or a normalisation of
            width 1.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = SPINN(16, vocabulary)(batch)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> sorted(states.auxiliary_losses)
        ['transitions']
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        transitions: Transitions = "predicted",
        tracker_size: Natural = 48,
        normalisation: Normalisation = "none",
        **options: Unpack[TransitionOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, transitions=transitions, **options)
        if not tracker_size and transitions != "gold":
            raise RecipeError(f"transitions={transitions!r} needs a tracker; set tracker_size")
        self.normalisation: Normalisation = normalisation
        if normalisation == "batch" and 1 in (hidden_size, tracker_size):
            raise RecipeError("normalisation='batch' needs a hidden_size and a tracker_size other than 1")
        self.leaves = LinearStateLeaves(self.embedding_size, hidden_size)
        self.cell = _Cell(hidden_size)
        self.tracker = _Tracker(hidden_size, tracker_size) if tracker_size else None
        self.norms = _Norms(hidden_size, tracker_size) if normalisation == "batch" else None
        self.add_value()

    @property
    def has_policy(self) -> bool:
        return self.tracker is not None

    @property
    def needs_whole_batch(self) -> str | None:
        return None if self.norms is None else f"normalisation={self.normalisation!r}"

    def weights(self) -> SPINNWeights:
        """The weights above the leaves, as the operation takes them."""
        tracker = None if self.tracker is None else self.tracker.weights()
        return SPINNWeights(Affine.of(self.cell.map), tracker, () if self.norms is None else self.norms.weights())

    def run(self, vectors: Vectors, given: torch.Tensor | None, policy: Policy) -> tuple[torch.Tensor, TransitionRun]:
        leaves = vectors.without_padding(self.leaves(vectors.values, vectors.lengths))
        run = run_transitions(leaves, vectors.lengths, self.weights(), given=given, policy=policy, engine=self.engine)
        return leaves.chunk(2, -1)[0], run


class _Cell(torch.nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(2 * hidden_size, 5 * hidden_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for half in self.map.weight.detach().chunk(2, 1):
            torch.nn.init.kaiming_normal_(half)
        draw_biases(self.map.bias)


class _Tracker(torch.nn.Module):
    def __init__(self, hidden_size: int, tracker_size: int) -> None:
        super().__init__()
        self.input_map = torch.nn.Linear(3 * hidden_size, 4 * tracker_size)
        self.lateral_map = torch.nn.Linear(tracker_size, 4 * tracker_size, bias=False)
        self.cell_map = torch.nn.Linear(tracker_size, 5 * hidden_size, bias=False)
        self.transition_map = torch.nn.Linear(2 * tracker_size, 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        parts = self.input_map.weight.detach().chunk(3, 1)
        for weight in (*parts, self.lateral_map.weight, self.cell_map.weight, self.transition_map.weight):
            torch.nn.init.kaiming_normal_(weight)
        for module in (self.input_map, self.transition_map):
            torch.nn.init.zeros_(module.bias)

    def weights(self) -> TrackerWeights:
        """The parameters as the operation takes them."""
        return TrackerWeights(
            Affine.of(self.input_map), self.lateral_map.weight, self.cell_map.weight, Affine.of(self.transition_map)
        )


class _Norms(torch.nn.Module):
    """Gains and biases of the normalisation over a batch."""

    def __init__(self, hidden_size: int, tracker_size: int) -> None:
        super().__init__()
        shapes = {"composed": (2, hidden_size)}
        if tracker_size:
            shapes |= {"tops": (3, hidden_size), "tracked": (1, tracker_size)}
        self.gain = torch.nn.ParameterDict({name: torch.empty(shape) for name, shape in shapes.items()})
        self.bias = torch.nn.ParameterDict({name: torch.empty(shape) for name, shape in shapes.items()})
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set gains to 1 and biases to 0."""
        for gain, bias in self.weights():
            torch.nn.init.ones_(gain)
            torch.nn.init.zeros_(bias)

    def weights(self) -> tuple[Affine, ...]:
        """The parameters as the operation takes them."""
        return tuple(Affine(gain, bias) for gain, bias in zip(self.gain.values(), self.bias.values(), strict=True))
