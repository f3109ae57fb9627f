"""Examples out of files of ``dgl.save_graphs``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from treemem.child_process import ChildProcess, ChildProcessDied
from treemem.dgl_import import import_dgl
from treemem.errors import GraphError, ParseError, RecipeError, TreememError
from treemem.predict.chunks import Entry
from treemem.trees.dgl_bridge import forest_from_dgl
from treemem.trees.forest import Forest
from treemem.trees.record_reader import RecordReader

_GRAPHS_AT_ONCE = 256
_EXPECTED = "a whole file of dgl.save_graphs"
_graphs: list[Any] = []  # of the file that this process has open


def read_graphs(source: str, labels: Sequence[str], reader: RecordReader, trees_per_example: int) -> Iterator[Entry]:
    """The examples of a file of graphs, in order; their numbers, from 1, stand in the place of lines.

    The trees of an example are adjacent in a graph, in the order of their roots' ids. A graph that is no forest is one
    bad record. DGL reads the file in a process of its own, since a damaged one can end the process that reads it.

    Args:
        source: the file.
        labels: what the node field ``label`` is an index into.
        reader: of the task.
        trees_per_example: how many trees an example has.

    Raises:
        RecipeError: there is no such file.
        ParseError: it is no file of graphs, or a damaged one.
        MissingDGLError: there is no DGL.
    """
    if not Path(source).is_file():
        raise RecipeError(f"cannot read {source}: there is no such file")
    line = 0
    try:
        with ChildProcess("reads the graphs") as child:
            count = child.call(_open, source)
            for first in range(0, count, _GRAPHS_AT_ONCE):
                for item in child.call(_forests, first, first + _GRAPHS_AT_ONCE, tuple(labels)):
                    for entry in _entries(item, reader, trees_per_example, line):
                        line = entry.line
                        yield entry
    except ChildProcessDied as error:
        problem = f"it holds no graphs, or is damaged: {error}"
        raise ParseError(problem, "", 0, _EXPECTED, max(line, 1), source) from error


def _entries(item: Forest | TreememError, reader: RecordReader, trees_per_example: int, line: int) -> Iterator[Entry]:
    """The examples of a graph, after ``line`` others."""
    if isinstance(item, Forest) and (len(item) % trees_per_example or not len(item)):
        item = GraphError(f"the graph holds {len(item)} trees, and an example has {trees_per_example}")
    if isinstance(item, TreememError):
        yield Entry(line + 1, line + 1, None, item)
        return
    for first in range(0, len(item), trees_per_example):
        line += 1
        trees = [item[first + number] for number in range(trees_per_example)]
        yield Entry(line, line, reader.joined(trees))


def _open(source: str) -> int:
    """Read a file and keep its graphs in this process; how many there are."""
    dgl = import_dgl()
    try:
        graphs, _ = dgl.load_graphs(source)
    except (dgl.DGLError, OSError, ValueError, RuntimeError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise ParseError(f"it holds no graphs, or is damaged: {problem}", "", 0, _EXPECTED, 1, source) from error
    _graphs[:] = graphs
    return len(graphs)


def _forests(first: int, last: int, labels: tuple[str, ...]) -> list[Forest | TreememError]:
    """The trees of some of the graphs, or what is wrong with each."""
    found: list[Forest | TreememError] = []
    for graph in _graphs[first:last]:
        try:
            found.append(forest_from_dgl(graph, labels))
        except TreememError as error:
            found.append(error)
    return found
