"""Time and memory of a training step by the length of the sequences: networks that search for a tree.

    python -m benchmarks.lengths

Prints a row for each length: seconds of the processor for the network and its backward pass, the least of three, and
the most MB of tensors that a step holds at once, with gradients of weights. One thread; 8 sequences; width 128.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.device import peak_of
from benchmarks.random_trees import words
from treemem import Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.explore.tables import markdown_table
from treemem.nn import EfficientBeamTreeGRC, RecursionInRecursion

SIZE, BATCH, STEPS = 128, 8, 3
NETWORKS: dict[str, Callable[[Vocabulary], Any]] = {
    "EBT-GRC, 5 beams": lambda vocabulary: EfficientBeamTreeGRC(SIZE, vocabulary, beam_size=5),
    "Recursion in Recursion, 5 beams": lambda vocabulary: RecursionInRecursion(SIZE, vocabulary, beam_size=5),
    "Recursion in Recursion, 7 beams": lambda vocabulary: RecursionInRecursion(SIZE, vocabulary, beam_size=7),
}


def measure(name: str, length: int) -> tuple[float, float]:
    """Return seconds and MB of a training step."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    vocabulary = Vocabulary(words(10), [])
    network = NETWORKS[name](vocabulary)
    batch = TokenBatch(torch.randint(0, 10, (BATCH, length)), torch.full((BATCH,), length))
    network(TokenBatch.from_sequences([[0, 1, 2, 3]])).root.sum().backward()

    def step() -> None:
        network(batch).root.square().sum().backward()

    seconds = []
    for _ in range(STEPS):
        begin = time.process_time()
        step()
        seconds.append(time.process_time() - begin)
    return min(seconds), peak_of(step) / 2**20


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 100, 200, 500, 1000, 2000])
    asked = parser.parse_args()
    rows = [["tokens", *(f"{name}: {unit}" for name in NETWORKS for unit in ("s", "MB"))]]
    for length in asked.lengths:
        row = [str(length)]
        for name in NETWORKS:
            seconds, megabytes = measure(name, length)
            row += [f"{seconds:.3g}", f"{megabytes:,.0f}"]
        rows.append(row)
    print(markdown_table(rows))


if __name__ == "__main__":
    _main()
