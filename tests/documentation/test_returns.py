"""The page of ``treemem.nn`` says what each network returns for what it gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from device_cases import SYMBOLS, VOCABULARY, UserCell
from documentation.page_blocks import DOCS
from engine_parity import HAS_DGL, NO_DGL

import treemem.nn
from treemem.data.token_batch import TokenBatch
from treemem.errors import TreememError
from treemem.nn import (
    ONLSTM,
    PRPN,
    Encoder,
    EncoderOutput,
    LanguageModel,
    SequenceToSequence,
    SequenceToSequenceTransformer,
    TransformerLanguageModel,
    TreeNetwork,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest

SIZE = 8
FOREST = Forest.from_trees(["(f x (f y x))", "(f x y)"])
BASES = {"Encoder", "SequenceEncoder", "TreeLayer"}
MAKES: dict[str, Callable[[], Any]] = {
    "TreeNetwork": lambda: TreeNetwork(UserCell(), vocabulary=VOCABULARY, embedding_size=4),
    "LanguageModel": lambda: LanguageModel(SIZE, SYMBOLS, chunk_size=4),
    "ONLSTM": lambda: ONLSTM(SIZE, VOCABULARY, chunk_size=2),
    "PRPN": lambda: PRPN(SIZE, SYMBOLS, slots=3, residual_blocks=1),
    "TransformerLanguageModel": lambda: TransformerLanguageModel(SIZE, SYMBOLS, num_heads=2),
    "SequenceToSequenceTransformer": lambda: SequenceToSequenceTransformer(SIZE, SYMBOLS, num_heads=2),
    "SequenceToSequence": lambda: SequenceToSequence(SIZE, SYMBOLS, memory_size=SIZE, embedding_size=SIZE),
}
NETWORKS = [name for name in treemem.nn.__all__ if issubclass(getattr(treemem.nn, name), Encoder) and name not in BASES]


def documented() -> dict[str, list[str]]:
    """The cells of the table by network."""
    page = (DOCS / "api" / "nn.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    return {name: cells for names, *cells in rows[2:] for name in re.findall(r"`(\w+)`", names)}


def returned(network: Any, *given: Any) -> str:
    """What a network returns, as the table says it."""
    try:
        made = network(*given)
    except TreememError:
        return "refused"
    if isinstance(made, torch.Tensor):
        assert made.shape == (FOREST.num_nodes, network.hidden_size if hasattr(network, "hidden_size") else 4)
        return "`Tensor`, `[nodes, hidden_size]`"
    assert isinstance(made, EncoderOutput)
    return f"`{type(made).__name__}`"


def graphs() -> Iterator[tuple[Any, ...]]:
    """The trees as graphs."""
    pytest.importorskip("torch_geometric", reason="torch-geometric is not installed")
    yield (TreeBatch.from_forest(FOREST, VOCABULARY).to_pyg(),)
    if HAS_DGL:
        yield (TreeBatch.from_forest(FOREST, VOCABULARY, share_subtrees=False).graph,)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_returns_what_the_table_says(name: str) -> None:
    torch.manual_seed(0)
    make = MAKES.get(name, partial(getattr(treemem.nn, name), SIZE, VOCABULARY))
    network = make().eval()
    ids = TokenBatch.from_sequences([[1, 2], [3]])
    is_pair = returned(network, TreeBatch.from_forest(FOREST, VOCABULARY)) == "refused"
    parts = 2 if is_pair else 1
    trees = TreeBatch.from_forest(FOREST, VOCABULARY, trees_per_example=parts)
    shown = [returned(network, trees), returned(network, TokenBatch(ids.token, ids.lengths, target=ids))]
    of_graphs = {returned(network, *given) for given in graphs()}
    assert len(of_graphs) == 1
    assert [*shown, *of_graphs] == documented()[name], NO_DGL
