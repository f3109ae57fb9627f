"""Cells that a user writes in plain torch, which are printed as C++."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.examples import Examples, equal_trees
from treemem.nn import ClassifierHead, TreeNetwork
from treemem.ops import State
from treemem.trees import Vocabulary


class AttentiveGRU(nn.Module):
    """The GRU with attention over its two children of ``docs/models/own_cells.md``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * size, 5 * size)

    def leaf(self, x: Tensor, kind: int) -> State:
        """The embedding."""
        return {"h": x}

    def forward(self, children: State, x: Tensor, kind: int) -> State:
        """Gates of the children, ``[m, 2, size]``, and of ``x``."""
        h = children["h"]
        size = h.shape[2]
        gates = self.linear(torch.cat([h.flatten(1), x], dim=1))
        reset, update, candidate, query = gates.split([2 * size, size, size, size], dim=1)
        attention = torch.softmax((query[:, None] * h).sum(2) / size**0.5, dim=1)
        mixed = (attention[:, :, None] * h).sum(1)
        reset, update = torch.sigmoid(reset).unflatten(1, (2, size)), torch.sigmoid(update)
        return {"h": update * mixed + (1 - update) * torch.tanh(candidate + (reset * h).sum(1))}


class HiddenLayerLSTM(nn.Module):
    """A child-sum LSTM whose output passes a hidden layer, with layer normalisation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gates, self.forget = nn.Linear(2 * size, 3 * size), nn.Linear(2 * size, size)
        self.hidden, self.output, self.norm = nn.Linear(size, size), nn.Linear(size, size), nn.LayerNorm(size)

    def leaf(self, x: Tensor, kind: int) -> State:
        """The embedding, and an empty memory."""
        return {"h": x, "c": torch.zeros_like(x)}

    def forward(self, children: State, x: Tensor, kind: int) -> State:
        """Three gates of the sum of the children, one of each child."""
        h = children["h"]
        i, o, u = self.gates(torch.cat([h.sum(1), x], 1)).chunk(3, 1)
        forget = torch.sigmoid(self.forget(torch.cat([h, x[:, None].expand_as(h)], 2)))
        c = torch.sigmoid(i) * torch.tanh(u) + (forget * children["c"]).sum(1)
        out = torch.sigmoid(o) * torch.tanh(c)
        return {"h": self.norm(out + self.output(functional.gelu(self.hidden(out)))), "c": c}


def own_cell_network(cell: type[nn.Module], size: int, vocabulary: Vocabulary) -> tuple[TreeNetwork, ClassifierHead]:
    """A network of such a cell, in which inner nodes read the embedding of their label, and a class for every tree."""
    network = TreeNetwork(cell(size), vocabulary=vocabulary, embedding_size=size, node_features=True)
    return network, ClassifierHead(size, 2)


def equal_trees_of_20_leaves(most: int) -> Examples:
    """Random binary trees for them."""
    return equal_trees(min(most, 512), 20)
