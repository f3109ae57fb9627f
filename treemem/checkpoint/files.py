"""A checkpoint on disk: a folder of files with a manifest, written once and checked when it is read."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from treemem.errors import CheckpointError
from treemem.records import bring_to_disk, cannot_write

CONFIG, VOCABULARY, WEIGHTS = "config.yaml", "vocabulary.json", "model.safetensors"
METRICS, TRAINING_STATE, MANIFEST, TEMPERATURE = (
    "metrics.jsonl", "training_state.pt", "manifest.json", "temperature.json",
)  # fmt: skip
MODEL_FILES = (CONFIG, VOCABULARY, WEIGHTS, METRICS)
"""The files of every checkpoint, besides the manifest."""
_OWN_FILES = {*MODEL_FILES, TRAINING_STATE, MANIFEST, TEMPERATURE}

MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""What readers of JSON, YAML and safetensors raise, and constructors given foreign options."""


def with_manifest(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a checkpoint and the manifest with their sizes and hashes."""
    manifest = {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in files.items()}
    return {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}


def write_checkpoint(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a checkpoint to a folder that does not exist; it appears under its name only when it is whole.

    Raises:
        CheckpointError: it cannot be written.
    """
    temporary = temporary_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, content in with_manifest(files).items():
            with (temporary / name).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        temporary.rename(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {folder}: {cannot_write(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_checkpoint(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a checkpoint in place of another one. Other files of its folder stay.

    Raises:
        CheckpointError: it cannot be written.
    """
    made = _made(folder)
    try:
        shutil.rmtree(made, ignore_errors=True)
        write_checkpoint(made, files)
        folder.rename(_former(folder))
        made.rename(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {folder}: {cannot_write(error)}") from error
    finish_replacement(folder)


def keep_copy(path: str | os.PathLike[str]) -> Path | None:
    """Copy the files of a checkpoint, whole or damaged, to a folder beside it that does not exist: ``<path>.before``.

    Returns:
        The folder: ``<path>.before``, ``<path>.before-2`` and so on; None if there is no checkpoint.

    Raises:
        CheckpointError: it cannot be written.
    """
    folder = Path(os.path.realpath(path))
    finish_replacement(folder)
    if not has_manifest(folder):
        return None
    names = (f"{folder.name}.before" + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    kept = next(place for name in names if not (place := folder.with_name(name)).exists())
    temporary = temporary_folder(kept)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name in _OWN_FILES:
            if (folder / name).is_file():
                shutil.copy2(folder / name, temporary / name)
                bring_to_disk(temporary / name)
        temporary.rename(kept)
    except OSError as error:
        raise CheckpointError(f"cannot keep {folder} as {kept}: {cannot_write(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return kept


def finish_replacement(folder: Path) -> None:
    """Finish the replacement of a checkpoint, or undo one that was interrupted before the new one was there.

    Raises:
        CheckpointError: a file cannot be moved.
    """
    former = _former(folder)
    if not has_manifest(former):
        return
    try:
        if not folder.exists():
            former.rename(folder)
            return
        for other in former.iterdir():
            if other.name not in _OWN_FILES and not (folder / other.name).exists():
                other.rename(folder / other.name)
        made = _made(folder)  # a kill may leave a part of it, which the next replacement deletes
        former.rename(made)
        shutil.rmtree(made)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {folder}: {cannot_write(error)}") from error


def _former(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.former")


def _made(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.new")


def has_manifest(folder: Path) -> bool:
    """Return whether a folder has a checkpoint's manifest. Other programs have files of that name too."""
    try:
        return bool(_listed(folder))
    except CheckpointError:
        return False


def temporary_folder(folder: Path) -> Path:
    """Return where a checkpoint is written before it gets its name."""
    return folder.with_name(f".{folder.name}.tmp")


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder has the manifest of a checkpoint, whole or not."""
    return os.path.isfile(folder / MANIFEST)  # noqa: PTH113  # of a name too long it says no, where Path raises


def verified_files(folder: Path, *, with_training_state: bool = True) -> dict[str, bytes]:
    """Return the files of a checkpoint by name, each with the size and hash that the manifest says.

    Raises:
        CheckpointError: a file is missing, cut off or altered; the message names it.
    """
    listed = _listed(folder)
    files = {}
    for name in (*MODEL_FILES, *([TRAINING_STATE] if with_training_state and TRAINING_STATE in listed else [])):
        try:
            content = read_regular(folder / name)
        except OSError as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error.strerror}") from error
        length, digest = listed[name]
        if len(content) != length:
            raise CheckpointError(f"{folder / name} is cut off or altered: {len(content)} bytes, not {length}")
        if _digest(content) != digest:
            raise CheckpointError(f"{folder / name} is altered: its contents do not have the hash that was saved")
        files[name] = content
    return files


def _listed(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the size and the hash of each file, as the manifest says."""
    try:
        manifest = json.loads(read_regular(folder / MANIFEST))
        listed = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(f"{folder / MANIFEST} is missing or damaged: {in_a_line(error)}") from error
    for name in MODEL_FILES:
        if name not in listed:
            raise CheckpointError(f"{folder} is no checkpoint of treemem: its {MANIFEST} does not list {name}")
    return listed


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file. A device or pipe, to which a link may lead, could have no end.

    Raises:
        OSError: it is no regular file, or cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_bytes()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def in_a_line(error: Exception) -> str:
    """Return what an error says, in one line of at most 300 characters."""
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
