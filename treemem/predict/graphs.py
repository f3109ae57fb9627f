"""Examples from files of ``dgl.save_graphs``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError, ParseError, RecipeError, TreememError
from treemem.predict.chunks import Entry
from treemem.reading_processes import reading_processes
from treemem.trees.bridges.dgl import forest_from_dgl
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import RecordReader

_GRAPHS_AT_ONCE = 256
_EXPECTED = "a whole file of dgl.save_graphs"
_graphs: list[Any] = []  # the graphs of the file that this process has open


def read_graphs(source: str, labels: Sequence[str], reader: RecordReader, trees_per_example: int) -> Iterator[Entry]:
    """Yield the examples of a file of graphs, in order, numbered from 1 in place of lines.

    The trees of an example are adjacent in a graph, in the order of their roots' ids. A graph that is not a forest is
    one bad record. DGL reads the file in another process, because a damaged file can crash it.

    Args:
        source: the file.
        labels: the labels that the node field ``label`` indexes.
        reader: the reader of the task.
        trees_per_example: number of trees of an example.

    Raises:
        RecipeError: the file does not exist.
        ParseError: the file is damaged or holds no graphs.
        MissingDGLError: DGL is not installed.
    """
    if not Path(source).is_file():
        raise RecipeError(f"cannot read {source}: there is no such file")
    line = 0
    try:
        with reading_processes(1) as submit:
            count = submit(_open, source).result()
            for first in range(0, count, _GRAPHS_AT_ONCE):
                for item in submit(_forests, first, first + _GRAPHS_AT_ONCE, tuple(labels)).result():
                    for entry in _entries(item, reader, trees_per_example, line):
                        line = entry.line
                        yield entry
    except BrokenProcessPool as error:
        problem = "it holds no graphs, or is damaged: the process that read it crashed"
        raise ParseError(problem, "", 0, _EXPECTED, max(line, 1), source) from error


def _entries(item: Forest | TreememError, reader: RecordReader, trees_per_example: int, line: int) -> Iterator[Entry]:
    """Yield the examples of a graph, which follow ``line`` others."""
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
    """Keep the graphs of a file in this process. Return their number."""
    dgl = import_dgl()
    try:
        graphs, _ = dgl.load_graphs(source)
    except (dgl.DGLError, OSError, ValueError, RuntimeError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise ParseError(f"it holds no graphs, or is damaged: {problem}", "", 0, _EXPECTED, 1, source) from error
    _graphs[:] = graphs
    return len(graphs)


def _forests(first: int, last: int, labels: tuple[str, ...]) -> list[Forest | TreememError]:
    """Return the trees, or the error, of each graph in a range."""
    forests: list[Forest | TreememError] = []
    for graph in _graphs[first:last]:
        try:
            forests.append(forest_from_dgl(graph, labels))
        except TreememError as error:
            forests.append(error)
    return forests
