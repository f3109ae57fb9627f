"""The bytes and lines of files, and the doors through which JSON and arrays are read."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError, RecipeError, shortened

LONGEST_LINE = 1 << 26
"""The most bytes of a line, and of a CSV row over several lines. Without a bound, a small packed file fills memory."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What unpacking raises."""


Line = tuple[int, str, ParseError | None, bool]
"""A line of a file: its number from 1; its text without its end; why it cannot be read, else None; and whether a line
end follows, which only the last line of a file may lack. A plain tuple, since making a named one takes as long as
reading the line."""


@contextlib.contextmanager
def open_source(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if its name ends in ``.gz``, or of standard input for ``"-"``.

    Raises:
        RecipeError: the file does not exist or cannot be read, its size has changed at the end of the block, or
            standard input is closed.
        ParseError: the packed data are damaged.
    """
    name = os.fspath(source)
    if name == "-":
        if sys.stdin is None:
            raise RecipeError("standard input is closed; name a file, or pipe the records in")
        yield sys.stdin.buffer
        return
    try:
        stream: IO[bytes] = Path(name).open("rb")  # noqa: SIM115  closed below
    except (OSError, ValueError) as error:
        raise _cannot_read(name, error) from error
    with stream:
        size = _size_of(os.fstat(stream.fileno()))
        if is_packed(name):
            with _unpacked(stream, name) as unpacked:
                yield unpacked
        else:
            yield stream
        _check_size(name, size, _size_of(os.fstat(stream.fileno())))


@contextlib.contextmanager
def _unpacked(stream: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    if stream.peek(2)[:2] != b"\x1f\x8b":  # type: ignore[attr-defined]
        raise ParseError("no packed data, though the name ends in .gz", line=1, source=name)
    try:
        with gzip.open(stream, "rb") as unpacked:
            yield cast("IO[bytes]", unpacked)
    except DAMAGED as error:
        raise ParseError(f"the packed data are damaged ({error})", line=1, source=name) from error


def is_packed(name: str) -> bool:
    """Whether a file of this name is packed."""
    return name.lower().endswith(".gz")


def source_size(source: str | os.PathLike[str]) -> int | None:
    """Return the size of a file in bytes; None for standard input, a pipe or a device.

    Raises:
        RecipeError: the file does not exist or cannot be read.
    """
    name = os.fspath(source)
    try:
        return None if name == "-" else _size_of(Path(name).stat())
    except (OSError, ValueError) as error:
        raise _cannot_read(name, error) from error


def check_unchanged(source: str | os.PathLike[str], size: int | None) -> None:
    """Raise a RecipeError if :func:`source_size` of a file is no longer ``size``."""
    _check_size(os.fspath(source), size, source_size(source))


def _size_of(status: os.stat_result) -> int | None:
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _check_size(name: str, before: int | None, now: int | None) -> None:
    if now != before:
        raise RecipeError(f"{name} changed while it was read, from {before} to {now} bytes; wait until it is complete")


def _cannot_read(name: str, error: Exception) -> RecipeError:
    return RecipeError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}")


def read_source(source: str | os.PathLike[str]) -> bytes:
    """Return all bytes of what :func:`open_source` opens.

    Raises:
        RecipeError, ParseError: as :func:`open_source`; or the content does not fit into memory.
    """
    name = os.fspath(source)
    with open_source(source) as stream:
        try:
            return stream.read()
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):
                raise
            raise _cannot_read(name, error) from error
        except MemoryError as error:
            raise RecipeError(f"cannot read {name}: it does not fit into memory; divide it") from error


def lines_of(stream: IO[bytes]) -> Iterator[Line]:
    """Each line of a stream. A line that is too long or not UTF-8 is an error of its own only."""
    for number, raw in enumerate(iter(functools.partial(stream.readline, LONGEST_LINE + 1), b""), start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        is_ended = raw.endswith(b"\n")
        if not is_ended and len(raw) > LONGEST_LINE:
            text = raw[:100].decode("utf-8", errors="replace")
            while raw and not is_ended:
                raw = stream.readline(LONGEST_LINE)
                is_ended = raw.endswith(b"\n")
            problem = f"the line has more than {LONGEST_LINE:,} bytes"
            yield number, "", ParseError(problem, text, 0, "a shorter line for each record"), is_ended
            continue
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = raw.decode("utf-8")
            yield number, text, _nul_error(text) if "\0" in text else None, is_ended
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", errors="replace")
            offset = len(raw[: error.start].decode("utf-8"))
            if error.end == len(raw) and error.reason == "unexpected end of data" and not is_ended:
                raise cut_off(text).at(number) from error
            wrong = ParseError(f"byte 0x{raw[error.start]:02x} is not UTF-8", text, offset, "UTF-8 text")
            yield number, text, wrong, is_ended


def text_lines(stream: IO[bytes]) -> Iterator[tuple[int, str, ParseError | None]]:
    """Each line with its number, without its end. A line that is too long or not UTF-8 has an error.

    Raises:
        ParseError: the last line ends in the middle of a character.
    """
    for number, text, error, _ in lines_of(stream):
        yield number, text, error


def _nul_error(text: str) -> ParseError:
    expected = "UTF-8 text; the file is damaged, in UTF-16, or no text file"
    return ParseError("the line has a character NUL", text, text.index("\0"), expected)


def cut_off(text: str) -> ParseError:
    """The error of a file that ends in the middle of the record ``text``."""
    return ParseError(
        "the file ends in the middle of this record; it seems to be cut off",
        text,
        len(text),
        "a whole record; if nothing is missing, correct it and end its line",
    )


def read_json(content: str | bytes, source: str = "", expected: str = "") -> Any:
    """Return the value of a JSON text.

    Args:
        content: the text, or its bytes in UTF-8.
        source: name of the file, for errors.
        expected: what it should hold, for errors.

    Raises:
        ParseError: it is not JSON, not UTF-8, has a whole number of more than 4,300 digits, or is nested deeper than
            about 990 levels.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig", errors="surrogateescape")
    cause: Exception
    try:
        if text is not content:
            text.encode("utf-8")
        return _DECODER.decode(text)
    except UnicodeEncodeError as error:
        problem, offset, cause = f"byte 0x{ord(text[error.start]) - 0xDC00:02x} is not UTF-8", error.start, error
        text = text.encode("utf-8", errors="replace").decode("utf-8")
    except (RecursionError, MemoryError) as error:
        problem, offset, cause = "the JSON is nested too deep or too large; write deep trees as texts", 0, error
    except ValueError as error:
        problem, offset, cause = f"no JSON here ({getattr(error, 'msg', error)})", getattr(error, "pos", 0), error
    raise ParseError(problem, text, offset, expected, source=source) from cause


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of an object of JSON.

    Raises:
        ValueError: a name stands twice, so that one of the values would be lost.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise two_fields(next(name for name in names if names.count(name) > 1))
    return fields


def two_fields(name: str) -> ValueError:
    """Return the error of two fields of this name in one object."""
    return ValueError(f"two fields have one name, {shortened(name, 100)!r}")


_DECODER = json.JSONDecoder(object_pairs_hook=unique_fields)


def read_array(path: str | os.PathLike[str], *, mmap: bool = True) -> NDArray[Any]:
    """Return the array of a ``.npy`` file.

    Args:
        path: of the file.
        mmap: map the array into memory, read-only, instead of copying it.

    Raises:
        RecipeError: the file cannot be read.
        ParseError: it is damaged, is another kind of file, or holds Python objects.
    """
    name = os.fspath(path)
    expected = "an array that numpy.save wrote"
    try:
        array = np.lib.format.open_memmap(name, mode="r")
        size, size_needed = Path(name).stat().st_size, array.offset + array.nbytes
    except OSError as error:
        raise _cannot_read(name, error) from error
    except Exception as error:  # of a damaged header; numpy evaluates it, and raises errors of many classes
        problem = shortened(str(error) or type(error).__name__)
        raise ParseError(problem, "", 0, expected, source=name) from error
    if size != size_needed:
        raise ParseError(f"the array has {size} bytes, not {size_needed}", "", 0, expected, source=name)
    return array if mmap else array.copy()
