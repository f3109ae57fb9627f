"""The logical inference task: the relation between two formulas."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from treemem.checked_options import Probability
from treemem.data.examples import Examples, TaskData
from treemem.errors import RecipeError
from treemem.heads import RelationHead
from treemem.metrics.score import Monitor, PublishedFigure
from treemem.networks import NetworkConfig, every_network
from treemem.task import Groups, TreeData
from treemem.task.pairs import PairClassification
from treemem.tasks.logical_inference.data import LogicDataOptions, make_logic_data
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.tasks.logical_inference.generation.relations import RELATIONS
from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES
from treemem.tasks.logical_inference.readers import LogicRecords, pair_operations, read_logic
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.logic import AND, NOT, OR, VARIABLES, WORDS, LogicForm, format_logic
from treemem.trees.pairs import with_pair_data
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    words = {"embedding_bound": 0.1, "input_dropout": 0.1}
    dropouts = {"dropout": 0.2, "memory_dropout": 0.2}
    slots = {"slots": 12, "evaluation_slots": 24}
    memory = {"hidden_size": 200, "embedding_size": 200, **slots, **words, **dropouts}
    attention = {"hidden_size": 200, "num_heads": 8, "feedforward_size": 800, "dropout": 0.1, "joint": True}
    return {
        **every_network(200),
        "Tree-RNN": NetworkConfig("TreeRNN", {"hidden_size": 200, "activation": "tanh"}),
        "TreeCell": NetworkConfig("TreeCell", {"hidden_size": 200, "dropout": 0.2, "leaf_dropout": 0.1}),
        "Ordered Memory": NetworkConfig("OrderedMemory", memory),
        "Ordered Memory, Tree-RNN cell": NetworkConfig("OrderedMemory", {**memory, "cell": "rnn"}),
        "ON-LSTM": NetworkConfig("ONLSTM", {"hidden_size": 200, "chunk_size": 10, "num_layers": 1, **words}),
        "LSTM": NetworkConfig("LSTM", {"hidden_size": 200, **words}),
        "Transformer": NetworkConfig("Transformer", {**attention, "num_layers": 12}),
        "Universal Transformer": NetworkConfig("UniversalTransformer", {**attention, "num_steps": 12}),
        "word-by-word attention": NetworkConfig("WordByWordAttention", {"hidden_size": 200, **words}),
    }


@dataclass(frozen=True)
class LogicalInference(PairClassification):
    """Pairs of formulas of propositional logic and the relation between them (Bowman et al. 2015), by operations.

    Data are forests of two adjacent formulas a pair. ``tree_data`` has one entry a formula, the same for both of a
    pair: ``label``, an index into ``RELATIONS`` (-1 if it is not known), and ``split`` if the data are divided.

    Args:
        form: of the trees. ``"binary"``, as published: words are leaves and brackets are nodes. ``"operators"``:
            operators are inner nodes. Sequence networks read words and brackets of the first, and functions such as
            ``and ( a , b )`` of the second, unless their option ``form`` says otherwise.
        dropout: of the head: before the comparison layer and before the classifier (the authors' ``dropouto``).

    Raises:
        RecipeError: an unknown form.
    """

    name: ClassVar[str] = "logical_inference"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "pairs"
    group: ClassVar[str] = "operations"
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")  # as the recorded results were chosen
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = LogicDataOptions
    text_columns: ClassVar[tuple[str, ...]] = ("operations", "label", "left", "right")
    record_fields: ClassVar[Mapping[str, str]] = {
        "left, right": "the formulas, as in ( ( not a ) ( and b ) ) (or lhs, rhs)",
        "label": f"the relation, one of {' '.join(RELATIONS)}",
        "operations": "the larger of their numbers of operators (or n_ops); may be left out",
    }
    class_names: ClassVar[tuple[str, ...]] = RELATIONS

    form: LogicForm = "binary"
    dropout: Probability = 0.0

    @property
    def token_form(self) -> TokenForm:
        """Words and brackets for binary trees; for the others, whose operators are nodes, functions."""
        return "bracketed leaves" if self.form == "binary" else "function"

    @property
    def vocabulary(self) -> Vocabulary:
        if self.form == "binary":
            return Vocabulary(WORDS, [(CONSTITUENT, 2)])
        return Vocabulary(VARIABLES, [(NOT, 1), (AND, 2), (OR, 2)])

    def make_data(self, options: LogicDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the pairs that ``options`` ask for; see :func:`make_logic_data`."""
        return make_logic_data(options, self.form, self.vocabulary)

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        return {**super().columns_of(examples), **self.split_and_group(examples)}

    def format(self, tree: Tree) -> str:
        return format_logic(tree)

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the pairs of a file; see :func:`~treemem.tasks.logical_inference.readers.read_logic`."""
        pairs = read_logic(source, format=format, labelled=False)
        if not len(pairs):
            raise RecipeError(f"there are no pairs in {os.fspath(source)}")
        forest = with_operators(pairs.forest) if self.form == "operators" else pairs.forest
        data: dict[str, NDArray[Any]] = {"label": pairs.label, "operations": pairs.operations}
        if pairs.split is not None:
            data["split"] = pairs.split
        return with_pair_data(forest, data)

    @property
    def reader(self) -> LogicRecords:
        return LogicRecords(self.form)

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        operations = tree_data.get("operations")
        group = pair_operations(forest) if operations is None else operations.astype(np.int64)
        return Groups(group, group)

    def head(self, hidden_size: int) -> nn.Module:
        """``softmax(W_2 elu(W_1 [l; r; |l - r|; l * r] + b_1) + b_2)``, the head of Shen et al. 2019."""
        return RelationHead(
            hidden_size,
            len(RELATIONS),
            features="differences",
            activation="elu",
            dropout=self.dropout,
            feature_dropout=self.dropout,
        )
