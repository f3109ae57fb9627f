"""What an import needs and brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import treemem


def test_public_names_are_those_of_the_rooms() -> None:
    from treemem.checkpoint import load
    from treemem.schedule.tree_batch import TreeBatch as RoomTreeBatch

    assert treemem.load is load
    assert treemem.TreeBatch is RoomTreeBatch
    assert set(treemem.__all__) <= set(dir(treemem))
    assert all(getattr(treemem, name) is not None for name in treemem.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Treebatch'"):
        treemem.Treebatch  # noqa: B018


def test_importing_treemem_imports_nothing_heavy() -> None:
    heavy = ["torch", "dgl", "sympy", "sklearn", "lightning_fabric", "matplotlib", "pyarrow", "networkx", "numpy"]
    code = f"import sys, treemem; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_rooms_are_there_and_using_the_library_does_not_import_what_it_does_not_use() -> None:
    unused = ["dgl", "sympy", "sklearn", "lightning_fabric", "matplotlib", "pyarrow", "networkx", "jsonargparse"]
    unused += ["torch._dynamo"]  # torch's compiler
    code = (
        "import sys, treemem; treemem.checkpoint.load; treemem.task.TASKS; assert 'task' in dir(treemem)\n"
        "import treemem.runs, treemem.explore, treemem.nn, treemem.trees, treemem.schedule\n"
        "treemem.TreeBatch, treemem.load_pretrained()\n"
        f"print([name for name in {unused} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (answer.stdout.strip(), answer.stderr) == ("[]", "")


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
