"""A language model of Transformer layers, some of which may attend to a differentiable stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Count
from treemem.device_copy import to_device, to_device_together
from treemem.engines.sequence_lengths import checked_lengths, entry_of_each
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.networks.sequences.language_model.layer import END, TokenPredictor
from treemem.networks.sequences.stack_attention.layer import StackAttentionTransformer
from treemem.networks.sequences.transformer_language_model.sentences import Carried, cut
from treemem.trees.tokens import TokenForm
from treemem.trees.vocabulary import Vocabulary


class LayerOptions(TypedDict, total=False):
    """The options of :class:`TransformerLanguageModel` that are those of a Transformer's layers."""

    num_heads: int
    feedforward_size: int | None
    dropout: float
    input_dropout: float


class TransformerLanguageModel(StackAttentionTransformer, TokenPredictor, without=("causal", "read", "joint")):
    """Predicts the next token at every token with the layers of a :class:`treemem.nn.StackAttentionTransformer`.

    (Vaswani et al. 2017; with stacks DuSell & Chiang 2024.) It reads each sentence by itself, as DuSell & Chiang do: a
    sentence begins with ``<eos>``, the end of the one before it, and its tokens see only earlier tokens of the same
    sentence. A sentence may go on in the next batch of a stream; then its last ``context`` tokens are read again.
    Without ``<eos>`` in the vocabulary a sequence is one sentence.

    ``outputs`` are the logits of the next token, ``[sequences, longest, leaves]``: ``E y + b``, where ``E`` are the
    vectors of the tokens and ``y`` the normalised output of the last layer. The authors' model has no ``b``. The
    encoding is ``y`` at the last token.

    Args:
        hidden_size: width of the vectors.
        vocabulary: the words.
        layers: the layers in order, as in :class:`treemem.nn.StackAttentionTransformer`; ``5`` is a Transformer.
        context: the most tokens of an unfinished sentence that the next batch reads again.
        num_heads, feedforward_size, dropout: see :class:`treemem.nn.Transformer`.
        form, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    The trace has ``push``, ``pop`` and ``no_op`` of superposition stacks, ``[sequences, layers, longest]``.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem.data.token_batch import TokenBatch
        >>> vocabulary = Vocabulary(["<eos>", "the", "cat", "sat"], [])
        >>> model = TransformerLanguageModel(8, vocabulary, layers="1.superposition-4.1", num_heads=2)
        >>> model(TokenBatch.from_sequences([[0, 1, 2, 3], [0, 1]])).outputs.shape
        torch.Size([2, 4, 4])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        layers: str | int = 5,
        context: Count = 256,
        form: TokenForm = "leaves",
        embedding_bound: float | None = 0.01,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            hidden_size,
            vocabulary,
            layers=layers,
            causal=True,
            read="last",
            form=form,
            embedding_bound=embedding_bound,
            **options,
        )
        self.context = context
        self.bias = torch.nn.Parameter(torch.zeros(self.embedding.num_embeddings))

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {name: axes for name, axes in super().trace_axes.items() if name != "attention"}

    @property
    def why_not_in_bucket(self) -> str | None:
        return "it cuts each batch into sentences"

    @property
    def why_not_captured(self) -> str | None:
        return self.why_not_in_bucket

    def further_inputs(self, batch: Any, items: torch.Tensor) -> dict[str, Any]:
        return {"token": items}

    def read(
        self,
        inputs: torch.Tensor,
        lengths: torch.Tensor,
        *,
        trace: bool = False,
        state: Carried | None = None,
        token: torch.Tensor | None = None,
    ) -> SequenceOutput:
        """Run over sequences of vectors, each from its beginning or from a state.

        Args:
            inputs: ``[sequences, longest, hidden_size]``, padded on the right with anything.
            lengths: int64 ``[sequences]``, 0 to ``longest``.
            trace: whether to keep what the stacks did.
            state: of the batch before.
            token: the tokens whose vectors these are, int64 ``[sequences, longest]``; None: none of them is ``<eos>``.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
        lengths = checked_lengths(lengths, inputs, self.hidden_size)
        count, longest = inputs.shape[:2]
        if state is None:
            state = Carried(torch.zeros(count, 0, dtype=torch.int64), torch.zeros(count, dtype=torch.int64))
        leaves = self.vocabulary.leaves
        end = leaves.index(END) if END in leaves and token is not None else None
        on_cpu = torch.full((count, longest), -1) if token is None else token.cpu()
        found = cut(on_cpu, lengths, state, end, self.context)
        place, *sources = to_device_together([found.place, *found.source], inputs.device)
        vectors = torch.cat([self.embed(state.token).to(inputs), inputs], 1).flatten(0, 1)
        read = [
            super(TransformerLanguageModel, self).read(_taken([vectors], source), sizes, trace=trace)
            for source, sizes in zip(sources, found.lengths, strict=True)
        ]
        outputs = _taken([vectors[:0], *(part.outputs.flatten(0, 1) for part in read)], place)
        logits = functional.linear(outputs, self.vectors_of_tokens(), self.bias)
        logits = logits.masked_fill((place < 0)[:, :, None], 0)
        encoding = entry_of_each(outputs, to_device(lengths - 1, inputs.device))
        traced = {}
        for name in self.trace_axes if trace else ():
            actions = [part.trace[name].transpose(1, 2).flatten(0, 1) for part in read]
            empty = outputs.new_zeros(0, self.num_superpositions)
            traced[name] = _taken([empty, *actions], place).transpose(1, 2)
        return SequenceOutput(encoding, logits, traced, state=found.carried)


def _taken(rows: list[torch.Tensor], place: torch.Tensor) -> torch.Tensor:
    """Return the rows at places of some tensors ``[rows, width]``, one after the other; 0 where the place is -1."""
    bank = torch.cat([*rows, rows[0].new_zeros(1, rows[0].shape[1])])
    return bank.index_select(0, place.flatten() % len(bank)).unflatten(0, place.shape)
