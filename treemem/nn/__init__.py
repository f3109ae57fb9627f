"""Layers and heads."""

from __future__ import annotations

from treemem.nn.beam_tree import BeamTreeGRC, EfficientBeamTreeGRC
from treemem.nn.child_sum_tree_lstm import ChildSumTreeLSTM
from treemem.nn.cloze_readers import AttentiveReader, DeepLSTMReader, ImpatientReader
from treemem.nn.crvnn import CRvNN
from treemem.nn.diora import DIORA
from treemem.nn.disjoint_tree_lstm import DisjointTreeLSTM
from treemem.nn.encoder import Encoder
from treemem.nn.encoder_output import EncoderOutput
from treemem.nn.gumbel_tree_lstm import GumbelTreeLSTM
from treemem.nn.heads import ClassifierHead, ComparisonHead, EqualityHead, NumberDecoder, RegressionHead, RelationHead
from treemem.nn.language_model import LanguageModel
from treemem.nn.leaf_encoder import LeafEncoder
from treemem.nn.memory import DoublyLinkedList, Memory, NeuralDeque, NeuralQueue, NeuralStack, SuperpositionStack
from treemem.nn.memory_rnn import MemoryRNN
from treemem.nn.nondeterministic_stack import NondeterministicStack
from treemem.nn.number_encoder import NumberEncoder
from treemem.nn.on_lstm import ONLSTM
from treemem.nn.ordered_memory import OrderedMemory
from treemem.nn.prpn import PRPN
from treemem.nn.read_only_memory import ReadOnlyMemory
from treemem.nn.recurrent import LSTM, RNN
from treemem.nn.register_memory import RegisterMemory, RegisterState
from treemem.nn.row_cache import RowCache
from treemem.nn.rrnet import RRNet
from treemem.nn.sequence_encoder import SequenceEncoder, SequenceOutput
from treemem.nn.sequence_states import SequenceStates
from treemem.nn.sequence_to_sequence import SequenceToSequence
from treemem.nn.spinn import SPINN
from treemem.nn.stack_tree_lstm import StackTreeLSTM
from treemem.nn.stack_tree_rnn import StackTreeRNN
from treemem.nn.step_cells import GRUCell, LSTMCell, MemoryCell, ONLSTMCell, StackedCells, StepCell, VanillaCell
from treemem.nn.transformer import Transformer
from treemem.nn.tree_cell import TreeCell
from treemem.nn.tree_lstm import TreeLSTM
from treemem.nn.tree_network import TreeLayer, TreeNetwork
from treemem.nn.tree_rnn import TreeRNN
from treemem.nn.tree_states import TreeStates
from treemem.nn.universal_transformer import UniversalTransformer
from treemem.nn.word_by_word_attention import WordByWordAttention
from treemem.nn.word_vectors import WordVectors

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
    "StackTreeLSTM",
    "StackTreeRNN",
    "StackedCells",
    "StepCell",
    "SuperpositionStack",
    "Transformer",
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
