"""Forests in files: Parquet for exchange, a folder of arrays for mapping into memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, TreememError, shortened
from treemem.records import open_source, read_array, read_json, read_source, replacing, writing
from treemem.trees.forest_arrays import ForestArrays

if TYPE_CHECKING:
    import pyarrow

_FORMAT = 1
DESCRIPTION = "forest.json"
"""The file of a folder of arrays without which nothing is read."""
_METADATA_KEY = b"treemem.forest"


def write_parquet(forest: ForestArrays, path: str | Path) -> None:
    """Write one row a tree, nodes in post-order, readable by anything that reads Parquet.

    Columns: ``label`` (a list of strings, dictionary-encoded), ``arity`` (a list of integers), ``value`` (a list of
    numbers, null for none), and ``node.NAME`` and ``tree.NAME`` for the data.
    """
    import pyarrow
    from pyarrow import parquet

    offsets = pyarrow.array(forest.begin)

    def lists(values: pyarrow.Array) -> pyarrow.Array:
        return pyarrow.LargeListArray.from_arrays(offsets, values)

    labels = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(forest.label), pyarrow.array(forest.labels, pyarrow.string())
    )
    columns = {"label": lists(labels), "arity": lists(pyarrow.array(forest.arity))}
    if forest.value is not None:
        columns["value"] = lists(pyarrow.array(forest.value, from_pandas=True))
    for name, array in forest.node_data.items():
        columns[f"node.{name}"] = lists(_arrow_array(array))
    for name, array in forest.tree_data.items():
        columns[f"tree.{name}"] = _arrow_array(array)
    description = {
        "format": _FORMAT,
        "shapes": {
            **{f"node.{name}": array.shape[1:] for name, array in forest.node_data.items()},
            **{f"tree.{name}": array.shape[1:] for name, array in forest.tree_data.items()},
        },
    }
    table = pyarrow.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(description)})
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, write_page_checksum=True)


def _arrow_array(array: NDArray[Any]) -> pyarrow.Array:
    import pyarrow

    flat = pyarrow.array(array.ravel())
    for size in reversed(array.shape[1:]):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
    return flat


def read_parquet(path: str | Path) -> ForestArrays:
    """Read what :func:`write_parquet` wrote.

    Raises:
        GraphError: there is no such file, or it is no Parquet file of a forest.
    """
    try:
        with open_source(path) as stream:
            return _read_parquet(path, stream)
    except GraphError:
        raise
    except TreememError as error:
        raise GraphError(str(error)) from error
    except Exception as error:  # foreign bytes make pyarrow raise errors of many classes
        raise GraphError(f"{path} is no Parquet file of a forest, or is damaged: {shortened(str(error))}") from error


def _read_parquet(path: str | Path, stream: IO[bytes]) -> ForestArrays:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(stream, page_checksum_verification=True)
    metadata = (table.schema.metadata or {}).get(_METADATA_KEY)
    missing = {"label", "arity"} - set(table.column_names)
    if metadata is None or missing:
        raise GraphError(f"{path} holds no forest: it has the columns {shortened(str(table.column_names))}")
    description = read_json(metadata)
    _check_format(description, path)
    shapes = description["shapes"]
    unknown = [name for name in table.column_names if name.startswith(("node.", "tree.")) and name not in shapes]
    if unknown:
        raise GraphError(f"{path}: the columns {unknown} are none that the forest was written with")
    table = table.unify_dictionaries().combine_chunks()

    def column(name: str) -> pyarrow.Array:
        chunks = table.column(name)
        return chunks.chunk(0) if chunks.num_chunks else pyarrow.array([], chunks.type)

    begin = column("label").offsets.to_numpy().astype(np.int64)

    def nodes(name: str) -> pyarrow.Array:
        lists = column(name)
        if not np.array_equal(lists.offsets.to_numpy(), begin):
            raise GraphError(f"{path}: the lists of {name!r} are not as long as those of 'label'")
        return lists.flatten()

    label = nodes("label")
    if not pyarrow.types.is_dictionary(label.type):
        label = label.dictionary_encode()
    return ForestArrays(
        label.dictionary.to_pylist(),
        _numpy_array(label.indices),
        _numpy_array(nodes("arity")),
        begin - begin[0] if len(begin) else np.zeros(1, np.int64),
        _numpy_array(nodes("value")) if "value" in table.column_names else None,
        node_data={
            name[5:]: _numpy_array(nodes(name), shapes[name]) for name in table.column_names if name.startswith("node.")
        },
        tree_data={
            name[5:]: _numpy_array(column(name), shapes[name])
            for name in table.column_names
            if name.startswith("tree.")
        },
    )


def _numpy_array(array: pyarrow.Array, shape: Sequence[int] = ()) -> NDArray[Any]:
    for _ in shape:
        array = array.flatten()
    entries = np.asarray(array.to_numpy(zero_copy_only=False))
    return entries.reshape(-1, *shape) if shape else entries


def save_arrays(forest: ForestArrays, folder: str | Path) -> None:
    """Write each array to a ``.npy`` file of ``folder``, and a description, without which nothing is read.

    All is written under temporary names first, for the arrays may be mapped from the very files that they replace; the
    description takes its place last.
    """
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {"label": forest.label, "arity": forest.arity, "begin": forest.begin}
    if forest.value is not None:
        arrays["value"] = forest.value
    names: dict[str, dict[str, str]] = {"node_data": {}, "tree_data": {}}
    sets: dict[str, Mapping[str, NDArray[Any]]] = {"node_data": forest.node_data, "tree_data": forest.tree_data}
    for kind, data in sets.items():
        for index, (name, entries) in enumerate(data.items()):
            names[kind][name] = f"{kind}_{index}"
            arrays[f"{kind}_{index}"] = entries
    description = {
        "format": _FORMAT,
        "labels": list(forest.labels),
        "has_values": forest.value is not None,
        **names,
    }
    with contextlib.ExitStack() as replacements:  # made in the reverse of this order
        temporary = replacements.enter_context(replacing(folder / DESCRIPTION))
        temporary.write_text(json.dumps(description, ensure_ascii=False), encoding="utf-8")
        for name, array in arrays.items():
            with replacements.enter_context(replacing(folder / f"{name}.npy")).open("wb") as stream:
                np.save(stream, array, allow_pickle=False)
        (folder / DESCRIPTION).unlink(missing_ok=True)


def load_arrays(folder: str | Path, *, mmap: bool = True) -> ForestArrays:
    """Read what :func:`save_arrays` wrote; nothing checks that the arrays make trees.

    Args:
        folder: the folder.
        mmap: map the arrays into memory instead of copying them.

    Raises:
        GraphError: the folder holds no whole forest.
    """
    folder = Path(folder)

    def read(name: str) -> NDArray[Any]:
        return read_array(folder / f"{name}.npy", mmap=mmap)

    try:
        description = read_json(read_source(folder / DESCRIPTION), str(folder / DESCRIPTION))
        _check_format(description, folder)
        return ForestArrays(
            list(description["labels"]),
            read("label"),
            read("arity"),
            read("begin"),
            read("value") if description["has_values"] else None,
            node_data={name: read(file) for name, file in description["node_data"].items()},
            tree_data={name: read(file) for name, file in description["tree_data"].items()},
        )
    except (TreememError, LookupError, TypeError, AttributeError) as error:
        raise GraphError(f"{folder} holds no whole forest: {error}") from error


def _check_format(description: Mapping[str, Any], place: str | Path) -> None:
    if description["format"] != _FORMAT:
        raise GraphError(
            f"{place} holds a forest in format {description['format']}; this version reads format {_FORMAT}"
        )
