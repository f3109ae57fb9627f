"""A Transformer some of whose layers attend to a differentiable stack."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import checked_flag
from treemem.networks.sequences.attention_encoder import (
    AttentionEncoder,
    AttentionOptions,
    AttentionOutput,
    absent_keys,
    attention_weights,
    sinusoids,
)
from treemem.networks.sequences.stack_attention.named_layers import named_layers
from treemem.networks.sequences.stack_attention.sublayers import StackLayer, StackSublayer, SuperpositionSublayer
from treemem.trees.vocabulary import Vocabulary

_ACTIONS = ("push", "pop", "no_op")


class StackAttentionTransformer(AttentionEncoder, without=("embedding_size", "norm_first")):
    """A Transformer in which a differentiable stack takes the place of self-attention in some layers.

    (DuSell & Chiang 2024.) The input is the tokens' vectors times the root of ``hidden_size``, plus vectors of sines
    and cosines of the positions, with dropout. Layers normalise first, and the last output is normalised. A stack reads
    each sequence from left to right, and its output at a token has read this token. Standard layers look both ways or,
    with ``causal=True``, only back. An encoder for classification looks both ways; a language model looks back.

    The stack layers' maps start as in the authors' code. There, all other weights of layers start uniformly within plus
    and minus 0.1 (formal languages) or 0.01; here they start as in torch.

    Args:
        hidden_size: width of the vectors and of the encoding.
        vocabulary: the labels.
        layers: the layers in order, separated by dots, in the authors' notation. A number: so many standard layers.
            ``superposition-M``: a layer with a stack of Joulin & Mikolov 2015 of vectors of width ``M``.
            ``nondeterministic-Q-S-M``: with the stack of an automaton of ``Q`` states and ``S`` symbols.
        causal: whether standard layers only look back.
        num_heads: heads of attention; divides ``hidden_size``.
        feedforward_size, dropout, read, joint: see :class:`treemem.nn.Transformer`.
        form, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    The trace has ``attention`` of the standard layers, as that of :class:`treemem.nn.Transformer`, and ``push``,
    ``pop`` and ``no_op``, ``[sequences, layers, longest]``: the weights of the actions of superposition stacks.

    Time and memory of a superposition layer grow with the square of the length, those of a nondeterministic one with
    the cube and the square.

    Raises:
        RecipeError: an option outside its range, two that contradict each other, or a layer that does not exist.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> network = StackAttentionTransformer(16, vocabulary, layers="1.superposition-8.1", num_heads=4)
        >>> network(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        layers: str | int = "2.superposition-32.2",
        causal: bool = False,
        **options: Unpack[AttentionOptions],
    ) -> None:
        options["norm_first"] = True
        super().__init__(hidden_size, vocabulary, **options)
        self.causal = checked_flag("causal", causal)
        self.layers = torch.nn.ModuleList(named_layers(layers, hidden_size, self.new_layer, self._new_stack_layer))
        self.last_norm = self.new_last_norm()

    def _new_stack_layer(self, stack: StackSublayer) -> StackLayer:
        return StackLayer(stack, self.hidden_size, self.feedforward_size, self.dropout)

    @property
    def num_superpositions(self) -> int:
        """The number of layers with a superposition stack."""
        return sum(isinstance(getattr(layer, "stack", None), SuperpositionSublayer) for layer in self.layers)

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        axes: dict[str, tuple[str, ...]] = {"attention": ("sequences", "layers", "tokens", "tokens")}
        return axes | {name: ("sequences", "layers", "tokens") for name in _ACTIONS if self.num_superpositions}

    def run(self, vectors: torch.Tensor, padding: torch.Tensor | None, trace: bool) -> AttentionOutput:
        """Run all layers; see :meth:`AttentionEncoder.run`."""
        longest = vectors.shape[1]
        positions = sinusoids(torch.arange(longest, device=vectors.device), self.hidden_size)
        values = self.hidden_size**0.5 * vectors + positions.to(vectors)
        values = functional.dropout(values, self.dropout, self.training)
        later = torch.ones(longest, longest, dtype=torch.bool, device=vectors.device).triu(1) if self.causal else None
        absent = None if self.causal else absent_keys(padding)  # padding comes later than all tokens
        attention, actions = [], []
        for layer in self.layers if values.numel() else ():
            if isinstance(layer, StackLayer):
                if trace and isinstance(layer.stack, SuperpositionSublayer):
                    actions.append(layer.stack.weights(layer.stack_norm(values)).detach().transpose(1, 2))
            elif trace:
                attention.append(attention_weights(layer, values, absent, later))  # type: ignore[arg-type]
            values = layer(values, src_mask=later, src_key_padding_mask=absent, is_causal=self.causal)
        return AttentionOutput(self.last_norm(values), self._traced(vectors, attention, actions) if trace else {})

    def _traced(
        self, vectors: torch.Tensor, attention: list[torch.Tensor], actions: list[torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        sequences, longest = vectors.shape[:2]
        standard = sum(isinstance(layer, torch.nn.TransformerEncoderLayer) for layer in self.layers)
        of_attention = vectors.new_zeros(sequences, standard, longest, longest)
        of_actions = vectors.new_zeros(sequences, self.num_superpositions, 3, longest)
        if attention:
            of_attention = torch.stack(attention, 1)
        if actions:
            of_actions = torch.stack(actions, 1)
        by_name = zip(_ACTIONS, of_actions.unbind(2), strict=True) if self.num_superpositions else ()
        return {"attention": of_attention, **dict(by_name)}
