"""Options that are unknown, out of range or contradict each other raise an error that names them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from tree_strategies import VOCABULARY

from treemem import Vocabulary
from treemem.errors import RecipeError
from treemem.nn import (
    DIORA,
    LSTM,
    ONLSTM,
    PRPN,
    SPINN,
    AttentiveReader,
    BeamTreeGRC,
    ChildSumTreeLSTM,
    ClassifierHead,
    CRvNN,
    DeepLSTMReader,
    DisjointTreeLSTM,
    EfficientBeamTreeGRC,
    EqualityHead,
    GumbelTreeLSTM,
    LanguageModel,
    MemoryRNN,
    NumberDecoder,
    OrderedMemory,
    RelationHead,
    RRNet,
    SequenceToSequence,
    StackTreeLSTM,
    StackTreeRNN,
    Transformer,
    TreeCell,
    TreeLSTM,
    TreeRNN,
    UniversalTransformer,
)

SYMBOLS = Vocabulary(["</s>", "|||", "a"], [])

LAYERS = [
    (TreeRNN, {"activation": "tahn"}, "did you mean tanh"),
    (TreeLSTM, {"hidden_size": 0}, "hidden_size must be at least 1, not 0"),
    (TreeLSTM, {"hidden_size": "4"}, "hidden_size must be a whole number, not '4'"),
    (TreeLSTM, {"input_size": -1}, "input_size must be at least 0, not -1"),
    (TreeLSTM, {"dropout": 1.5}, r"dropout must be a probability, a number from 0 to 1, not 1\.5"),
    (TreeLSTM, {"vocabulary": ["x"]}, "vocabulary must be a Vocabulary, not list"),
    (TreeLSTM, {"leaf": "table"}, "leaf='table' is none of embedding, two-layer"),
    (
        TreeLSTM,
        {"engine": "natve"},
        "engine='natve' is none of auto, naive, autograd, native, cuda; did you mean native",
    ),
    (TreeLSTM, {"engine": ["auto"]}, "engine=.* is none of auto, naive"),
    (TreeLSTM, {"direction": "sideways"}, "direction='sideways' is none of up, down, both"),
    (ChildSumTreeLSTM, {"shared_kinds": "no"}, "shared_kinds must be True or False, not 'no'"),
    (TreeCell, {"leaf_dropout": -0.1}, "leaf_dropout must be a probability"),
    (StackTreeRNN, {"stack_size": 0}, "stack_size must be at least 1"),
    (StackTreeRNN, {"stack_size": 10**8}, "stack_size must be at most 100000, not 100000000"),
    (StackTreeRNN, {"no_op": "stack"}, "no_op must be True or False, not 'stack'"),
    (StackTreeRNN, {"read": "both"}, "read='both'"),
    (StackTreeRNN, {"pop_zero": "never"}, "pop_zero='never'"),
    (StackTreeRNN, {"top_k": 2}, 'top_k goes with read="own"'),
    (StackTreeRNN, {"top_k": 9, "read": "own"}, "between 1 and stack_size=5"),
    (StackTreeLSTM, {"stack_size": "5"}, "stack_size must be a whole number, not '5'"),
    (StackTreeLSTM, {"stack_size": 10**8}, "stack_size must be at most 100000"),
    (StackTreeLSTM, {"actions": "vector"}, "actions='vector'"),
    (StackTreeLSTM, {"normalize": "sum"}, "normalize='sum'"),
    (StackTreeLSTM, {"queue": "yes"}, "queue must be True or False, not 'yes'"),
    (StackTreeLSTM, {"top_k": 6}, "between 1 and stack_size=5"),
    (StackTreeLSTM, {"no_op": True, "no_pop": True}, "does not go with no_op"),
    (StackTreeLSTM, {"gated_top_k": True}, "top_k of at least 2"),
    (StackTreeLSTM, {"actions": "scalar", "normalize": True}, "softmax already"),
    (StackTreeLSTM, {"output_activation": "step"}, "activation='step' is none of"),
    (LSTM, {"vocabulary": None}, "needs a Vocabulary, not NoneType"),
    (LSTM, {"num_layers": 0}, "num_layers must be at least 1"),
    (LSTM, {"dropout": 0.1}, "dropout is between layers, and there is one; for dropout inside it give update_dropout"),
    (LSTM, {"embedding_size": 0}, "embedding_size must be at least 1"),
    (LSTM, {"embedding_bound": -1}, "embedding_bound must be above 0"),
    (LSTM, {"vocabulary": Vocabulary(["x"], [("f", 1), ("f", 2)]), "form": "preorder"}, "'f' has several numbers of"),
    (LSTM, {"form": "functoin"}, "form='functoin' is none of preorder, .*; did you mean function"),
    (LSTM, {"engine": "torch", "update_dropout": 0.1}, "torch's own LSTM has no update_dropout"),
    (ONLSTM, {"chunk_size": 5}, "chunk_size=5 does not divide a layer of 8; 1, 2, 4 would"),
    (ONLSTM, {"layer_sizes": [1, 8], "chunk_size": 1}, "leaves a layer of 1 one master unit"),
    (ONLSTM, {"chunk_size": 8}, "chunk_size=8 leaves a layer of 8 one master unit"),
    (ONLSTM, {"layer_sizes": [6, 4]}, r"the last of layer_sizes=\[6, 4\] must be hidden_size=8"),
    (ONLSTM, {"layer_sizes": 8}, "layer_sizes must be a list of whole numbers, not 8"),
    (ONLSTM, {"layer_sizes": [4, 8], "num_layers": 3}, "num_layers=3, but layer_sizes has 2"),
    (ONLSTM, {"chunk_size": 2, "dropout": 0.4}, "dropout is between layers, and there is one"),
    (ONLSTM, {"chunk_size": 2, "weight_dropout_scaling": "both"}, "='both' is none of published, inverted"),
    (Transformer, {"num_heads": 3}, "num_heads=3 does not divide hidden_size=8"),
    (Transformer, {"feedforward_size": 0}, "feedforward_size must be at least 1"),
    (Transformer, {"read": "middle"}, "read='middle' is none of extract, mean, first, last"),
    (Transformer, {"read": "mean", "joint": True}, "joint=True is read at its extract vector; leave out read='mean'"),
    (Transformer, {"positions": "rotary"}, "positions='rotary' is none of sinusoidal, learned"),
    (Transformer, {"positions": "learned"}, 'max_length goes with positions="learned"'),
    (Transformer, {"max_length": 9}, 'max_length goes with positions="learned"'),
    (UniversalTransformer, {"num_steps": 0}, "num_steps must be at least 1"),
    (UniversalTransformer, {"num_steps": 10**8}, "num_steps must be at most 10000"),
    (UniversalTransformer, {"threshold": 1.5}, "threshold must be a probability"),
    (UniversalTransformer, {"act": "no"}, "act must be True or False, not 'no'"),
    (OrderedMemory, {"slots": 0}, "slots must be at least 1"),
    (OrderedMemory, {"slots": 10**8}, "slots must be at most 100000"),
    (OrderedMemory, {"evaluation_slots": 10**8}, "evaluation_slots must be at most 100000"),
    (PRPN, {"slots": 10**8}, "slots must be at most 100000"),
    (PRPN, {"hidden_size": 7}, "hidden_size=7 must be even"),
    (PRPN, {"slots": 0}, "slots must be at least 1"),
    (PRPN, {"resolution": 0}, "resolution must be above 0"),
    (PRPN, {"hard": "yes"}, "hard must be True or False"),
    (PRPN, {"recurrent_dropout": 2}, "recurrent_dropout must be a probability"),
    (AttentiveReader, {"hidden_size": 7}, "hidden_size=7 must be even"),
    (AttentiveReader, {"attention": "dot"}, "attention='dot' is none of additive, bilinear"),
    (DeepLSTMReader, {"num_layers": 3}, "num_layers=3 does not divide hidden_size=8"),
    (LanguageModel, {"cell": "GRU"}, "cell='GRU' is none of"),
    (LanguageModel, {"embedding_dropout": 1.5}, "embedding_dropout"),
    (SPINN, {"normalisation": "batch", "hidden_size": 1}, "hidden_size and a tracker_size other than 1"),
    (SPINN, {"normalisation": "batch", "tracker_size": 1}, "hidden_size and a tracker_size other than 1"),
    (SPINN, {"normalisation": "layer"}, "normalisation='layer' is none of none, batch"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "beam_size": 0}, "beam_size"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "most_symbols": 0}, "most_symbols"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "dropout": 1.5}, "dropout"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "attention": "dot"}, "set encoder: separate"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "encoder": "separate", "output": "pointer"}, "set attention to"),
    *(
        (SequenceToSequence, {"vocabulary": SYMBOLS, "encoder": "bidirectional", "attention": attention}, "attention")
        for attention in ("none", "dot")
    ),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "memory": "register", "memory_options": {"columns": 5}}, "be made"),
    (OrderedMemory, {"skip": 0.05}, "skip must be at most 0.001, not 0.05"),
    (OrderedMemory, {"memory_dropout": -1}, "memory_dropout must be a probability"),
    (OrderedMemory, {"padding": "rigth"}, "padding='rigth' is none of right, right flipped, left; did you mean right"),
    (OrderedMemory, {"cell": "gatd"}, "cell='gatd' is none of gated, rnn; did you mean gated"),
    (OrderedMemory, {"score": "tan"}, "score='tan' is none of layer_norm, tanh; did you mean tanh"),
    (OrderedMemory, {"bidirectional": "yes"}, "bidirectional must be True or False, not 'yes'"),
    (EfficientBeamTreeGRC, {"beam_size": 0}, "beam_size must be at least 1, not 0"),
    (EfficientBeamTreeGRC, {"beam_size": 10**8}, "beam_size must be at most 100000"),
    (SequenceToSequence, {"vocabulary": SYMBOLS, "beam_size": 10**8}, "beam_size must be at most 100000"),
    (EfficientBeamTreeGRC, {"scored_size": 9}, "scored_size=9 must be at most hidden_size=8"),
    (EfficientBeamTreeGRC, {"noise": "no"}, "noise must be True or False, not 'no'"),
    (BeamTreeGRC, {"top_k": "soft"}, "top_k='soft' is none of plain, onesoft"),
    (GumbelTreeLSTM, {"leaf": "gru"}, "leaf='gru' is none of linear, lstm, bilstm"),
    (GumbelTreeLSTM, {"leaf": "bilstm", "hidden_size": 7}, "hidden_size=7 must be even: each direction has half of it"),
    (GumbelTreeLSTM, {"temperature": 0}, "temperature must be above 0, not 0"),
    (CRvNN, {"window": 4}, "window=4 must be odd: as many neighbours on the left as on the right"),
    (CRvNN, {"equation": 7}, "equation=7 is none of 5, 6"),
    (CRvNN, {"equation": 6, "transition_features": 3}, "equation 6 adds them to states of width 8; set 0 or 8"),
    (CRvNN, {"threshold": 2}, "threshold must be a probability"),
    (CRvNN, {"activation": "tanh"}, "activation='tanh' is none of gelu, relu"),
    (CRvNN, {"cell_size": 0}, "cell_size must be at least 1"),
    (DIORA, {"composition": "gru"}, "composition='gru' is none of tree_lstm, mlp"),
    (DIORA, {"negatives": -1}, "negatives must be at least 0, not -1"),
    (DIORA, {"outside": "no"}, "outside must be True or False, not 'no'"),
    (SPINN, {"transitions": "given"}, "transitions='given' is none of gold, predicted, reinforced"),
    (SPINN, {"tracker_size": 0}, "transitions='predicted' needs a tracker; set tracker_size"),
    (SPINN, {"baseline": "mean"}, "baseline='mean' is none of ema, greedy, left, value, none"),
    (SPINN, {"credited_steps": "some"}, "credited_steps='some' is none of free, all"),
    (RRNet, {"policy_size": 0}, "policy_size must be at least 1, not 0"),
    (RRNet, {"embedding_size": 4}, "RRNet has no option 'embedding_size'"),
    (DisjointTreeLSTM, {"parser_leaf": "bilstm"}, "parser_leaf='bilstm' is none of linear, lstm"),
    (DisjointTreeLSTM, {"policy_updates": 0}, "policy_updates must be at least 1, not 0"),
    (DisjointTreeLSTM, {"policy_rate": 0}, "policy_rate must be above 0, not 0"),
    (MemoryRNN, {"cell": "ONLSTM"}, "cell='ONLSTM' is none of RNN, GRU, LSTM"),
    *(
        (MemoryRNN, {"memory": memory, "memory_options": {name: 10**8}}, f"{name} must be at most 100000")
        for memory, name in (("superposition", "depth"), ("register", "rows"), ("list", "length"))
    ),
    (MemoryRNN, {"memory_options": {"read_strength": -1}}, "read_strength must be above 0, not -1"),
    (MemoryRNN, {"memory": "superposition", "memory_options": {"depth": 2, "top_k": 3}}, "top_k=3 reads more rows"),
    (MemoryRNN, {"memory": "superposition", "memory_options": {"empty": "a"}}, "empty must be a number, not 'a'"),
    (MemoryRNN, {"memory": "list", "memory_options": {"no_op": "no"}}, "no_op must be True or False, not 'no'"),
    (MemoryRNN, {"memory": "register", "memory_options": {"addressing": "reinforce"}}, "a training loop of your own"),
    (BeamTreeGRC, {"engine": "stepwise"}, "engine='stepwise' is none of auto, fused, naive"),
]

HEADS = [
    (RelationHead, {"num_classes": -1}, "num_classes must be at least 1"),
    (RelationHead, {"layer_size": -1}, "layer_size must be at least 0"),
    (RelationHead, {"layer_size": 0, "feature_dropout": 0.1}, "with layer_size=0 there is none"),
    (RelationHead, {"activation": "gelu"}, "activation='gelu' is none of"),
    (RelationHead, {"features": "sum"}, "features='sum'"),
    (ClassifierHead, {"dropout": 2}, "dropout must be a probability"),
    (ClassifierHead, {"nodes": "leaves"}, "nodes='leaves'"),
    (EqualityHead, {"similarity": "euclidean"}, "'euclidean' is none of dot, cosine, distance"),
    (NumberDecoder, {"hidden_size": 0}, "hidden_size must be at least 1"),
]


@pytest.mark.parametrize(("layer", "options", "message"), LAYERS, ids=str)
def test_a_wrong_option_of_a_layer_is_named(layer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        layer(**{"hidden_size": 8, "vocabulary": VOCABULARY, **options})


@pytest.mark.parametrize(("head", "options", "message"), HEADS, ids=str)
def test_a_wrong_option_of_a_head_is_named(head: Any, options: dict[str, Any], message: str) -> None:
    needed = {EqualityHead: (), NumberDecoder: ("hidden_size",)}.get(head, ("hidden_size", "num_classes"))
    with pytest.raises(RecipeError, match=message):
        head(**{**dict.fromkeys(needed, 4), **options})


def test_numbers_of_other_kinds_become_those_of_python() -> None:
    layer = LSTM(8, VOCABULARY, embedding_bound=np.uint8(1), input_dropout=Fraction(1, 2))
    assert (type(layer.embedding_bound), layer.input_dropout, layer.options["embedding_bound"]) == (float, 0.5, 1.0)
    assert type(DIORA(8, VOCABULARY, negatives=np.int64(2)).negatives) is int


def test_a_subclass_may_declare_other_values_than_the_class_that_it_calls() -> None:
    class Mine(OrderedMemory):
        def __init__(self, hidden_size: int, vocabulary: Vocabulary, cell: Literal["mine"] = "mine") -> None:
            super().__init__(hidden_size, vocabulary, cell="rnn")

    assert Mine(8, VOCABULARY).options["cell"] == "mine"
    with pytest.raises(RecipeError, match="cell='rnn' is none of mine"):
        Mine(8, VOCABULARY, cell="rnn")  # type: ignore[arg-type]
