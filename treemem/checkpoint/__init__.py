"""A trained model as a folder: written once, checked when it is read, never a pickle."""

from __future__ import annotations

from treemem.checkpoint.files import MODEL_FILES, keep_copy, verified_files, with_manifest
from treemem.checkpoint.model_folder import (
    FORMAT,
    check_options,
    check_weights,
    described,
    fetch,
    files_of,
    load,
    load_pretrained,
    model_of,
    read,
    records_of,
    save,
    set_temperature,
    training_files_of,
    training_state_of,
)
from treemem.checkpoint.pretrained import is_pretrained_name, pretrained_folder, pretrained_names
from treemem.checkpoint.run_folder import RunFolder

__all__ = [
    "FORMAT",
    "MODEL_FILES",
    "RunFolder",
    "check_options",
    "check_weights",
    "described",
    "fetch",
    "files_of",
    "is_pretrained_name",
    "keep_copy",
    "load",
    "load_pretrained",
    "model_of",
    "pretrained_folder",
    "pretrained_names",
    "read",
    "records_of",
    "save",
    "set_temperature",
    "training_files_of",
    "training_state_of",
    "verified_files",
    "with_manifest",
]
