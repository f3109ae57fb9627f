"""Layers and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treemem.heads import ClassifierHead, ComparisonHead, EqualityHead, NumberDecoder, RegressionHead, RelationHead
from treemem.networks import NETWORKS
from treemem.networks.encoder import Encoder
from treemem.networks.encoder_output import EncoderOutput, SequenceStates
from treemem.networks.memories.attention.layer import ReadOnlyMemory
from treemem.networks.memories.controllers.cells import (
    GRUCell,
    LSTMCell,
    ONLSTMCell,
    StackedCells,
    StepCell,
    VanillaCell,
)
from treemem.networks.memories.controllers.memory_cell import MemoryCell
from treemem.networks.memories.memory import Memory
from treemem.networks.memories.memory_rnn import MemoryRNN
from treemem.networks.memories.neural_stack.layer import NeuralDeque, NeuralQueue, NeuralStack
from treemem.networks.memories.nondeterministic_stack.layer import NondeterministicStack
from treemem.networks.memories.registers.layer import RegisterMemory, RegisterState
from treemem.networks.memories.superposition.layer import DoublyLinkedList, SuperpositionStack
from treemem.networks.pairs.cloze_readers.layer import AttentiveReader, DeepLSTMReader, ImpatientReader
from treemem.networks.pairs.word_by_word_attention.layer import WordByWordAttention
from treemem.networks.parsers.beam_tree.layer import BeamTreeGRC, EfficientBeamTreeGRC
from treemem.networks.parsers.crvnn.layer import CRvNN
from treemem.networks.parsers.diora.layer import DIORA
from treemem.networks.parsers.disjoint_tree_lstm.layer import DisjointTreeLSTM
from treemem.networks.parsers.gumbel_tree_lstm.layer import GumbelTreeLSTM
from treemem.networks.parsers.on_lstm.layer import ONLSTM
from treemem.networks.parsers.ordered_memory.layer import OrderedMemory
from treemem.networks.parsers.prpn.layer import PRPN
from treemem.networks.parsers.rrnet.layer import RRNet
from treemem.networks.parsers.spinn.layer import SPINN
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput
from treemem.networks.sequences.language_model.layer import LanguageModel
from treemem.networks.sequences.recurrent.layer import LSTM, RNN
from treemem.networks.sequences.sequence_to_sequence.layer import SequenceToSequence
from treemem.networks.sequences.sequence_to_sequence_transformer.layer import SequenceToSequenceTransformer
from treemem.networks.sequences.stack_attention.layer import StackAttentionTransformer
from treemem.networks.sequences.transformer.layer import Transformer
from treemem.networks.sequences.transformer_language_model.layer import TransformerLanguageModel
from treemem.networks.sequences.universal_transformer.layer import UniversalTransformer
from treemem.networks.trees.child_sum_tree_lstm.layer import ChildSumTreeLSTM
from treemem.networks.trees.leaf_encoder import LeafEncoder, NumberEncoder
from treemem.networks.trees.row_cache import RowCache
from treemem.networks.trees.stack_tree_lstm.layer import StackTreeLSTM
from treemem.networks.trees.stack_tree_rnn.layer import StackTreeRNN
from treemem.networks.trees.tree_cell.layer import TreeCell
from treemem.networks.trees.tree_layer import TreeLayer
from treemem.networks.trees.tree_lstm.layer import TreeLSTM
from treemem.networks.trees.tree_network import TreeNetwork
from treemem.networks.trees.tree_rnn.layer import TreeRNN
from treemem.networks.trees.tree_states import TreeStates
from treemem.networks.word_vectors import WordVectors

__all__ = [
    "DIORA",
    "LSTM",
    "ONLSTM",
    "PRPN",
    "RNN",
    "SPINN",
    "AttentiveReader",
    "BeamTreeGRC",
    "CRvNN",
    "ChildSumTreeLSTM",
    "ClassifierHead",
    "ComparisonHead",
    "DeepLSTMReader",
    "DisjointTreeLSTM",
    "DoublyLinkedList",
    "EfficientBeamTreeGRC",
    "Encoder",
    "EncoderOutput",
    "EqualityHead",
    "GRUCell",
    "GumbelTreeLSTM",
    "ImpatientReader",
    "LSTMCell",
    "LanguageModel",
    "LeafEncoder",
    "Memory",
    "MemoryCell",
    "MemoryRNN",
    "NeuralDeque",
    "NeuralQueue",
    "NeuralStack",
    "NondeterministicStack",
    "NumberDecoder",
    "NumberEncoder",
    "ONLSTMCell",
    "OrderedMemory",
    "RRNet",
    "ReadOnlyMemory",
    "RegisterMemory",
    "RegisterState",
    "RegressionHead",
    "RelationHead",
    "RowCache",
    "SequenceEncoder",
    "SequenceOutput",
    "SequenceStates",
    "SequenceToSequence",
    "SequenceToSequenceTransformer",
    "StackAttentionTransformer",
    "StackTreeLSTM",
    "StackTreeRNN",
    "StackedCells",
    "StepCell",
    "SuperpositionStack",
    "Transformer",
    "TransformerLanguageModel",
    "TreeCell",
    "TreeLSTM",
    "TreeLayer",
    "TreeNetwork",
    "TreeRNN",
    "TreeStates",
    "UniversalTransformer",
    "VanillaCell",
    "WordByWordAttention",
    "WordVectors",
]

if not TYPE_CHECKING:  # or a type checker would believe in every name

    def __getattr__(name: str) -> Any:
        """Return a network whose folder registers it and which the list above does not name."""
        if name not in NETWORKS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return NETWORKS.find(name)
