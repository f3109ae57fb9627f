"""A network in a folder of its own takes part in recipes, commands and the comparison by one entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import treemem
from treemem import Forest, GraphError, TreeBatch, Vocabulary
from treemem.nn import SequenceEncoder, SequenceOutput

ROOT = Path(treemem.__file__).parents[1]
LAYER = '''
import torch
from treemem.nn import SequenceEncoder, SequenceOutput


class MeanOfTokens(SequenceEncoder):
    """The encoding is the mean of the tokens' vectors after a linear map."""

    def __init__(self, hidden_size, vocabulary, **options):
        super().__init__(hidden_size, vocabulary, **options)
        self.map = torch.nn.Linear(self.embedding_size, hidden_size)

    def read(self, inputs, lengths, *, trace=False):
        present = torch.arange(inputs.shape[1], device=inputs.device) < lengths[:, None]
        outputs = self.map(inputs) * present[:, :, None]
        return SequenceOutput(outputs.sum(1) / lengths.clamp(min=1)[:, None], outputs)
'''
RECIPE = """task: listops
networks: {Mean of tokens: {network: Mean of tokens, options: {hidden_size: 12}}}
data: {training_size: 40, validation_size: 10, test_size: 10, pool: 0}
training: {epochs: 1, batch_size: 8, seed: 1}
"""
SCRIPT = """
from treemem.cli import main
from treemem.tasks.comparison.comparison import comparison_parts

for words in (
    ["train", "recipe.yaml", "-o", "out"],
    ["predict", "out/Mean of tokens", "lists.txt", "-o", "answers.jsonl"],
    ["explore", "out/Mean of tokens", "lists.txt", "-o", "page.html"],
):
    assert not main(words), words
print("rows:", *(row for part in comparison_parts().values() for row in part.order), sep="|")
"""


def test_a_folder_and_an_entry_point_are_a_network(tmp_path: Path) -> None:
    (tmp_path / "mean_of_tokens").mkdir()
    (tmp_path / "mean_of_tokens" / "__init__.py").write_text(LAYER)
    (tmp_path / "mean_of_tokens-1.dist-info").mkdir()
    metadata = {
        "METADATA": "Metadata-Version: 2.1\nName: mean_of_tokens\nVersion: 1\n",
        "entry_points.txt": "[treemem.networks]\nMean of tokens = mean_of_tokens:MeanOfTokens\n",
    }
    for name, text in metadata.items():
        (tmp_path / "mean_of_tokens-1.dist-info" / name).write_text(text)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "lists.txt").write_text("[MAX 2 9 [MIN 4 7 ] 0 ]\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "answers.jsonl").read_text())["prediction"] in [str(digit) for digit in range(10)]
    assert "Mean of tokens" in (tmp_path / "page.html").read_text()
    rows = done.stdout.rpartition("rows:")[2].strip().split("|")
    assert rows.count("Mean of tokens") == 2
    assert "Mean of tokens, preorder" in rows


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda inputs: inputs, "<class 'torch.Tensor'>"),
        (lambda inputs: SequenceOutput(inputs[:, 0, :2], inputs), r"an encoding of \[1, 2\]"),
    ],
)
def test_a_network_that_returns_something_else_is_told_what_to_return(made: Any, named: str) -> None:
    class Mine(SequenceEncoder):
        def read(self, inputs: Any, lengths: Any, *, trace: bool = False, **further: Any) -> Any:
            return made(inputs)

    vocabulary = Vocabulary(["x"], [("f", 2)])
    batch = TreeBatch.from_forest(Forest.from_trees(["(f x x)"]), vocabulary)
    with pytest.raises(GraphError, match=rf"Mine\.read must return .* the encoding \[1, 4\], not {named}"):
        Mine(4, vocabulary)(batch)
