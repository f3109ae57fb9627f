"""What layers need: torch and numpy."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

import torch

torch.manual_seed(0)
for name in {MISSING}:
    sys.modules[name] = None  # as if it was not installed

from treemem import Forest, TreeBatch, Vocabulary
from treemem.nn import ClassifierHead, OrderedMemory, StackTreeLSTM

forest = Forest.from_trees(["(f x y)", "(f (f x x) y)"])
vocabulary = Vocabulary.from_forest(forest)
batch = TreeBatch.from_forest(forest, vocabulary)
head = ClassifierHead(4, 2)
for layer in (StackTreeLSTM(4, vocabulary), OrderedMemory(4, vocabulary)):
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.1)
    losses = []
    for _ in range(20):
        loss = head.loss(head(layer(batch)), torch.tensor([0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
"""
MISSING = (  # torch itself needs sympy, networkx, jinja2 and filelock
    *("dgl", "pandas", "sklearn", "scipy", "threadpoolctl", "tqdm", "safetensors", "jsonargparse", "yaml", "lightning"),
    *("lightning_fabric", "pyarrow", "matplotlib", "ray", "optuna", "torch_geometric", "tensorboard"),
)


def test_layers_train_with_torch_and_numpy_alone() -> None:
    program = PROGRAM.replace("{MISSING}", repr(set(MISSING)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
