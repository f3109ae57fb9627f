"""Runs networks in less memory than they need, then in more and more; test_native.py starts it as a process.

A run that fails must raise an error, of torch or of C++, and the one that succeeds must compute what it should. Prints
the names of the networks that do.
"""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from treemem import Forest, Tree, TreeBatch, Vocabulary
from treemem.errors import OutOfMemoryError
from treemem.nn import OrderedMemory, StackTreeRNN

ARITY, TOKENS, SIZE = 20_000, 40, 16
WIDE = Vocabulary(["x", "y"], [("s", ARITY), ("s", 2)])
VOCABULARY = Vocabulary(["x"], [("s", 2)])


SMALL = Tree("s", [Tree("x"), Tree("y")])
LARGE = Tree("s", [SMALL, *[Tree("x")] * (ARITY - 1)])
BATCHES = {
    size: TreeBatch.from_forest(Forest.from_trees([tree]), WIDE, share_subtrees=False)
    for size, tree in ((4, SMALL), (32, LARGE))
}


def results(network: torch.nn.Module, size: int) -> list[torch.Tensor]:
    """The result and all gradients; for so many sequences, or for a small or a large tree."""
    torch.manual_seed(0)
    network.zero_grad()
    if isinstance(network, StackTreeRNN):
        root = network(BATCHES[size]).root
    else:
        root = network.read(torch.randn(size, TOKENS, SIZE, dtype=torch.float64), torch.full((size,), TOKENS))[0]  # type: ignore[operator]
    root.square().sum().backward()
    return [root.detach(), *(each.grad for each in network.parameters() if each.grad is not None)]


def with_at_most(spare: int, network: torch.nn.Module) -> list[torch.Tensor] | Exception:
    """The results, or the error, with so many bytes beside those that the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, hard))
    try:
        return results(network, 32)
    except (RuntimeError, MemoryError) as error:
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def main() -> None:
    torch.set_num_threads(2)
    networks: list[torch.nn.Module] = [
        OrderedMemory(SIZE, VOCABULARY, slots=8).double(),
        StackTreeRNN(8, WIDE, max_arity=ARITY).double(),
    ]
    for network in networks:
        name = type(network).__name__
        results(network, 4)  # compiles, and makes threads
        spare, found = 1 << 18, with_at_most(0, network)
        errors = []
        while isinstance(found, Exception):
            errors.append(found)
            found, spare = with_at_most(spare, network), 2 * spare
            assert spare < 1 << 29, f"{name} needs too much memory"
        if name == "OrderedMemory":  # which takes most of its memory in C++
            assert any(isinstance(each, OutOfMemoryError) for each in errors), name
        for own, expected in zip(found, results(network, 32), strict=True):  # with little memory BLAS sums otherwise
            torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-14)
        print(name, flush=True)


if __name__ == "__main__":
    main()
