"""The parser and the Tree-LSTM of Havrylov et al. 2019 as a sequence encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from typing_extensions import Unpack

from treemem.checked_options import Count, NonNegative, Positive, checked_choice
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.engines.affine import Affine, linear
from treemem.engines.choices import gumbel_noise
from treemem.engines.sequence_lengths import run_packed, within
from treemem.native.second_derivative import refuse_transforms
from treemem.networks.parsers.disjoint_tree_lstm.equations import ParserWeights
from treemem.networks.parsers.disjoint_tree_lstm.plan import TreePlan, tree_plan
from treemem.networks.parsers.disjoint_tree_lstm.run import choices_of, choose_trees, compose_trees
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.parsers.pair_by_pair import joining_steps
from treemem.networks.parsers.pair_cell import PairCell, draw_lstm
from treemem.networks.sequence_encoder import SequenceBatch, SequenceOutput
from treemem.networks.sequences.recurrent.torch_lstm import run_lstm
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.vocabulary import Vocabulary

DisjointLeaf = Literal["linear", "lstm"]


class DisjointTreeLSTM(JoiningEncoder):
    """The network of Havrylov et al. 2019: a parser chooses the tree, and a Tree-LSTM of its own composes it.

    Both have vectors of the tokens, leaves and a cell of their own. Leaves are ``h, c = tanh(W e + b)`` of the token's
    vector ``e``, or of the output of an LSTM over the tokens. Both have the cell::

        i, f_l, f_r, o = sigmoid(W [h_l; h_r] + b)
        u = tanh(W_u [h_l; h_r] + b_u)
        m = i * u + f_l * c_l + f_r * c_r,  h = o * tanh(m),  c = tanh(m)

    The parser composes every two adjacent nodes, chooses one of the compositions, and puts it in the place of its two
    nodes, until one is left. It chooses from ``softmax(q . h)``: in training a sample, in evaluation the likeliest. The
    encoding is ``h`` of the root of the composition, 0 for an empty sequence. The parser has its own vectors of tokens.
    If vectors or features are given in their place, it reads those of the composition, without gradients or dropout.

    The loss of the task trains the composition. The parser learns by proximal policy optimisation from the likelihood
    of the correct answer, compared with that of the likeliest tree; see
    :class:`treemem.runs.proximal_policy.ProximalPolicy`.

    This is what the authors' code runs. There ``tanh`` works in place, so that a node hands ``tanh(m)`` to its parent
    and not ``m``. The weights of the cells start orthogonal, the biases of the forget gates at 1, ``q`` from the normal
    distribution of deviation 0.01. What reads the tokens' vectors starts with the He initialisation.

    The outputs at the tokens are ``h`` of the leaves of the composition. The trace has ``"joined"``, ``[sequences,
    longest]``: the step, from 1, that joins the constituent that begins at a token with the constituent on its left; 0
    at the first token. In training it always has the ``"log_probability"`` of the tree and the ``"entropy"`` of the
    choices, ``[sequences]``, and ``"places"``, ``[sequences, longest - 1]``: which pair each step chose, from 0. The
    entropy of a step is divided by the logarithm of the number of pairs; ``"entropy"`` is the mean over the steps with
    more than one pair.

    Args:
        hidden_size: width of ``h``.
        vocabulary: the labels.
        parser_leaf: ``"lstm"`` or ``"linear"``: leaves of the parser.
        leaf: the same of the composition.
        policy_updates: how often the parser is updated for each batch.
        policy_rate: by what the learning rate is multiplied for the parser.
        ratio_clip: the ratio of new and old probabilities counts within 1 plus and minus this.
        entropy_weight: of the entropy in the loss of the parser.
        form, embedding_size, embedding_bound: see :class:`treemem.nn.SequenceEncoder`.
        input_dropout: of the vectors that the composition reads.
        engine: ``"fused"`` (``"auto"``) composes each pair once and computes gradients level by level, in C++ where it
            can. ``"naive"``: step by step in torch. Both give the same results.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = DisjointTreeLSTM(16, vocabulary)(batch)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> states.trace["log_probability"].shape
        torch.Size([2])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        parser_leaf: DisjointLeaf = "lstm",
        leaf: DisjointLeaf = "linear",
        policy_updates: Count = 15,
        policy_rate: Positive = 0.1,
        ratio_clip: Positive = 0.2,
        entropy_weight: NonNegative = 1e-4,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        for name, value in (("parser_leaf", parser_leaf), ("leaf", leaf)):
            checked_choice(name, value, get_args(DisjointLeaf))
        self.policy_updates = policy_updates
        self.policy_rate = policy_rate
        self.ratio_clip = ratio_clip
        self.entropy_weight = entropy_weight
        self.leaves = _Leaves(self.embedding_size, hidden_size, leaf == "lstm")
        self.cell = PairCell(hidden_size)
        self.parser = _Parser(
            self.embedding.num_embeddings, self.embedding_size, hidden_size, parser_leaf == "lstm", self.embedding_bound
        )

    learner = "treemem.runs.proximal_policy:ProximalPolicy"

    def policy_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights of the parser."""
        return self.parser.parameters()

    def further_inputs(self, batch: TreeBatch | TokenBatch, items: torch.Tensor) -> dict[str, Any]:
        """Return what the parser reads: its own vectors of tokens, or the given vectors or features."""
        return {"parser_inputs": self._parser_inputs(items)}

    def _parser_inputs(self, items: torch.Tensor) -> torch.Tensor:
        items = to_device(items, self.embedding.weight.device)
        if isinstance(self.embedding, torch.nn.Embedding):
            return self.parser.embedding(items)
        return self.embedding(items).detach()

    def join(self, vectors: Vectors, trace: bool, *, parser_inputs: torch.Tensor | None = None) -> SequenceOutput:
        """Parse, and compose. The parser reads ``parser_inputs``, by default the same vectors, without gradients."""
        refuse_transforms(type(self).__name__, ", on any engine; use torch.autograd")
        lengths = vectors.lengths
        of_parser = self._parser_leaves(vectors.values.detach() if parser_inputs is None else parser_inputs, lengths)
        noise = gumbel_noise(of_parser) if self.training else None
        places = choose_trees(of_parser.detach(), lengths, self.parser.weights(), noise=noise, engine=self.engine)
        plan = tree_plan(places, lengths)
        leaves = vectors.without_padding(self.leaves(vectors.values, lengths))
        roots = compose_trees(leaves, plan, Affine.of(self.cell.map), engine=self.engine)
        traced: dict[str, torch.Tensor] = {}
        if trace or self.training:
            log_probability, entropy = self._policy(of_parser, plan)
            traced = {"log_probability": log_probability, "entropy": entropy, "places": places.to(roots.dtype)}
        hidden, root = (nodes.chunk(2, -1)[0] for nodes in (leaves, roots))
        if trace:
            finite = (root.isfinite().all(1) & traced["log_probability"].isfinite())[:, None]
            joined = joining_steps(places, vectors.lengths_there)[:, : leaves.shape[1]]
            traced["joined"] = joined.to(root.dtype).masked_fill(~finite, torch.nan)
        return SequenceOutput(root, hidden, traced)

    def policy(self, batch: SequenceBatch, plan: TreePlan) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log probability of given trees over a batch, and the entropy, as the trace has them."""
        refuse_transforms(type(self).__name__, ", on any engine; use torch.autograd")
        items, lengths = self.items(batch)
        inputs = self._parser_inputs(items)
        with torch.autocast(inputs.device.type, enabled=False):
            return self._policy(self._parser_leaves(inputs, lengths.cpu()), plan)

    def _parser_leaves(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        present = within(to_device(lengths, inputs.device), inputs.shape[1])[:, :, None]
        inputs = inputs.masked_fill(~present, 0).to(self.parser.query.dtype)
        return self.parser.leaves(inputs, lengths).masked_fill(~present, 0)

    def _policy(self, leaves: torch.Tensor, plan: TreePlan) -> tuple[torch.Tensor, torch.Tensor]:
        choices = choices_of(leaves, plan, self.parser.weights(), engine=self.engine)
        lengths = to_device(plan.lengths, leaves.device)[:, None]
        num_pairs = lengths - 1 - torch.arange(choices.entropy.shape[1], device=leaves.device)
        has_choice = num_pairs > 1
        normalised = choices.entropy / num_pairs.clamp(min=2).to(leaves.dtype).log()
        entropy = (normalised * has_choice).sum(1) / has_choice.sum(1).clamp(min=1)
        return choices.log_probability.sum(1), entropy


class _Leaves(torch.nn.Module):
    """Leaves ``[h; c] = tanh(W e + b)``, of vectors or of an LSTM over them, whose first state is learned."""

    def __init__(self, input_size: int, hidden_size: int, recurrent: bool) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(input_size, hidden_size) if recurrent else None
        self.start = torch.nn.Parameter(torch.empty(2, hidden_size)) if recurrent else None
        self.map = torch.nn.Linear(hidden_size if recurrent else input_size, 2 * hidden_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        torch.nn.init.kaiming_normal_(self.map.weight)
        torch.nn.init.zeros_(self.map.bias)
        if self.lstm is not None and self.start is not None:
            draw_lstm(self.lstm)
            torch.nn.init.zeros_(self.start)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``."""
        lstm, start = self.lstm, self.start
        if lstm is not None and start is not None:

            def run(packed: torch.Tensor, sizes: list[int], first: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
                hidden, cell = start[:, None, None].expand(-1, -1, sizes[0], -1).contiguous()
                of_steps = torch.nn.utils.rnn.PackedSequence(packed, torch.tensor(sizes))
                return (run_lstm(lstm, of_steps, (hidden, cell))[0].data,)

            inputs, _ = run_packed(run, inputs, lengths, [start.new_zeros(len(inputs), lstm.hidden_size)])
        return linear(inputs, Affine.of(self.map)).tanh()


class _Parser(torch.nn.Module):
    def __init__(
        self, tokens: int, embedding_size: int, hidden_size: int, recurrent: bool, embedding_bound: float | None
    ) -> None:
        super().__init__()
        self._embedding_bound = embedding_bound
        self.embedding = torch.nn.Embedding(tokens, embedding_size)
        self.leaves = _Leaves(embedding_size, hidden_size, recurrent)
        self.cell = PairCell(hidden_size)
        self.query = torch.nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        if self._embedding_bound is None:
            self.embedding.reset_parameters()
        else:
            torch.nn.init.uniform_(self.embedding.weight, -self._embedding_bound, self._embedding_bound)
        self.leaves.reset_parameters()
        self.cell.reset_parameters()
        torch.nn.init.normal_(self.query, std=0.01)

    def weights(self) -> ParserWeights:
        """The parameters as the operation takes them."""
        return ParserWeights(Affine.of(self.cell.map), self.query)
